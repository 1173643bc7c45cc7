"""Warm-ups: what a framework prepares in its first step, done in a standby process.

Each module has one function, ``warm()``, imports its framework in there only, and nothing of
jobsetpy: the worker image's own Python (3.8 or newer) runs it from the agent's folder. It leaves
random numbers, configuration and devices as they were. ``agent/supervisor/standby/learned.py``
calls it.
"""
