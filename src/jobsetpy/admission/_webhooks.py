"""Setup of the webhooks in a manager."""

from __future__ import annotations

from jobsetpy import runtime
from jobsetpy.admission._handlers import (
    LEADERS,
    JobSetHandlers,
    PodHandlers,
    routes,
)
from jobsetpy.admission._settings import WebhookSettings
from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.core import LabelledNode
from jobsetpy.api.jobset import ChildPod
from jobsetpy.manager import WebhookServer
from jobsetpy.reconcilers.placement.admission import LEADER_INDEX
from jobsetpy.serving.webhook_certificates import certificate_manager


def setup(manager: runtime.Manager, settings: WebhookSettings | None = None) -> WebhookServer:
    """Add the webhooks to ``manager``; its readiness waits for them.

    Args:
        manager: not started yet.
        settings: settings of the webhooks; defaults if ``None``.
    """
    settings = settings or WebhookSettings()
    # With sharding, each manager answers for all JobSets, from leaders only, which are few.
    leaders = keys.JOBSET_NAME
    if manager.settings.shards is not None:
        leaders = f"{leaders},{keys.COMPLETION_INDEX_LABEL}={LEADER_INDEX}"
    pods = manager.informer(ChildPod, label_selector=leaders, whole=True, indexes=[LEADERS])
    nodes = manager.informer(LabelledNode)
    jobs = manager.informer(Job, label_selector=keys.JOBSET_NAME, whole=True)
    handlers = routes(
        JobSetHandlers(manager.replica_client, settings, nodes=nodes.store),
        PodHandlers(
            settings,
            pods=pods.store,
            nodes=nodes.store,
            jobs=jobs.store,
        ),
    )
    certificates = certificate_manager(manager.replica_client, settings, manager.clock)
    webhooks = WebhookServer(handlers, certificates, settings)
    manager.add(webhooks)
    manager.add_ready_check("webhooks", webhooks.problems)
    return webhooks
