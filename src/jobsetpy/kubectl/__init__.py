"""``kubectl jobset``: what people ask of JobSets on the command line.

Each command has a module, imported when it is chosen: the plugin starts for every command.
Reads and writes go through the client that the agent has, with the user's own rights.
"""
