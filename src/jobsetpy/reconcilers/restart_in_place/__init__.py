"""Restart in place (KEP-467): all workers of a JobSet restart inside their existing pods.

Terms: an *epoch* is the number of the restart that a pod's agent has reached; it is *synced* once
every pod has reported it, and *deprecated* once one pod has reported a later one. The *barrier*
holds workers back until the epoch is synced, then it is *lifted*. The *budget* (``maxRestarts``) is
charged with restarts. The *ledger* counts pods by epoch, event by event.
"""
