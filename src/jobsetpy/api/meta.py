"""Common parts of Kubernetes objects: identity, metadata, and the name of the REST resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import attrs

from jobsetpy.api._wire import field, wire

T = TypeVar("T")


class ObjectKey(NamedTuple):
    """Namespace and name; the namespace is "" for cluster-scoped objects.

    A tuple, since it is hashed and compared several times at each event.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        """``namespace/name`` for logs."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@attrs.frozen
class ResourceInfo:
    """REST resource of a kind.

    Args:
        group: API group, "" for the core group.
        version: API version, such as ``v1``.
        kind: name of the kind, such as ``Pod``.
        plural: plural name in the URL, such as ``pods``.
        namespaced: true if objects are namespaced.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Value of an object's ``apiVersion``: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path of a collection or object.

        Args:
            namespace: namespace; ``None`` or "" for all namespaces or a cluster-scoped kind.
            name: name of the object; ``None`` for the collection.
            subresource: subresource, such as ``status``.
        """
        parts = ["/api" if not self.group else f"/apis/{self.group}", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


@wire
class OwnerReference:
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@wire
class ObjectMeta:
    """The part of metav1.ObjectMeta that controllers read."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner reference with ``controller: true``, of which there is at most one."""
        return controller_of(self.owner_references)


def version_number(resource_version: str) -> int:
    """Return a resourceVersion as a number, which increases within a kind (KEP-5504); else 0."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else 0


def controller_of(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """Return the owner reference with ``controller: true``, or ``None``."""
    for reference in references:
        if reference.controller:
            return reference
    return None


class Meta(Protocol):
    """Metadata that the framework reads of any object; a slice may have less than ObjectMeta."""

    @property
    def name(self) -> str:
        """Name within the namespace."""

    @property
    def namespace(self) -> str:
        """Namespace; "" for cluster-scoped objects."""

    @property
    def uid(self) -> str:
        """Unique identity, different for successive objects of the same name."""

    @property
    def resource_version(self) -> str:
        """Version, which changes with every write."""


@runtime_checkable
class KubeObject(Protocol):
    """Object of a wire class that represents a kind of the API, completely or as a slice."""

    RESOURCE: ClassVar[ResourceInfo]

    @property
    def metadata(self) -> Meta:
        """Identity and version."""


def key_of(obj: KubeObject) -> ObjectKey:
    """Return namespace and name of any object."""
    meta = obj.metadata
    return ObjectKey(meta.namespace, meta.name)


def resource(
    group: str, version: str, kind: str, plural: str, *, namespaced: bool = True
) -> Callable[[type[T]], type[T]]:
    """Class decorator that sets the REST resource of a wire class."""
    info = ResourceInfo(group, version, kind, plural, namespaced)

    def mark(cls: type[T]) -> type[T]:
        cls.RESOURCE = info  # type: ignore[attr-defined]
        return cls

    return mark


@wire
class Condition:
    """metav1.Condition. Also fits conditions of Jobs and Pods, which have fewer fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = field(default="", always=True)
    last_transition_time: datetime | None = None
    observed_generation: int = 0


def condition_true(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition of a type if its status is True, else ``None``."""
    for condition in conditions:
        if condition.type == kind and condition.status == "True":
            return condition
    return None


def owner_reference_to(owner: KubeObject) -> dict[str, Any]:
    """Return an owner reference to ``owner`` as JSON: its controller, blocking its deletion."""
    return {
        "apiVersion": owner.RESOURCE.api_version,
        "kind": owner.RESOURCE.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
