"""Access to files that a catalog's server hands out: credentials, signatures."""
