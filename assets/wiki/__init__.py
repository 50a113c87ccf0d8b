"""A second source, by definition alone: edits of Wikipedia."""
