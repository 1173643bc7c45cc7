"""Sidecar mode: the agent runs next to the worker and holds it back with a startup probe."""
