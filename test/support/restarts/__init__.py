"""Restarts in place: models of the protocol, and scenarios on real pods."""
