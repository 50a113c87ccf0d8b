"""Changes of rows, as another database tells them: the last one of each key, and what it does."""
