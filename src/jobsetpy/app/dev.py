"""``jobsetpy run --dev``: CRDs and webhooks of a program are installed; a change runs it again.

The first process only watches files and starts the second one, which runs the program. API servers
call webhooks at an address of this machine that also containers on it reach, as those of kind do.
The first process also removes the webhooks' registration at the end, however the second one ended:
an API server that calls a webhook which is not served refuses all writes.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from jobsetpy.api.meta import ResourceInfo
from jobsetpy.api.schema import crds_of
from jobsetpy.api.unstructured import Unstructured, unstructured
from jobsetpy.app.webhook_manifests import webhook_manifests
from jobsetpy.client import Client, connect
from jobsetpy.errors import JobSetPyError, NotFoundError
from jobsetpy.manager import Manager
from jobsetpy.runtime._webhooks import ServedWebhooks
from jobsetpy.serving.http import parse_address

_CHILD: Final = "JOBSETPY_DEV"
"""Variable of the second process: the file into which it writes the webhooks it has registered."""
_NAMES: Final = "--webhook-dns-name"
_OWNER: Final = "jobsetpy-dev"
_ADMISSION: Final = "admissionregistration.k8s.io"
_POLL_S: Final = 0.5
"""Interval between looks at the files."""
_GRACE_S: Final = 10.0
"""Time for the program to stop before it is killed."""
_ELSEWHERE: Final = ("192.0.2.1", 9)
"""Address of documentation (RFC 5737), to which nothing is sent."""


def is_child() -> bool:
    """Return True in the process that runs the program."""
    return _CHILD in os.environ


def supervise(options: argparse.Namespace) -> int:
    """Run this command in a process of its own, again after each change of a file; return its code.

    It ends when the program ends without an error, or with Ctrl-C or SIGTERM. Then the registration
    of the program's webhooks is removed.

    Args:
        options: parsed flags, with ``MODULE:FUNCTION`` and the address of the API server.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.NamedTemporaryFile("r", prefix="jobsetpy-dev-") as registered:
        try:
            return _run_again(_watched(options.target), registered.name)
        finally:
            if names := dict.fromkeys(registered.read().splitlines()):
                asyncio.run(_unregister(options, names))


def _run_again(watched: tuple[Path, str], registered: str) -> int:
    command = [sys.executable, "-m", "jobsetpy.app.main", *sys.argv[1:]]
    while True:
        seen = _files(*watched)
        process = subprocess.Popen(command, env={**os.environ, _CHILD: registered})  # noqa: S603
        code: int | None = None
        try:
            while (now := _files(*watched)) == seen:
                if code is None:
                    code = _ended(process)
                    if code == 0:
                        return 0
                    if code is not None:
                        _say(f"the program ended with {code}; waiting for a change of a file")
                else:
                    threading.Event().wait(_POLL_S)
        except KeyboardInterrupt:
            return _stop(process)
        changed = sorted(str(each) for each in dict(now.items() ^ seen.items()))
        _say(f"{changed[0]} has changed: the program starts again")
        _stop(process)


async def _unregister(options: argparse.Namespace, names: Iterable[str]) -> None:
    """Remove webhook configurations, each given as kind and name."""
    left = list(names)
    try:
        client = await connect(kubeconfig=options.kubeconfig, context=options.context)
        try:
            for each in tuple(left):
                kind, name = each.split()
                info = ResourceInfo(_ADMISSION, "v1", kind, f"{kind.lower()}s", namespaced=False)
                with suppress(NotFoundError):
                    await client.delete(unstructured(info), "", name, timeout_s=_GRACE_S)
                _say(f"removed {each}")
                left.remove(each)
        finally:
            await client.aclose()
    except (JobSetPyError, OSError, asyncio.CancelledError) as error:
        both = " ".join(each.lower().replace(" ", "/") for each in left)
        _say(f"webhooks stay registered, and refuse writes ({error}): kubectl delete {both}")


def _watched(target: str) -> tuple[Path, str]:
    """Return the folder of a program, and the pattern of its files there.

    A package is watched as a whole, a module with those next to it.

    Args:
        target: ``MODULE:FUNCTION``.
    """
    name = target.partition(":")[0].partition(".")[0]
    sys.path.insert(0, "")
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return Path(), "*.py"
    is_package = bool(spec.submodule_search_locations)
    return Path(spec.origin).parent, "**/*.py" if is_package else "*.py"


def _files(folder: Path, pattern: str) -> Mapping[Path, int]:
    """Return the time of the last change of each file."""
    found = {}
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):  # an editor replaces it now
            found[path] = path.stat().st_mtime_ns
    return found


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return the code of a process that ends within the interval; ``None`` if it does not."""
    try:
        return process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return None


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _say(text: str) -> None:
    print(f"jobsetpy run --dev: {text}", file=sys.stderr, flush=True)  # noqa: T201


def choose_address(options: argparse.Namespace) -> None:
    """Add this machine's address to the names of the webhooks' certificate, unless one is given."""
    if not getattr(options, _NAMES, None):
        setattr(options, _NAMES, [_own_address()])


def _own_address() -> str:
    """Return the address from which this machine reaches others; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


async def install(manager: Manager, client: Client) -> None:
    """Apply the CRDs of a program's kinds, and register its webhooks at this machine.

    Args:
        manager: with all that the program adds to it; not started yet.
        client: sends the requests.

    Raises:
        ApiError: an object is refused.
    """
    served = [each for each in manager.runnables if isinstance(each, ServedWebhooks)]
    for body in (*_definitions(manager, served), *_webhooks(served)):
        group, _, version = body["apiVersion"].rpartition("/")
        meta, name = body["metadata"], body["kind"]
        info = ResourceInfo(
            group, version, name, f"{name.lower()}s", namespaced="namespace" in meta
        )
        kind: type[Unstructured] = unstructured(info)
        if group == _ADMISSION:  # before it is sent: the answer may be lost
            _note(f"{name} {meta['name']}")
        await client.apply(kind, meta.get("namespace", ""), meta["name"], body, owner=_OWNER)
        _say(f"applied {name} {meta['name']}")


def _note(registered: str) -> None:
    """Tell the first process what it has to remove."""
    with Path(os.environ[_CHILD]).open("a") as file:
        file.write(f"{registered}\n")


def _definitions(manager: Manager, served: list[ServedWebhooks]) -> list[dict[str, Any]]:
    """Return the CRDs of the program's own kinds."""
    kinds = dict.fromkeys((*manager.kinds, *(one.cls for each in served for one in each.webhooks)))
    own = [
        kind
        for kind in kinds
        if not issubclass(kind, Unstructured)
        and not kind.__module__.startswith("jobsetpy.")
        and "." in kind.RESOURCE.group
        and not kind.RESOURCE.group.endswith(".k8s.io")
    ]
    return crds_of(own)


def _webhooks(served: list[ServedWebhooks]) -> Iterator[dict[str, Any]]:
    for each in served:
        settings = each.settings
        host = settings.extra_dns_names[0] if settings.extra_dns_names else _own_address()
        port = (parse_address(settings.bind_address) or ("", 0))[1]
        where = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        yield from webhook_manifests(each, namespace=settings.namespace, url=where)
