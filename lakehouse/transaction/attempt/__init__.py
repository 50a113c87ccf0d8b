"""Making the files of one attempt to commit."""
