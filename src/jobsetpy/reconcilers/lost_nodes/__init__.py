"""Deletion of pods on unreachable nodes after a deadline.

Terms: a node is *unreachable* once Kubernetes has added that taint; the *deadline* is the time
until its pods are deleted by force.
"""
