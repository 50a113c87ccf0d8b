"""Spark's rows as data files: written in the JVM's tasks, or else in Python workers."""
