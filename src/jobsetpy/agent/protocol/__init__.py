"""Protocol of restarts in place, as both modes of the agent follow it."""
