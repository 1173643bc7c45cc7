"""Settings of the webhooks for JobSets and their pods."""

from __future__ import annotations

from functools import partial

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backend_watch import BackendWatch
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.restart_in_place.injection.effective import ClusterDefaults
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.webhook_settings import WebhookServerSettings


@attrs.frozen(kw_only=True)
class WebhookSettings(WebhookServerSettings):
    """Settings of the webhook server, in addition to those common to all such servers.

    Args:
        features: enabled feature gates.
        agent_image: image of the in-place restart agent, for JobSets that request its injection; ""
            rejects them.
        barrier: images in which pods of a startup group wait (KEP-498).
        defaults: annotations for JobSets that do not state them.
        injected: settings of all containers that admission adds, those of the barrier included.
        marks: scheduler fields of new pods in gangs, including pods of other controllers.
        backend: observed schedulers of gangs; ``None`` if none is watched.
    """

    namespace: str = attrs.field(factory=partial(own_namespace, outside=keys.SYSTEM_NAMESPACE))
    authority_name: str = keys.AUTHORITY_NAME
    service_name: str = "jobset-webhook-service"
    secret_name: str = "jobset-webhook-server-cert"  # noqa: S105 - a name, not a secret
    mutating_configuration: str = "jobset-mutating-webhook-configuration"
    validating_configuration: str = "jobset-validating-webhook-configuration"
    features: Features = attrs.field(factory=Features)
    agent_image: str = ""
    barrier: GroupBarrier = attrs.field(factory=GroupBarrier)
    defaults: ClusterDefaults = attrs.field(factory=ClusterDefaults)
    injected: ContainerDefaults = attrs.field(factory=ContainerDefaults)
    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    backend: BackendWatch | None = None
