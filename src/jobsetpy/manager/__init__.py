"""Manager: ordered start and stop of a process's controllers, endpoints, signals."""

from jobsetpy.controller import Runnable as Runnable
from jobsetpy.manager._endpoints import Check as Check
from jobsetpy.manager._leader import LeaderElectionSettings as LeaderElectionSettings
from jobsetpy.manager._manager import Manager as Manager
from jobsetpy.manager._manager import ManagerSettings as ManagerSettings
from jobsetpy.manager._servers import ServerRunnable as ServerRunnable
from jobsetpy.manager._servers import WebhookServer as WebhookServer
from jobsetpy.manager._shards import MOST_SHARDS as MOST_SHARDS
from jobsetpy.manager._shards import Shards as Shards
