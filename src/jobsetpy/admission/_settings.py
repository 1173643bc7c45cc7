"""What the webhooks of JobSets and their pods do, and how they are reached."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.backends import CoschedulerStatus, SchedulerFields
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.webhook_settings import WebhookServerSettings


@attrs.frozen(kw_only=True)
class WebhookSettings(WebhookServerSettings):
    """Settings of the webhook server, besides those that every such server has.

    Args:
        features: which gates are on.
        gate_followers: whether a pod under exclusive placement whose leader has no node yet is held
            by a scheduling gate; else it is refused, and the Job controller tries again.
        agent_image: of the in-place restart agent, for JobSets that ask to have it added; "" has
            them refused.
        group_image: with a shell, in which pods of a group wait for each other (KEP-498).
        group_agent_image: the agent, by which they wait in its place; "" for the shell.
        injected_requests: resources that added containers request, where the pod requests any.
        injected_limits: their limits, where all containers of the pod have limits.
        pull_secret: name of a Secret, in each namespace, for the images of added containers.
        marks: what new pods of coscheduling's groups are given; others may have made them.
        coscheduler: what is seen of one, if one is looked for.
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
    coscheduler: CoschedulerStatus | None = None

    @property
    def injected(self) -> ContainerDefaults:
        """Settings of all containers that admission adds."""
        return ContainerDefaults(
            requests=self.injected_requests,
            limits=self.injected_limits,
            pull_secret=self.pull_secret,
        )
