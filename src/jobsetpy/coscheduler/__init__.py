"""Coscheduler next to the stock kube-scheduler: gates are removed and binds held per gang.

``gang_scheduler`` decides, without I/O; this package watches pods, writes gates and binds, and
answers the scheduler over mutual TLS. Certificates are handled like those of the webhooks.
"""

from jobsetpy.coscheduler._settings import CoschedulerSettings as CoschedulerSettings
from jobsetpy.coscheduler._setup import Coscheduler as Coscheduler
from jobsetpy.coscheduler._setup import setup as setup
