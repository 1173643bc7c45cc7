"""Admission webhooks: called for each write that matches a configuration in the world.

Kubernetes documents, "Dynamic Admission Control". Mutating webhooks are called one after the other
in the order of their configurations' names, and then all validating ones. ``matchConditions`` are
not evaluated (they count as true), and nothing is called twice (``reinvocationPolicy``).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import copy
import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import aiohttp
import attrs
import msgspec

from jobsetpy.api.label_selectors import LabelSelector
from jobsetpy.api.meta import ObjectKey
from jobsetpy.testing.apiserver import _patches
from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._kinds import Json
from jobsetpy.testing.apiserver._storage import Collection, Storage

GROUP: Final = "admissionregistration.k8s.io"
_PLURALS: Final = {True: "mutatingwebhookconfigurations", False: "validatingwebhookconfigurations"}

Handler = Callable[[str, Json], Awaitable[Mapping[str, Any]]]
"""Takes the path and the AdmissionReview; returns the AdmissionReview with its response."""


class Admission:
    """Webhooks of a world.

    Args:
        storage: storage with the configurations.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.services: dict[str, str | Handler] = {}

    def concerns(self, collection: Collection, operation: str, subresource: str) -> bool:
        """Return whether a webhook matches such writes."""
        if collection.kind.info.group == GROUP:
            return False  # otherwise a broken configuration could not be fixed
        rules = (collection, operation, subresource)
        return any(
            _covers(hook, *rules) for mutating in _PLURALS for hook in self._configured(mutating)
        )

    async def mutated(self, call: Review) -> Json | None:
        """Return the object as changed by the mutating webhooks; ``None`` for deletions.

        Raises:
            StatusError: a webhook refuses, or cannot be called.
        """
        obj = copy.deepcopy(call.obj)
        for hook in self._chosen(call, mutating=True):
            answer = await self._asked(hook, call, obj)
            patch = answer.get("patch")
            if patch and obj is not None:
                operations = msgspec.json.decode(base64.b64decode(patch))
                obj = _patches.json_patch(obj, operations)
        return obj

    async def validated(self, call: Review, obj: Json | None) -> None:
        """Call the validating webhooks.

        Raises:
            StatusError: a webhook refuses, or cannot be called.
        """
        for hook in self._chosen(call, mutating=False):
            await self._asked(hook, call, obj)

    def _configured(self, mutating: bool) -> Iterator[Json]:
        found = self._storage.find(GROUP, _PLURALS[mutating])
        if found is not None:
            for key in sorted(found.objects):
                yield from found.objects[key].obj.get("webhooks") or ()

    def _chosen(self, call: Review, *, mutating: bool) -> list[Json]:
        return [
            hook
            for hook in self._configured(mutating)
            if _covers(hook, call.collection, call.operation, call.subresource)
            and self._selected(hook, call)
        ]

    def _selected(self, hook: Json, call: Review) -> bool:
        home: Json | None = None
        if call.collection.kind.info.kind == "Namespace":
            home = call.obj or call.old
        elif call.key.namespace:
            namespaces = self._storage.find("", "namespaces")
            home = namespaces.get(ObjectKey("", call.key.namespace)) if namespaces else None
        if home is not None and not _matches(hook.get("namespaceSelector"), home):
            return False
        either = [obj for obj in (call.obj, call.old) if obj is not None]
        return any(_matches(hook.get("objectSelector"), obj) for obj in either)

    async def _asked(self, hook: Json, call: Review, obj: Json | None) -> Json:
        try:
            answer = await self._call(hook, call, obj)
        except (
            OSError,
            TimeoutError,
            aiohttp.ClientError,
            LookupError,
            ValueError,
            TypeError,
            binascii.Error,
        ) as error:
            if hook.get("failurePolicy", "Fail") == "Ignore":
                return {}
            text = str(error) or type(error).__name__
            msg = f'failed calling webhook "{hook["name"]}": failed to call webhook: {text}'
            raise StatusError(500, "InternalError", f"Internal error occurred: {msg}") from None
        if not answer.get("allowed"):
            raise _refusal(hook["name"], answer.get("status") or {})
        return answer

    async def _call(self, hook: Json, call: Review, obj: Json | None) -> Json:
        review = call.review(obj)
        where, path, hostname = self._place(hook["clientConfig"])
        async with asyncio.timeout(hook.get("timeoutSeconds", 10)):
            if callable(where):
                answer = dict(await where(path, review))
            else:
                trusted = hook["clientConfig"].get("caBundle")
                answer = await _posted(where + path, review, trusted, hostname)
        response: Json = answer["response"]
        if response.get("uid") != review["request"]["uid"]:
            raise ValueError("the answer has another uid than the request")
        return response

    def _place(self, config: Json) -> tuple[str | Handler, str, str | None]:
        """Return the base URL or function, the path, and the name in the certificate."""
        if "url" in config:
            return config["url"], "", None
        service = config["service"]
        name = f"{service['namespace']}/{service['name']}"
        where = self.services.get(name)
        if where is None:
            raise LookupError(f"service {name} not found: pass its place to World.serve_webhooks")
        return where, service.get("path") or "/", f"{service['name']}.{service['namespace']}.svc"


