"""A list of statements, run by our catalog and by Iceberg's runtime on the same Spark."""
