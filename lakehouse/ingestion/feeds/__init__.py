"""Feeds of changes: files that say how the rows of another table change."""
