"""What statistics files say of columns: sketches of distinct values, filters of keys."""
