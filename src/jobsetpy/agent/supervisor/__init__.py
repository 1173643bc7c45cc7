"""Supervisor mode: the agent is the container's first process and the worker's parent."""
