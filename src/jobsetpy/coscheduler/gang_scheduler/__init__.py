"""Gang scheduler: holding and binding of gangs, decided without I/O.

Terms: a *gang* is held (some of its pods have nodes, and their binds wait) and then bound. The
engine reports events and executes the actions.
"""
