"""Settings of the webhooks for JobSets and their pods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.coscheduling.coscheduler_watch import CoschedulerWatch
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
        gate_followers: hold a pod with exclusive placement whose leader has no node yet by a
            scheduling gate; otherwise it is rejected, and the Job controller retries.
        agent_image: image of the in-place restart agent, for JobSets that request its injection; ""
            rejects them.
        group_image: image with a shell, in which pods of a startup group wait (KEP-498).
        group_agent_image: image of the agent, which waits in its place; "" for the shell.
        injected_requests: resource requests of added containers, if the pod has any.
        injected_limits: their limits, if all containers of the pod have limits.
        pull_secret: name of a Secret in each namespace, for the images of added containers.
        marks: scheduler fields of new pods in gangs, including pods of other controllers.
        coscheduler: observed state of a coscheduler; ``None`` if none is watched.
    """

    namespace: str = attrs.field(factory=partial(own_namespace, outside=keys.SYSTEM_NAMESPACE))
    authority_name: str = keys.AUTHORITY_NAME
    service_name: str = "jobset-webhook-service"
    secret_name: str = "jobset-webhook-server-cert"  # noqa: S105 - a name, not a secret
    mutating_configuration: str = "jobset-mutating-webhook-configuration"
    validating_configuration: str = "jobset-validating-webhook-configuration"
    features: Features = attrs.field(factory=Features)
    gate_followers: bool = True
    agent_image: str = ""
    group_image: str = keys.GROUP_IMAGE
    group_agent_image: str = ""
    injected_requests: Mapping[str, str] = attrs.field(factory=dict)
    injected_limits: Mapping[str, str] = attrs.field(factory=dict)
    pull_secret: str = ""
    marks: SchedulerFields = attrs.field(factory=SchedulerFields)
    coscheduler: CoschedulerWatch | None = None

    @property
    def injected(self) -> ContainerDefaults:
        """Settings of all containers that admission adds."""
        return ContainerDefaults(
            requests=self.injected_requests,
            limits=self.injected_limits,
            pull_secret=self.pull_secret,
        )

    @property
    def barrier(self) -> GroupBarrier:
        """Settings of the barrier of startup groups."""
        return GroupBarrier(
            shell_image=self.group_image,
            agent_image=self.group_agent_image,
            settings=self.injected,
        )
