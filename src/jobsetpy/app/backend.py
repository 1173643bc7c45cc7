"""Observer of the schedulers of gangs, for a manager."""

from __future__ import annotations

from typing import Any, Final

from jobsetpy.api import keys
from jobsetpy.api.coordination import Lease
from jobsetpy.api.scheduling import SchedulingPodGroup, SchedulingWorkload
from jobsetpy.client import Client
from jobsetpy.errors import ApiError, NotFoundError, RetryableApiError, TransportError
from jobsetpy.manager import Manager
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
from jobsetpy.reconcilers.coscheduling.backends import (
    AUTO,
    COSCHEDULER,
    PODGROUP,
    SchedulerFields,
)
from jobsetpy.reconcilers.coscheduling.native import NativeWatch
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.serving.namespace import own_namespace

_LOOK_S: Final = 5.0


async def watch_backend(
    manager: Manager, marks: SchedulerFields, features: Features
) -> BackendWatch:
    """Return the observer of what the configured backend needs.

    The manager starts even if the API server cannot be reached: watches are retried as those of all
    caches are. What it may not list is not watched, since a cache that cannot be filled would keep
    it from starting; JobSets that need it report the reason.

    Args:
        manager: not started yet; the coscheduler is in its namespace.
        marks: the configured backend.
        features: the feature gates.
    """
    client, problems = manager.replica_client, []
    native, namespace = None, None
    if features.coscheduling and marks.backend in {AUTO, PODGROUP}:
        homes = sorted(manager.settings.namespaces) or [""]
        found = [
            await _problem(client, kind, home)
            for kind in (SchedulingPodGroup, SchedulingWorkload)
            for home in homes
        ]
        problems += list(filter(None, found))[:1]
        native = None if problems else NativeWatch(manager)
    if features.coscheduling and marks.backend in {AUTO, COSCHEDULER}:
        own = own_namespace(outside=keys.SYSTEM_NAMESPACE)
        name = f"metadata.name={keys.COSCHEDULER_LEASE}"
        problem = await _problem(client, Lease, own, field_selector=name)
        namespace = None if problem else own
        problems += [problem] if problem else []
    why = "; ".join(problems)
    if why:
        get_logger("manager").warning("coscheduling", why=why)
    return BackendWatch(manager, namespace, marks, native, why)


async def _problem(client: Client, kind: type[Any], namespace: str, **selector: str) -> str:
    """Return the reason for which a kind may not be listed; "" if it may, or cannot be said now."""
    try:
        await client.list_page(kind, namespace, limit=1, timeout_s=_LOOK_S, **selector)
    except NotFoundError:
        pass  # not served now
    except (RetryableApiError, TransportError) as error:
        get_logger("manager").warning("the API server does not answer yet", error=str(error))
    except ApiError as error:
        return f"{kind.RESOURCE.plural} cannot be seen: {error}"
    return ""
