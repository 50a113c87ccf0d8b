"""Overwrite and delete by filter: which files go whole, which are rewritten without the matching rows."""
