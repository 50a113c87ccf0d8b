"""Schemas: types, the ids of fields, their names in files."""
