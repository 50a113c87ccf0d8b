"""Which snapshots are let go, and the files that nothing reaches then."""
