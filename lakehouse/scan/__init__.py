"""Planning: which files a query needs."""
