"""Slices of kinds that only admission reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jobsetpy.api._wire import field, wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource


@wire
class ClientConfig:
    """Whom the API server trusts; base64."""

    ca_bundle: str | None = None


@wire
class Webhook:
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


@resource(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
@wire
class MutatingConfiguration:
    """Mutating webhooks."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


@resource(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)
@wire
class ValidatingConfiguration:
    """Validating webhooks."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


@resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
@wire
class StoredClaim:
    """A volume claim with its spec as the JSON it is."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = field(factory=dict)
