"""Iceberg's own REST catalog as a server for our client (`make conformance-rest-client`)."""
