"""Releases: archives, bills of materials, signatures."""
