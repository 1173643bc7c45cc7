"""Servers: HTTP with limits on clients, and the certificates they serve with.

``http`` is the one server of webhooks, extender, health and metrics; ``certificates`` keeps its
certificate good. Who is answered with what is up to those that use them.
"""
