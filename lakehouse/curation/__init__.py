"""Keeps statements about tables: stores them in the lakehouse, checks them against it, proposes new ones."""
