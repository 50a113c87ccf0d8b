"""Text and Parquet files to records."""
