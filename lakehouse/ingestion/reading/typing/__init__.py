"""Records to typed columns: kinds of values, event times."""
