"""Injection of the agent into the pods of a JobSet that asks for it."""
