"""An agent-facing catalog, measured: what agents find and are told, what a literal reader makes."""
