"""Controllers: watches fill a queue, and workers empty it through a reconciler.

Also provides expectations (tracking of own writes) and an event recorder for reconcilers.
"""

from jobsetpy.api.reconcile import Request, Result
from jobsetpy.controller._controller import DEFAULT_WORKERS, Controller
from jobsetpy.controller._event import Event
from jobsetpy.controller._expectations import Expectations
from jobsetpy.controller._handlers import EventHandler, enqueue_mapped, enqueue_owner, enqueue_self
from jobsetpy.controller._of_objects import controller_for
from jobsetpy.controller._reconcile import Reconciler
from jobsetpy.controller._recorder import EventLimits, EventRecorder
from jobsetpy.controller._runnable import Runnable
from jobsetpy.controller._watch import Watch

__all__ = [
    "DEFAULT_WORKERS",
    "Controller",
    "Event",
    "EventHandler",
    "EventLimits",
    "EventRecorder",
    "Expectations",
    "Reconciler",
    "Request",
    "Result",
    "Runnable",
    "Watch",
    "controller_for",
    "enqueue_mapped",
    "enqueue_owner",
    "enqueue_self",
]
