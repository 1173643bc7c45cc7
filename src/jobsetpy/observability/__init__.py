"""Metrics and log lines, and the hooks that connect the framework to both.

``metrics`` declares every metric; ``logging`` configures structlog; ``hooks`` implements the hooks
of the client and the informers, which themselves import neither.
"""
