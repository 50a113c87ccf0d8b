"""Tables that are a pure function of other tables."""
