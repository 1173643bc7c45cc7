"""Fake API server: storage, verbs, watches, admission, faults."""
