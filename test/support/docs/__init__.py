"""Commands of the documentation, and expressions of its alerts."""
