"""What Spark is told of a table that it reads: columns, sizes, files."""
