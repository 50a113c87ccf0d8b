"""What can be done with a table: verbs that read, write, change and keep it."""
