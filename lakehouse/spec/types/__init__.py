"""Types of the specification as others have them: Arrow, text, bytes."""
