"""What every Kubernetes object has: identity, metadata, and the name of its REST resource."""

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
    """Where a kind lives in the REST API.

    Args:
        group: API group, "" for the core group.
        version: such as ``v1``.
        kind: such as ``Pod``.
        plural: such as ``pods``, as in the URL.
        namespaced: whether objects live in a namespace.
    """

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of a collection or object.

        Args:
            namespace: ``None`` or "" for all namespaces or a cluster-scoped kind.
            name: ``None`` for the collection.
            subresource: such as ``status``.
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
    """A resourceVersion as a number; they grow within a kind (KEP-5504). 0 for any other text."""
    return int(resource_version) if resource_version.isascii() and resource_version.isdigit() else 0


def controller_of(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """The managing controller among owner references, or ``None``."""
    for reference in references:
        if reference.controller:
            return reference
    return None


class Meta(Protocol):
    """What the framework reads of any object's metadata; slices may hold less than ObjectMeta."""

    @property
    def name(self) -> str:
        """Name within the namespace."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace; "" for cluster-scoped objects."""
        ...

    @property
    def uid(self) -> str:
        """Differs between objects that had the same name one after the other."""
        ...

    @property
    def resource_version(self) -> str:
        """Changes with every write."""
        ...


@runtime_checkable
class KubeObject(Protocol):
    """A wire class that stands for a kind of the API: a whole kind or a slice of it."""

    RESOURCE: ClassVar[ResourceInfo]

    @property
    def metadata(self) -> Meta:
        """Identity and version."""
        ...


def key_of(obj: KubeObject) -> ObjectKey:
    """Namespace and name of any object."""
    meta = obj.metadata
    return ObjectKey(meta.namespace, meta.name)


def resource(
    group: str, version: str, kind: str, plural: str, *, namespaced: bool = True
) -> Callable[[type[T]], type[T]]:
    """Class decorator that says which REST resource a wire class is a model of."""
    info = ResourceInfo(group, version, kind, plural, namespaced)

    def mark(cls: type[T]) -> type[T]:
        cls.RESOURCE = info  # type: ignore[attr-defined]
        return cls

    return mark


@wire
class Condition:
    """metav1.Condition. Also fits Job and Pod conditions, which lack some fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = field(default="", always=True)
    last_transition_time: datetime | None = None
    observed_generation: int = 0


def condition_true(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of that type if its status is True."""
    for condition in conditions:
        if condition.type == kind and condition.status == "True":
            return condition
    return None


def owner_reference_to(owner: KubeObject) -> dict[str, Any]:
    """A controller owner reference to ``owner``, as JSON: controller, blocking its deletion."""
    return {
        "apiVersion": owner.RESOURCE.api_version,
        "kind": owner.RESOURCE.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
