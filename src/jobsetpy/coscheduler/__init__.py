"""Coscheduling beside the stock kube-scheduler: gates are lifted, and binds held, by groups.

``gang_scheduler`` decides, without I/O; this package watches pods, writes gates and binds, and
answers the scheduler over mutual TLS. Certificates are handled as the webhooks' are.
"""

from jobsetpy.coscheduler._settings import CoschedulerSettings
from jobsetpy.coscheduler._setup import Coscheduler, setup

__all__ = ["Coscheduler", "CoschedulerSettings", "setup"]
