"""Manager: ordered start and stop of a process's controllers, endpoints, signals."""

from jobsetpy.controller import Runnable
from jobsetpy.manager._endpoints import Check
from jobsetpy.manager._leader import LeaderElectionSettings
from jobsetpy.manager._manager import Manager, ManagerSettings
from jobsetpy.manager._servers import ServerRunnable, WebhookServer
from jobsetpy.manager._shards import MOST_SHARDS, Shards

__all__ = [
    "MOST_SHARDS",
    "Check",
    "LeaderElectionSettings",
    "Manager",
    "ManagerSettings",
    "Runnable",
    "ServerRunnable",
    "Shards",
    "WebhookServer",
]
