"""The lakehouse command."""
