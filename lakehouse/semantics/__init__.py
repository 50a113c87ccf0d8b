"""What tables mean: statements bound to tables and fields, what shows that they are true, and their states. Pure."""
