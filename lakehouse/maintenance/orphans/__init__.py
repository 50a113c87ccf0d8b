"""Files under a table's location that no metadata reaches."""
