"""Clusters: managers, nodes without kubelets, accounts, installations."""
