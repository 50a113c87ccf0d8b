"""What others committed meanwhile, and whether it breaks an operation."""
