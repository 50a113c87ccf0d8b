"""Filters: parsing, binding, projection through transforms, vectorised pruning."""
