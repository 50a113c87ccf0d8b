"""Avro data files: records become columns."""
