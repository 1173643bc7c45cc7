"""Slices of the kinds that configure webhooks and the authorities that API servers trust."""

from __future__ import annotations

from typing import ClassVar

from jobsetpy.api._wire import wire
from jobsetpy.api.meta import ObjectMeta, ResourceInfo, resource

_ADMISSION = "admissionregistration.k8s.io"
_DEFINITIONS = "apiextensions.k8s.io"


@wire
class ClientConfig:
    """Authorities that the API server trusts; base64."""

    ca_bundle: str | None = None


@wire
class Webhook:
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


@resource(
    _ADMISSION,
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
    _ADMISSION,
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


@wire
class ConversionWebhook:
    """Conversion webhook of a CRD."""

    client_config: ClientConfig = ClientConfig()


@wire
class Conversion:
    """Conversion between the versions of a CRD."""

    strategy: str = ""
    webhook: ConversionWebhook | None = None


@wire
class DefinitionSpec:
    """Part of a CRD's spec that is read."""

    conversion: Conversion = Conversion()


@resource(
    _DEFINITIONS, "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
@wire
class Definition:
    """CRD with a conversion."""

    RESOURCE: ClassVar[ResourceInfo]
    metadata: ObjectMeta = ObjectMeta()
    spec: DefinitionSpec = DefinitionSpec()
