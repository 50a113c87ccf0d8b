"""Changing rows: what to do is decided about one version, and is a value that a commit takes."""
