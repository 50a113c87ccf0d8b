"""What Spark's catalog plugin (`LakehouseCatalog.java`) asks of a lakehouse, and its registration."""
