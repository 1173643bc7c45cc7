"""Admission webhooks: defaulting and validation of JobSets, and placement of their pods.

The rules are pure functions in ``jobsetpy.reconcilers``; this package uses them to answer the API
server's HTTPS requests.
"""

from jobsetpy.admission._settings import WebhookSettings as WebhookSettings
from jobsetpy.admission._webhooks import setup as setup
