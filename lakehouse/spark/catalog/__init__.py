"""Answers Spark's catalog plugin (`LakehouseCatalog.java`), and registers it."""
