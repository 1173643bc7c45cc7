"""Gang scheduler: ungating, holding and binding of gangs, decided without I/O.

Terms: a *gang* is admitted (its pods are ungated), held (they have nodes, their binds wait) and
bound; *capacity* is what nodes have left. The engine reports events and executes the actions.
"""
