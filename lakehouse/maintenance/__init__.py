"""Health, compaction, expiry, orphan removal."""
