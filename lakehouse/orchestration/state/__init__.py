"""The state of the whole lakehouse as one asset."""
