"""Faults: broken networks and processes."""
