"""Functions that filters may use, and what they mean."""
