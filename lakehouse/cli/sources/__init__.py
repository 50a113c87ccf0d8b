"""Commands about sources of events."""
