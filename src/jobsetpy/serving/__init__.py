"""Servers: HTTP with limits on clients, and the certificates of the servers.

``http`` is the single server of webhooks, extender, health and metrics; ``certificates`` keeps its
certificate valid. The users of this package define the responses.
"""
