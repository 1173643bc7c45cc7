"""Admission: defaults and checks of JobSets, and places of their pods, as webhooks.

The rules are pure functions in ``jobsetpy.reconcilers``; this package answers the API server's
HTTPS requests with them.
"""

from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.admission._webhooks import setup

__all__ = ["WebhookSettings", "setup"]
