"""The names a controller author needs: ``from jobsetpy import runtime as rt``.

Everything here is documented where it is defined. Names outside this module may move between
minor versions; these do not.
"""

from jobsetpy.api.meta import KubeObject, ObjectKey, ResourceInfo, key_of, resource
from jobsetpy.client import Client, connect
from jobsetpy.controller import (
    Controller,
    Event,
    EventHandler,
    EventRecorder,
    Expectations,
    Predicate,
    Reconciler,
    Request,
    Result,
    Runnable,
    Watch,
    all_of,
    any_of,
    enqueue_mapped,
    enqueue_owner,
    enqueue_self,
    generation_changed,
    labels_changed,
    not_,
)
from jobsetpy.errors import TerminalError
from jobsetpy.informers import BY_NAMESPACE, OWNER_UID, Index, SharedInformer, Store, Tally
from jobsetpy.manager import Manager, ManagerSettings

KubeClient = Client
"""Another name of ``Client``."""

__all__ = [
    "BY_NAMESPACE",
    "OWNER_UID",
    "Client",
    "Controller",
    "Event",
    "EventHandler",
    "EventRecorder",
    "Expectations",
    "Index",
    "KubeClient",
    "KubeObject",
    "Manager",
    "ManagerSettings",
    "ObjectKey",
    "Predicate",
    "Reconciler",
    "Request",
    "ResourceInfo",
    "Result",
    "Runnable",
    "SharedInformer",
    "Store",
    "Tally",
    "TerminalError",
    "Watch",
    "all_of",
    "any_of",
    "connect",
    "enqueue_mapped",
    "enqueue_owner",
    "enqueue_self",
    "generation_changed",
    "key_of",
    "labels_changed",
    "not_",
    "resource",
]
