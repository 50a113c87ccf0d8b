"""Filters as SQL text."""
