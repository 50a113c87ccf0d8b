"""Merges from the command line: rows of files or tables into a table."""
