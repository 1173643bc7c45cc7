"""Which backend of coscheduling a manager works with: what was asked for, if the cluster has it."""

from __future__ import annotations

from typing import Final

import attrs

from jobsetpy.client import Client
from jobsetpy.domain.coscheduling.backends import LABELS, PODGROUP, PodMarkers
from jobsetpy.domain.coscheduling.podgroups import API_VERSION
from jobsetpy.errors import ApiError
from jobsetpy.observability.logging import get_logger
from jobsetpy.reconcilers.coscheduling import pod_groups_are_served

_WHY: Final = (
    f"the backend {PODGROUP!r} of coscheduling needs {API_VERSION} (feature gates GenericWorkload "
    "and GangScheduling of Kubernetes 1.36)"
)


@attrs.frozen
class Backend:
    """What a manager does for groups.

    Args:
        marks: what pods are given.
        not_served: why that is less than was asked for; "" if it is not.
    """

    marks: PodMarkers = attrs.field(factory=PodMarkers)
    not_served: str = ""


async def choose_backend(client: Client, marks: PodMarkers) -> Backend:
    """The backend that was asked for; labels alone where the API server lacks what it needs.

    It is asked once, when a manager starts: turning the API on takes a restart of the API server
    anyway. Pods that only have labels are scheduled one by one, which is better than not at all.

    Raises:
        TransportError: the API server cannot be reached.
    """
    if marks.backend != PODGROUP:
        return Backend(marks)
    try:
        served = await pod_groups_are_served(client)
        why = "this API server does not serve it"
    except ApiError as error:
        served, why = False, f"it could not be found out whether this API server serves it: {error}"
    if served:
        return Backend(marks)
    text = f"{_WHY}, and {why}: pods of groups are labelled, and scheduled one by one"
    get_logger("manager").warning("coscheduling falls back to labels", why=text)
    return Backend(attrs.evolve(marks, backend=LABELS), text)
