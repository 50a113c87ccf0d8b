"""Rows that an operation decided on: where they are by now, and what others did to them."""
