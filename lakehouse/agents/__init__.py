"""What agents see of a lakehouse: search, descriptions, join paths, checked and bounded SQL, and the MCP server."""
