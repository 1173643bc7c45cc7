"""Validation of agents, of annotations about progress and about the pace of restarts."""
