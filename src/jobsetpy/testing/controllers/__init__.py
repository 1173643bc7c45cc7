"""Fake controllers of Kubernetes."""
