"""Compaction: which files are rewritten together, and rewriting them."""
