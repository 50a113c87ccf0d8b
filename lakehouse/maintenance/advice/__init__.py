"""What should be done with a table, and why."""
