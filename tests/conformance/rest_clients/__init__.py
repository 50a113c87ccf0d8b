"""Clients of others on our REST server, each doing what it can."""
