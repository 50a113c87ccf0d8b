"""What tables mean: statements about tables and fields, their evidence and state. Pure."""
