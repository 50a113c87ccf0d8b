"""A catalog in a SQL database."""
