"""Webhooks of users: defaults and validation of objects.

The manager serves them on every replica, with the same server as JobSet's own webhooks. It also
creates and renews the certificate, and makes API servers trust it.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Literal, TypeVar

import attrs
import msgspec

from jobsetpy.api._wire import to_json
from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.structural_schema import cause
from jobsetpy.manager import Manager, WebhookServer
from jobsetpy.serving import review
from jobsetpy.serving.namespace import own_namespace
from jobsetpy.serving.review import ALLOWED, Answer, ReviewRequest
from jobsetpy.serving.webhook_settings import WebhookServerSettings

T = TypeVar("T")

Operation = Literal["CREATE", "UPDATE", "DELETE"]
_ABSENT: Final = object()


@attrs.frozen
class AdmissionRequest(Generic[T]):
    """Request to the API server that is to be admitted.

    Args:
        operation: one of the three operations.
        new: the object to be stored; ``None`` if it is to be deleted.
        old: the stored object; ``None`` if it is to be created.
        namespace: namespace of the object; "" for cluster-scoped kinds.
        name: name of the object; "" if the API server generates it.
        user: name of the requesting user.
        groups: groups of the user.
        dry_run: nothing is stored, so there must be no side effects.
    """

    operation: Operation
    new: T | None
    old: T | None
    namespace: str = ""
    name: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False


@attrs.frozen
class Invalid:
    """Reason for which an object is refused.

    Args:
        field: path of the field, such as ``spec.schedule``.
        message: the problem, and the expected value.
    """

    field: str
    message: str


@attrs.frozen
class Warn:
    """Warning to the user of an accepted object; may be truncated after 256 characters."""

    message: str


Verdict = Iterable[Invalid | Warn] | None
Validate = Callable[[AdmissionRequest[T]], Verdict | Awaitable[Verdict]]
Default = Callable[[T], T | Awaitable[T]]


@attrs.define(eq=False)
class Webhook(Generic[T]):
    """Defaults and validation of the objects of one class.

    ::

        def check(asked: rt.AdmissionRequest[Website]) -> Iterator[rt.Invalid]:
            if asked.new and asked.new.spec.replicas > 9:
                yield rt.Invalid("spec.replicas", "at most 9")

    An exception of either function makes the call fail, and ``failure_policy`` decides.

    Args:
        cls: class of the objects, your own or a slice of another kind; fields missing in it are
            preserved.
        default: returns the object with defaults, such as ``rt.evolve(obj, ...)``. Called on
            create and update; it must be idempotent.
        validate: returns problems and warnings; accepts if there are no problems. Both functions
            may be coroutine functions, and are called before anything is stored.
        operations: operations that are validated.
        failure_policy: whether the API server refuses (``Fail``) or continues (``Ignore``) if the
            webhook cannot be reached.
        timeout_s: time that the API server waits, 1 to 30 seconds.
        namespace_selector: as in a webhook configuration; for kinds of Kubernetes itself, the
            default excludes the system's namespace and the manager's own: their pods must be able
            to start.
        object_selector: as in a webhook configuration.

    Raises:
        ValueError: neither function is given, or an argument is invalid.
        TypeError: the class does not represent a kind.
    """

    cls: type[T]
    default: Default[T] | None = attrs.field(default=None, kw_only=True)
    validate: Validate[T] | None = attrs.field(default=None, kw_only=True)
    operations: Sequence[Operation] = attrs.field(
        default=("CREATE", "UPDATE"), converter=tuple, kw_only=True
    )
    failure_policy: Literal["Fail", "Ignore"] = attrs.field(default="Fail", kw_only=True)
    timeout_s: int = attrs.field(default=10, kw_only=True)
    namespace_selector: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True)
    object_selector: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True)
    resource: ResourceInfo = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Check the arguments."""
        self.resource = _resource_of(self.cls)
        if self.default is None and self.validate is None:
            msg = f"a webhook of {self.resource.kind} needs default=, validate=, or both"
            raise ValueError(msg)
        unknown = [each for each in self.operations if each not in {"CREATE", "UPDATE", "DELETE"}]
        if unknown or not self.operations:
            msg = f"operations are CREATE, UPDATE, DELETE, not {unknown or self.operations!r}"
            raise ValueError(msg)
        if not 1 <= self.timeout_s <= 30:
            raise ValueError(f"timeout_s must be between 1 and 30, not {self.timeout_s}")

    def path(self, verb: str) -> str:
        """Return the path of the webhook; ``verb`` is ``mutate`` or ``validate``."""
        at = self.resource
        return f"/{verb}-{at.group.replace('.', '-')}-{at.version}-{at.kind.lower()}"

    async def answer_mutate(self, request: ReviewRequest) -> Answer:
        """Return the patch that ``default`` results in."""
        assert self.default is not None, f"{self.cls.__name__} has no function for defaults"
        if request.operation not in {"CREATE", "UPDATE"}:
            return ALLOWED
        try:
            before = self._decoded(request.object)
        except msgspec.ValidationError as error:
            return self._undecodable(error)
        after = self.default(before)
        if inspect.isawaitable(after):
            after = await after
        if not isinstance(after, self.cls):
            raise TypeError(f"{self.default!r} has to return a {self.cls.__name__}, not {after!r}")
        wanted = carried_over(request.object, to_json(before), to_json(after))
        return Answer(patch=tuple(json_patch(request.object, wanted)))

    async def answer_validate(self, request: ReviewRequest) -> Answer:
        """Return the verdict of ``validate``."""
        assert self.validate is not None, f"{self.cls.__name__} has no function to validate"
        try:
            asked = self._asked(request)
        except msgspec.ValidationError as error:
            return self._undecodable(error)
        verdict = self.validate(asked)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        found = [*(verdict or ())]
        problems = [each for each in found if isinstance(each, Invalid)]
        if problems:
            causes = [cause("FieldValueInvalid", each.message, each.field) for each in problems]
            return review.invalid(self.resource, asked.name, causes)
        return Answer(warnings=[each.message for each in found if isinstance(each, Warn)])

    def _asked(self, request: ReviewRequest) -> AdmissionRequest[T]:
        new, old = request.object, request.old_object
        user = request.user_info
        return AdmissionRequest(
            operation=request.operation,  # type: ignore[arg-type] # as the API server writes it
            new=None if new is None else self._decoded(new),
            old=None if old is None else self._decoded(old),
            namespace=request.namespace,
            name=request.name,
            user=str(user.get("username", "")),
            groups=tuple(user.get("groups") or ()),
            dry_run=request.dry_run,
        )

    def _decoded(self, raw: Any) -> T:
        return msgspec.convert(raw, self.cls)

    def _undecodable(self, error: Exception) -> Answer:
        return review.undecodable(f"the object is no {self.resource.kind}: {error}")


