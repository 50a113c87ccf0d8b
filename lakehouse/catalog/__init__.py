"""The pointer to the current metadata of each table."""