@attrs.frozen(eq=False)
class Review:
    """Write for which webhooks are called.

    Args:
        collection: collection of the object.
        key: key of the object.
        operation: CREATE, UPDATE or DELETE.
        subresource: "" or the written subresource.
        obj: the object to be stored; ``None`` for deletions.
        old: the stored object; ``None`` for creations.
        dry_run: nothing will be stored.
        user: the requesting user.
    """

    collection: Collection
    key: ObjectKey
    operation: str
    subresource: str
    obj: Json | None
    old: Json | None
    dry_run: bool
    user: str

    def review(self, obj: Json | None) -> Json:
        """Return the AdmissionReview to send to a webhook."""
        info = self.collection.kind.info
        kind = {"group": info.group, "version": info.version, "kind": info.kind}
        resource = {"group": info.group, "version": info.version, "resource": info.plural}
        request = {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "subResource": self.subresource,
            "name": self.key.name,
            "namespace": self.key.namespace,
            "operation": self.operation,
            "userInfo": {"username": self.user, "groups": ["system:authenticated"]},
            "object": copy.deepcopy(obj),
            "oldObject": copy.deepcopy(self.old),
            "dryRun": self.dry_run,
        }
        return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def _posted(url: str, review: Json, trusted: str | None, hostname: str | None) -> Json:
    tls: ssl.SSLContext | bool = True
    if trusted:
        tls = ssl.create_default_context(cadata=base64.b64decode(trusted).decode())
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=review, ssl=tls, server_hostname=hostname) as answer,
    ):
        content = await answer.read()
        if answer.status != 200:
            raise ValueError(f"{url} answered {answer.status}")
        decoded: Json = msgspec.json.decode(content)
        return decoded


def _refusal(name: str, status: Json) -> StatusError:
    why = status.get("message") or status.get("reason")
    text = f'admission webhook "{name}" denied the request'
    code = status.get("code") or 0
    return StatusError(
        max(code, 400),
        status.get("reason") or "",
        f"{text}: {why}" if why else f"{text} without explanation",
        status.get("details") or {},
    )


def _covers(hook: Json, collection: Collection, operation: str, subresource: str) -> bool:
    info = collection.kind.info
    scope = "Namespaced" if info.namespaced else "Cluster"
    names = {f"{info.plural}/{subresource}", f"*/{subresource}", f"{info.plural}/*", "*/*"}
    if not subresource:
        names = {info.plural, "*", "*/*"}
    return any(
        bool({operation, "*"} & set(rule.get("operations") or ()))
        and bool({info.group, "*"} & set(rule.get("apiGroups") or ()))
        and bool({info.version, "*"} & set(rule.get("apiVersions") or ()))
        and bool(names & set(rule.get("resources") or ()))
        and rule.get("scope", "*") in {"*", scope}
        for rule in hook.get("rules") or ()
    )


def _matches(selector: Mapping[str, Any] | None, obj: Json) -> bool:
    """Return whether a LabelSelector, in its JSON form, selects an object."""
    labels = obj["metadata"].get("labels") or {}
    return msgspec.convert(selector or {}, LabelSelector).matches(labels)
