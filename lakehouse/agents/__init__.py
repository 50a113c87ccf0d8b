"""What agents see of a catalog: search, descriptions, joins, metrics; read-only SQL; MCP."""
