"""What must hold before data is published."""
