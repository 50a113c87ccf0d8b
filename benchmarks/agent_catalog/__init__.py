"""An agent-facing catalog, measured: what agents find in it, what a literal reader makes of it."""
