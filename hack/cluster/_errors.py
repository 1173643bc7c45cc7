"""The exception of this package, in a module that all others can import."""


class ClusterError(Exception):
    """An error that the user can fix; the message says how."""
