"""Coscheduling: gangs on played nodes, and a coscheduler in its own process."""
