"""What Spark gets of a table that it reads: columns, sizes, files."""
