"""Pods on nodes of which nothing is heard any more."""
