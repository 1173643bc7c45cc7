"""Injection of the agent into the pods of a JobSet that requests it."""
