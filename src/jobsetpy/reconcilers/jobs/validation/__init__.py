"""Validation of ReplicatedJobs, their volumes and the failure policy."""
