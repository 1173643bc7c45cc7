"""Counts that events keep up to date, and the view of one JobSet that a plan reads."""