class ServedWebhooks(WebhookServer):
    """Server of a manager's own webhooks; created by :func:`serve_webhooks`."""

    webhooks: tuple[Webhook[Any], ...]
    app: str


def serve_webhooks(
    manager: Manager,
    *webhooks: Webhook[Any],
    name: str,
    settings: WebhookServerSettings | None = None,
) -> ServedWebhooks:
    """Serve webhooks with ``manager``, whose readiness waits for them.

    ``jobsetpy webhooks MODULE:FUNCTION`` prints the manifests that register them.

    Args:
        manager: not started yet.
        webhooks: all webhooks of the process.
        name: name of the program; Service, Secret and configurations are named after it.
        settings: address and certificate; those of ``jobsetpy run`` when absent.

    Raises:
        ValueError: there are none, or two for one kind.
    """
    from jobsetpy.serving.webhook_certificates import certificate_manager  # 10 MB: cryptography

    if not webhooks:
        raise ValueError("serve_webhooks needs webhooks")
    counts = Counter(one.resource for one in webhooks)
    if twice := sorted(resource.kind for resource, count in counts.items() if count > 1):
        raise ValueError(f"two webhooks of {', '.join(twice)}: make one of them")
    settings = settings or manager.settings.webhooks
    settings = settings or WebhookServerSettings(namespace=own_namespace())
    settings = attrs.evolve(
        settings,
        service_name=settings.service_name or f"{name}-webhooks",
        secret_name=settings.secret_name or f"{name}-webhooks",
        mutating_configuration=name if any(one.default for one in webhooks) else "",
        validating_configuration=name if any(one.validate for one in webhooks) else "",
    )
    certificates = certificate_manager(manager.replica_client, settings, manager.clock)
    handlers = {
        **{one.path("mutate"): one.answer_mutate for one in webhooks if one.default},
        **{one.path("validate"): one.answer_validate for one in webhooks if one.validate},
    }
    served = ServedWebhooks(handlers, certificates, settings)
    served.webhooks, served.app = webhooks, name
    manager.add(served)
    manager.add_ready_check("webhooks", served.problems)
    return served


def _resource_of(cls: type[Any]) -> ResourceInfo:
    info = getattr(cls, "RESOURCE", None)
    if not isinstance(info, ResourceInfo):
        msg = f"{cls!r} stands for no kind: decorate it with runtime.resource and runtime.model"
        raise TypeError(msg)
    return info


def carried_over(raw: Any, before: Any, after: Any) -> Any:
    """Apply the change from ``before`` to ``after`` to ``raw``, preserving fields unknown to them.

    All three are JSON data. Items of a list that grew are compared by position, those of one that
    shrank by value.
    """
    if before == after:
        return raw
    if isinstance(before, Mapping) and isinstance(after, Mapping) and isinstance(raw, Mapping):
        out = dict(raw)
        for name in before.keys() - after.keys():
            out.pop(name, None)
        for name, value in after.items():
            out[name] = carried_over(out.get(name, _ABSENT), before.get(name), value)
        return out
    both = isinstance(before, list) and isinstance(after, list) and isinstance(raw, list)
    if both and len(raw) == len(before):
        if len(after) >= len(before):
            pairs = [*zip(raw, before, strict=True), *[(_ABSENT, None)] * (len(after) - len(raw))]
            return [carried_over(*pair, value) for pair, value in zip(pairs, after, strict=True)]
        return [raw[before.index(value)] if value in before else value for value in after]
    return after


def json_patch(old: Any, new: Any, path: str = "") -> Iterable[dict[str, Any]]:
    """Yield the JSON patch (RFC 6902) from ``old`` to ``new``; lists are replaced as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            below = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in new:
                yield {"op": "remove", "path": below}
            elif name not in old:
                yield {"op": "add", "path": below, "value": new[name]}
            else:
                yield from json_patch(old[name], new[name], below)
    elif old != new:
        yield {"op": "replace", "path": path, "value": new}
