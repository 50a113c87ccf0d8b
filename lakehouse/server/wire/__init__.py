"""Bytes of HTTP: connections, targets, bodies."""
