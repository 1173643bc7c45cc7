"""JobSet controller with in-place restart, and the controller runtime it is built on.

This module holds the version only, so that ``import jobsetpy.agent`` stays cheap.
"""

__version__ = "0.1.0"
