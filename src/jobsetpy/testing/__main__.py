"""Serve a fake API server until it is interrupted: ``python -m jobsetpy.testing``."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.testing.apiserver._answers import StatusError
from jobsetpy.testing.apiserver._server import FakeApiServer
from jobsetpy.testing.apiserver._serving import write_kubeconfig


def main(argv: Sequence[str] | None = None) -> int:
    """Serve; return the exit code.

    Args:
        argv: arguments without the program's name; those of the process when absent.
    """
    parser = argparse.ArgumentParser(
        prog="python -m jobsetpy.testing",
        description="Serve a fake API server on loopback, with a kubeconfig, until interrupted.",
    )
    parser.add_argument("--kubeconfig", type=Path, default=Path("fake.kubeconfig"), metavar="FILE")
    parser.add_argument("--port", type=int, default=0, help="any free one when absent")
    parser.add_argument(
        "-f",
        "--filename",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="YAML file with objects that exist at the start, CRDs first; repeatable",
    )
    options = parser.parse_args(argv)
    try:
        objects = [obj for path in options.filename for obj in _read(path)]
        asyncio.run(_serve(options.port, options.kubeconfig.resolve(), objects))
    except (OSError, yaml.YAMLError, LookupError, StatusError, ValueError) as error:
        print(f"python -m jobsetpy.testing: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _read(path: Path) -> Iterable[dict[str, Any]]:
    for document in yaml.safe_load_all(path.read_text()):
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise ValueError(f"{path}: not an object with a kind")
        if document["kind"].endswith("List") and "items" in document:
            yield from document["items"]
        else:
            yield document


async def _serve(port: int, kubeconfig: Path, objects: Sequence[dict[str, Any]]) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with FakeApiServer(port=port) as server:
        server.garbage_collect = True
        for obj in objects:
            server.create(server.kind_named(obj["apiVersion"], obj["kind"]), obj)
        write_kubeconfig(server, kubeconfig)
        print(f"serving on {server.url}; export KUBECONFIG={kubeconfig}", flush=True)  # noqa: T201
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
