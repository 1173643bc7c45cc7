"""The worker's output: copied through pipes of the agent, and matched in a process of its own."""
