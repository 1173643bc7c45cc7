"""Features of JobSets, one room each; ``rules`` and ``execution`` are what they share.

A reconciler observes, has its room's ``plan`` decide, and executes the plan. Plans, ledgers,
tallies and validation are pure: no I/O, no clock, no event loop.
"""
