"""Arrow values between types and shapes."""
