"""Partition transforms of values, and of filters."""
