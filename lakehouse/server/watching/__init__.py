"""What people and machines look at to see how the server does."""
