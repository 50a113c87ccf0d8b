"""Data files to Arrow and back by field id, without a JVM."""
