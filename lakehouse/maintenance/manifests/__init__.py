"""Manifests rewritten, and twins for those that lack one."""
