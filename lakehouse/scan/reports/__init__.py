"""What a plan read and skipped, and who is told."""
