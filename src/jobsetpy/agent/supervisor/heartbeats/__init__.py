"""Heartbeats between the agents of a group, and the fence that relies on them."""
