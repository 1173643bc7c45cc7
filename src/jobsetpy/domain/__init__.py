"""The rules of JobSets as pure functions: no I/O, no clock, no event loop.

Each policy has a file of its own. ``planner.plan_jobs`` puts them in the order in which they are
decided; ``epochs.decide_epochs`` is the rule of restarts in place. What they return are frozen
values that a reconciler carries out.
"""
