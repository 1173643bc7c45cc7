"""Rules that the features share, as pure functions and frozen values.

Each feature's package has the same modules: ``settings``, ``validation`` (rules of admission),
``plan`` (the decision, pure), ``ledger`` or ``tally`` (counters kept by events), ``reconciler``
(observe, plan, execute). No module here does I/O, reads a clock or needs an event loop.

Terms: an *attempt* is the number of a JobSet's restarts that its Jobs carry as a label; a *plan* is
everything that one reconcile does; *conditions* and *status draft* are how a plan changes a status.
"""
