"""Row-level deletes: position and equality delete files, deletion vectors, Puffin."""
