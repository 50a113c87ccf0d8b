"""A catalog in the warehouse's own folders."""
