"""Table metadata: the root of the tree, its changes and requirements."""
