"""Validation and defaulting of a whole JobSet, in the order of the fields."""
