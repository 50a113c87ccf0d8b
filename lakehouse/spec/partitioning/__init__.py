"""Partition specs and sort orders."""
