"""Keeps statements about tables: stores, checks and proposes them."""
