"""The operations of the REST catalog, by what they work on."""
