"""Manifests rewritten, and columnar manifests for those that lack one."""
