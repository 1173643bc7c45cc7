"""Pods on unreachable nodes: when a JobSet gives them up.

Terms: a node is *unreachable* once Kubernetes taints it so; the *deadline* is the time until its
pods are deleted by force.
"""
