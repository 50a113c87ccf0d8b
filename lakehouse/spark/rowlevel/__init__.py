"""DELETE, UPDATE and MERGE: Spark decides on the rows, this side plans the files and commits."""
