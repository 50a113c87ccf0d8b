"""What a plan read and skipped, and the listeners that get it."""
