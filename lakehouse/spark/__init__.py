"""Spark reads and writes the tables without a JAR."""
