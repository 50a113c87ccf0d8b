"""Which files the metadata of a table reaches, and under which names."""
