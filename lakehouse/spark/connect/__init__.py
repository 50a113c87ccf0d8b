"""Spark Connect: sessions without a JVM of their own, and a server that has the catalog."""
