"""Manifests read and written: the one door to their entries, and the cache of both."""
