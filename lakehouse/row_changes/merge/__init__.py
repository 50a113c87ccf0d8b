"""MERGE and UPDATE: rows changed by what a condition, or other rows, say of them."""
