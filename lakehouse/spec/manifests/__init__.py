"""Manifest lists, manifests, their columnar twins, and the entries in them."""
