"""Warm-ups: the preparations of a framework's first step, done in a standby process.

Each module has one function, ``warm``, with ``has_accelerator``: True if the machine has one. It
imports its framework only inside that function, and nothing of jobsetpy: the worker image's own
Python (3.8 or newer) runs it from the agent's folder. It does not change random state,
configuration or devices. Called by ``agent/supervisor/standby/learned.py``.
"""
