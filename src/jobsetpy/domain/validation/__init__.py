"""What admission refuses and fills in."""
