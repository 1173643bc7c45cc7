"""Controllers: watches fill a queue, and workers empty it through a reconciler.

Also provides expectations (tracking of own writes) and an event recorder for reconcilers.
"""

from jobsetpy.api.reconcile import Request as Request
from jobsetpy.api.reconcile import Result as Result
from jobsetpy.controller._controller import DEFAULT_WORKERS as DEFAULT_WORKERS
from jobsetpy.controller._controller import Controller as Controller
from jobsetpy.controller._event import Event as Event
from jobsetpy.controller._expectations import Expectations as Expectations
from jobsetpy.controller._handlers import EventHandler as EventHandler
from jobsetpy.controller._handlers import enqueue_mapped as enqueue_mapped
from jobsetpy.controller._handlers import enqueue_owner as enqueue_owner
from jobsetpy.controller._handlers import enqueue_self as enqueue_self
from jobsetpy.controller._of_objects import controller_for as controller_for
from jobsetpy.controller._reconcile import Reconciler as Reconciler
from jobsetpy.controller._recorder import EventLimits as EventLimits
from jobsetpy.controller._recorder import EventRecorder as EventRecorder
from jobsetpy.controller._runnable import Runnable as Runnable
from jobsetpy.controller._watch import Watch as Watch
