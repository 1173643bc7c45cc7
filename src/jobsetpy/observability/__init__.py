"""What operators see: metrics, log lines, and what connects the framework to both.

``metrics`` declares every metric; ``logging`` sets up structlog; ``hooks`` implements the hooks
of the client and the informers, which themselves import neither.
"""
