"""Which controllers make up the JobSet manager."""

from __future__ import annotations

from typing import Any

from jobsetpy.app.backend import Backend
from jobsetpy.domain.features import Features
from jobsetpy.manager import Manager
from jobsetpy.reconcilers import (
    coscheduling,
    jobs,
    leader_pods,
    metrics,
    pod_epochs,
    pod_placement,
)


def add_jobset_controllers(
    manager: Manager,
    features: Features | None = None,
    *,
    webhooks: bool = False,
    group_rbac: bool = False,
    stalled_after_s: float = 60.0,
    backend: Backend | None = None,
) -> None:
    """Add the JobSet controllers to ``manager``.

    Args:
        manager: not started yet.
        features: which gates are on; all of them when absent.
        group_rbac: whether pods of a group are given the right to watch their group's ConfigMap.
        stalled_after_s: after this time a closed barrier names the pods that hold it.
        backend: of coscheduling; labels alone when absent.
        webhooks: whether the pod webhook is served: only then is a misplaced pod an accident.
    """
    features = features or Features()
    backend = backend or Backend()
    manager.add_metrics(metrics.REGISTRY)
    jobs.setup(
        manager,
        jobs.JobsSettings(features=features, group_rbac=group_rbac, marks=backend.marks),
    )
    leader_pods.setup(manager, leader_pods.LeaderPodsSettings(features=features))
    if features.coscheduling:
        coscheduling.setup(
            manager,
            coscheduling.CoschedulingSettings(
                features=features, marks=backend.marks, not_served=backend.not_served
            ),
        )
    if features.in_place_restart:
        pod_epochs.setup(manager, pod_epochs.PodEpochsSettings(stalled_after_s=stalled_after_s))
    pod_placement.setup(manager, pod_placement.PlacementSettings(repair=webhooks))


def add_webhooks(manager: Manager, **settings: Any) -> None:
    """Have ``manager`` serve the admission webhooks as well.

    Args:
        manager: not started yet.
        settings: those of ``admission.WebhookSettings``.
    """
    from jobsetpy import admission  # 10 MB that a manager without webhooks need not carry

    admission.setup(manager, admission.WebhookSettings(**settings))
