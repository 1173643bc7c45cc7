"""Coscheduling: gangs on played nodes, and a coscheduler in a process of its own."""
