"""Access to the files of tables, handed out to who may read or write them."""
