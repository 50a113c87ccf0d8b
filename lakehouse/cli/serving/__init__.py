"""Commands that run until somebody stops them."""
