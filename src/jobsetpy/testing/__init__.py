"""Public test kit: a fake API server over real HTTP, builders, and helpers for tests.

No production module imports it.
"""

from jobsetpy.extras import require as _require

_require("jobsetpy.testing", "runtime")

from jobsetpy.api.schema import crd_of as crd_of
from jobsetpy.testing._builders import JobBuilder as JobBuilder
from jobsetpy.testing._builders import JobSetBuilder as JobSetBuilder
from jobsetpy.testing._builders import PodBuilder as PodBuilder
from jobsetpy.testing._builders import make_job as make_job
from jobsetpy.testing._builders import make_jobset as make_jobset
from jobsetpy.testing._builders import make_pod as make_pod
from jobsetpy.testing._client import RecordingClient as RecordingClient
from jobsetpy.testing._eventually import eventually as eventually
from jobsetpy.testing._running import VirtualClock as VirtualClock
from jobsetpy.testing._running import VirtualTime as VirtualTime
from jobsetpy.testing._running import VirtualTimeLoop as VirtualTimeLoop
from jobsetpy.testing._running import running_manager as running_manager
from jobsetpy.testing._stores import decoded as decoded
from jobsetpy.testing._stores import store_of as store_of
from jobsetpy.testing._stores import store_writer_of as store_writer_of
from jobsetpy.testing.apiserver._answers import StatusError as StatusError
from jobsetpy.testing.apiserver._faults import Faults as Faults
from jobsetpy.testing.apiserver._faults import Rule as Rule
from jobsetpy.testing.apiserver._faults import Select as Select
from jobsetpy.testing.apiserver._faults import Target as Target
from jobsetpy.testing.apiserver._memory import MemoryTransport as MemoryTransport
from jobsetpy.testing.apiserver._patches import json_patch as json_patch
from jobsetpy.testing.apiserver._requests import Request as Request
from jobsetpy.testing.apiserver._requests import RequestLog as RequestLog
from jobsetpy.testing.apiserver._server import FakeApiServer as FakeApiServer
from jobsetpy.testing.apiserver._serving import ServedApi as ServedApi
from jobsetpy.testing.apiserver._serving import write_kubeconfig as write_kubeconfig
from jobsetpy.testing.apiserver._world import World as World
