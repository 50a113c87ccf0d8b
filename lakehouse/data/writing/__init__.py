"""Arrow record batches to data files: partitioned, sorted, measured."""
