"""The metadata tree, one module per level; pure values."""
