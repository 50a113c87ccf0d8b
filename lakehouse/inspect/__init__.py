"""Metadata tables."""
