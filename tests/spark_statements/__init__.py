"""Generated statements of Spark SQL on lakehouse tables and on tables of Spark's own."""
