"""Catalogs on servers of the REST protocol."""
