"""Manifests read, decoded and kept."""
