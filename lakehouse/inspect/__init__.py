"""Metadata tables as Arrow, with the columns that Iceberg gives them."""
