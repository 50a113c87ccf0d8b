"""Schema, partition spec and sort order changes as pure functions."""
