"""What a commit can do to a table: one operation a module."""
