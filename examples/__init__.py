"""Examples that run: see `demo`."""
