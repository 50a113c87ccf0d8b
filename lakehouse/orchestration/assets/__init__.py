"""Tables computed from tables: what is read, written, checked, published and recorded."""
