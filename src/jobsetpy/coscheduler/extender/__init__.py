"""Extender: the HTTP server that the scheduler asks."""
