"""Soak test: random lives of JobSets, and their managers."""
