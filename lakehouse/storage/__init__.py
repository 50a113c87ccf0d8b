"""Reading and writing bytes, durably."""
