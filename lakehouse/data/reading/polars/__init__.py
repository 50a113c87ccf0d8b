"""Plain columns decoded in bulk by Polars, where that is faster (ADR 7)."""
