"""Coscheduling: gangs of pods that are bound together or not at all.

Terms: a *gang* is a set of pods that need each other; a *backend* is the program that schedules
gangs: the coscheduler of this project, the API server's own ``PodGroup`` objects, or none.
"""
