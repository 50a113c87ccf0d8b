"""Jobs: indexing, ingestion, compaction, expiry."""
