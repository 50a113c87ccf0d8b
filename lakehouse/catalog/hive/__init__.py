"""A catalog in a Hive Metastore."""
