"""Manifest lists, manifests, columnar ones too, and the entries in them."""
