"""Data files to Arrow record batches."""
