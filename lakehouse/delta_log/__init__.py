"""Delta's transaction log beside Iceberg's metadata, over the same data files."""
