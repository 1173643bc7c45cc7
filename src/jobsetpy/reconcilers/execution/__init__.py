"""Execution of plans: caches, requests in parallel, the status writer, metrics of JobSets."""
