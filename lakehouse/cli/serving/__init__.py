"""Commands that run until they are told to stop."""
