"""Where the rules meet the cluster: look at the caches, have a plan made, carry it out.

Each reconciler has one module, with ``setup(manager)`` to wire it. They do not know each other.
"""
