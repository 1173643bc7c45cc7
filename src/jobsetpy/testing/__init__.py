"""The public test kit: a fake API server over real HTTP, builders, and helpers for tests.

No production module imports it.
"""

from jobsetpy.testing._answers import StatusError
from jobsetpy.testing._faults import Faults, Rule
from jobsetpy.testing._requests import Request, RequestLog
from jobsetpy.testing._server import FakeApiServer
from jobsetpy.testing._world import World

__all__ = [
    "FakeApiServer",
    "Faults",
    "Request",
    "RequestLog",
    "Rule",
    "StatusError",
    "World",
]
