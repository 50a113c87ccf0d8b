"""Overwrite and delete by filter: whole files are dropped, others lose their matching rows."""
