"""Rows of Spark as data files: in the tasks that make them where the JVM can, else in Python workers."""
