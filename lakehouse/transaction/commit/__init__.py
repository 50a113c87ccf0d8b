"""Attempts until one wins, and the outcomes of a commit."""
