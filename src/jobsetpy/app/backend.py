"""Backend of coscheduling for a manager: the configured one, if the cluster supports it."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.client import Client
from jobsetpy.errors import ApiError, RetryableApiError, TransportError
from jobsetpy.manager import Manager
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling import pod_group_writer
from jobsetpy.reconcilers.coscheduling.backends import (
    AUTO,
    COSCHEDULER,
    LABELS,
    PODGROUP,
    SchedulerFields,
)
from jobsetpy.reconcilers.coscheduling.coscheduler_watch import CoschedulerWatch
from jobsetpy.reconcilers.coscheduling.pod_groups import API_VERSION
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.serving.namespace import own_namespace

_WHY: Final = (
    f"the backend {PODGROUP!r} of coscheduling needs {API_VERSION} (feature gates GenericWorkload "
    "and GangScheduling of Kubernetes 1.36)"
)

_LOOK_S: Final = 5.0


@attrs.frozen
class Backend:
    """Support of gangs by a manager.

    Args:
        marks: scheduler fields of pods.
        not_served: reason why this is not the configured backend; "" if it is.
        coscheduler: observer of a coscheduler; ``None`` if none is watched.
    """

    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    not_served: str = ""
    coscheduler: CoschedulerWatch | None = None


async def choose_backend(manager: Manager, marks: SchedulerFields, features: Features) -> Backend:
    """Return the configured backend, as far as the cluster supports it.

    The manager starts even if the API server cannot be reached while a coscheduler is looked for:
    its observer's watch is retried as those of all caches are.

    Args:
        manager: not started yet; the coscheduler is in its namespace.
        marks: the configured backend.
        features: the feature gates.

    Raises:
        TransportError: the API server cannot be reached, and may not serve ``PodGroup``.
    """
    client = manager.replica_client
    if marks.backend == PODGROUP:
        return await _pod_groups_or_labels(client, marks)
    if not features.coscheduling or marks.backend not in {AUTO, COSCHEDULER}:
        return Backend(marks)
    namespace = own_namespace(outside=keys.SYSTEM_NAMESPACE)
    name = f"metadata.name={keys.COSCHEDULER_LEASE}"
    try:
        await client.list_page(Lease, namespace, field_selector=name, timeout_s=_LOOK_S)
    except (RetryableApiError, TransportError) as error:
        get_logger("manager").warning("the API server does not answer yet", error=str(error))
    except ApiError as error:
        # A cache that cannot be filled would keep the manager from starting.
        text = f"whether there is a coscheduler cannot be seen: {error}"
        get_logger("manager").warning("coscheduling", why=text)
        return Backend(marks, text if marks.backend == AUTO else "")
    return Backend(marks, coscheduler=CoschedulerWatch(manager, namespace, marks))


async def _pod_groups_or_labels(client: Client, marks: SchedulerFields) -> Backend:
    """Return the backend of ``PodGroup``; labels alone if the API server does not support it.

    This is checked once, when a manager starts: enabling the API needs a restart of the API server
    anyway. Pods that only have labels are scheduled one by one, which is better than not at all.
    """
    try:
        served = await pod_group_writer.are_served(client)
        why = "this API server does not serve it"
    except ApiError as error:
        served, why = False, f"it could not be found out whether this API server serves it: {error}"
    if served:
        return Backend(marks)
    text = f"{_WHY}, and {why}: pods of groups are labelled, and scheduled one by one"
    get_logger("manager").warning("coscheduling falls back to labels", why=text)
    return Backend(attrs.evolve(marks, backend=LABELS), text)
