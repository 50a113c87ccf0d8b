"""Assets of any kind whose rows are tables: whatever frames they take and give."""
