"""Execution of plans: caches, parallel requests, the status writer, metrics of JobSets."""
