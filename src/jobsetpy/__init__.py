"""JobSet controller with restart in place, and the controller runtime it is built on.

This module contains only the version, so that ``import jobsetpy.agent`` stays cheap.
"""

__version__ = "0.2.0"
