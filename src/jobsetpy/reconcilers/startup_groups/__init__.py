"""Startup groups (KEP-498): pods that wait for each other before their workers start.

Terms: a *startup group* is all pods of a JobSet, of one ReplicatedJob or of a Job that start
together; its *release* is the moment at which all have started and may continue.
"""
