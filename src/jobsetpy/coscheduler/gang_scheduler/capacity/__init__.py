"""Capacity: what nodes have left for the pods of a gang."""
