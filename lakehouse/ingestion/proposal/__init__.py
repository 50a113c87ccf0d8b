"""Looks at sample files and proposes a source for them."""
