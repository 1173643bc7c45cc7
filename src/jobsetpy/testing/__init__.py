"""Public test kit: a fake API server over real HTTP, builders, and helpers for tests.

No production module imports it.
"""

from jobsetpy.extras import require

require("jobsetpy.testing", "runtime")

from jobsetpy.testing._builders import (
    JobBuilder,
    JobSetBuilder,
    PodBuilder,
    make_job,
    make_jobset,
    make_pod,
)
from jobsetpy.testing._client import RecordingClient
from jobsetpy.testing._eventually import eventually
from jobsetpy.testing._running import VirtualClock, VirtualTime, VirtualTimeLoop, running_manager
from jobsetpy.testing._stores import decoded, store_of, store_writer_of
from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._faults import Faults, Rule, Select, Target
from jobsetpy.testing.apiserver._memory import MemoryTransport
from jobsetpy.testing.apiserver._patches import json_patch
from jobsetpy.testing.apiserver._requests import Request, RequestLog
from jobsetpy.testing.apiserver._server import FakeApiServer
from jobsetpy.testing.apiserver._serving import ServedApi, write_kubeconfig
from jobsetpy.testing.apiserver._world import World
from jobsetpy.testing.controllers._jobcontroller import FakeJobController

__all__ = [
    "FakeApiServer",
    "FakeJobController",
    "Faults",
    "JobBuilder",
    "JobSetBuilder",
    "MemoryTransport",
    "PodBuilder",
    "RecordingClient",
    "Request",
    "RequestLog",
    "Rule",
    "Select",
    "ServedApi",
    "StatusError",
    "Target",
    "VirtualClock",
    "VirtualTime",
    "VirtualTimeLoop",
    "World",
    "decoded",
    "eventually",
    "json_patch",
    "make_job",
    "make_jobset",
    "make_pod",
    "running_manager",
    "store_of",
    "store_writer_of",
    "write_kubeconfig",
]
