"""What stands around the planner of coscheduling: the pods it sees, and the writes it asks for.

Its servers, and the command that runs it, are not here yet.
"""
