"""One process's controllers: ordered start and stop, endpoints, signals."""

from jobsetpy.manager._leader import LeaderElectionSettings
from jobsetpy.manager._manager import Manager, ManagerSettings, Runnable
from jobsetpy.manager._servers import Check, parse_address

__all__ = [
    "Check",
    "LeaderElectionSettings",
    "Manager",
    "ManagerSettings",
    "Runnable",
    "parse_address",
]
