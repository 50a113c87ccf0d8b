"""What runs on Spark's workers: the two passes over landing files."""
