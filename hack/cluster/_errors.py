"""The one exception this package raises on purpose, in a module that all others can import."""


class ClusterError(Exception):
    """Something the person at the keyboard can act on; the message says what."""
