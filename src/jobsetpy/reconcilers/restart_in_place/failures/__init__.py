"""Causes of restarts: what pods and agents report of a failure, and nodes that fail often."""
