"""Order: which gang is tried next, and when."""
