"""Catalogs in metastores, which keep the location of the newest metadata file: Hive's, and Glue."""
