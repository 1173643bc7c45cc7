"""Steps of a start that need only a folder: specification, keys, and the supervisor."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import _config, _dns, _nodes, _state
from ._identity import patient, wait_until
from ._pki import Authority, make_key
from ._requirements import SEARCH

SUPERVISOR = Path(__file__).with_name("_supervisor.py")
KEPT_VARIABLES = ("HOME", "TMPDIR", "LANG", "GOGC", "GOMEMLIMIT")
"""Environment variables of components; the last two are for programs written in Go."""


def write_spec(
    name: str,
    folder: Path,
    ports: _config.Ports,
    binaries: Mapping[str, Path],
    settings: _config.Settings,
) -> None:
    """Write the supervisor's specification: what it can start, and what it removes at the end."""
    log = folder / "log"
    log.mkdir()
    argv = {
        "etcd": _config.etcd_argv(binaries["etcd"], folder, ports, settings),
        "kube-apiserver": _config.apiserver_argv(
            binaries["kube-apiserver"], folder, ports, settings
        ),
    }
    if settings.controller_manager:
        argv["kube-controller-manager"] = _config.controller_manager_argv(
            binaries["kube-controller-manager"], folder, settings
        )
    if settings.scheduler:
        argv["kube-scheduler"] = _config.scheduler_argv(
            binaries["kube-scheduler"], folder, settings
        )
        config = _config.scheduler_config(folder, settings)
        _state.write_private(folder / "scheduler.json", json.dumps(config, indent=1))
    if settings.dns:
        argv["coredns"] = _dns.argv(binaries["coredns"], folder)
        _state.write_private(folder / "Corefile", _dns.corefile(folder, name))
    spec: dict[str, Any] = {
        "components": {
            component: {"argv": words, "log": str(log / f"{component}.log")}
            for component, words in argv.items()
        },
        "at_start": ["etcd"],
        "remove_folder": True,
    }
    if settings.nodes:
        parts = _nodes.spec_parts(folder, ports, settings)
        spec["components"] |= parts["components"]
        spec["private_network"] = parts["private_network"]
        spec["at_start"].append("forwarder")
        spec["cgroups"] = _nodes.cgroups_of(name, settings)
    _state.write_private(folder / "spec.json", json.dumps(spec, indent=1))


def write_secrets(
    name: str, folder: Path, ports: _config.Ports, settings: _config.Settings
) -> tuple[Authority, list[str]]:
    """Create keys, certificates, tokens and kubeconfigs; return a token for each node as well."""
    pki = folder / "pki"
    authority = Authority(pki)
    make_key(pki / "sa.key")
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    addresses = ["127.0.0.1", _config.SERVICE_ADDRESS, _config.BRIDGE_ADDRESS]
    authority.issue(
        "apiserver",
        subject="/CN=kube-apiserver",
        alt_names=(*(f"DNS:{n}" for n in names), *(f"IP:{a}" for a in addresses)),
    )
    users: list[tuple[str, str, tuple[str, ...]]] = [
        (secrets.token_hex(16), _config.ADMIN, ("system:masters",)),
        (secrets.token_hex(16), _config.CONTROLLER_MANAGER, ()),
        (secrets.token_hex(16), _config.SCHEDULER, ()),
    ]
    outside = f"https://127.0.0.1:{ports.api}"
    inside = f"https://{_config.SERVICE_ADDRESS}:443" if settings.nodes else outside
    files = [
        ("admin", outside, users[0][0]),
        ("controller-manager", inside, users[1][0]),
        ("scheduler", inside, users[2][0]),
    ]
    if settings.dns:
        users.append((secrets.token_hex(16), _config.DNS_USER, ()))
        files.append(("coredns", inside, users[-1][0]))
    node_tokens = []
    if settings.nodes:
        authority.issue(
            "kubelet-client", subject="/O=system:masters/CN=kubelet-client", client=True
        )
        files.append(("inside", inside, users[0][0]))
        for number in range(1, settings.nodes + 1):
            node_tokens.append(secrets.token_hex(16))
            user = f"system:node:{_config.node_name(number)}"
            users.append((node_tokens[-1], user, ("system:nodes",)))
    _state.write_private(pki / "tokens.csv", _config.tokens_csv(users))
    ca = authority.cert.read_bytes()
    for file, server, token in files:
        text = _config.kubeconfig(name=name, server=server, ca=ca, token=token)
        _state.write_private(folder / f"{file}.kubeconfig", text)
    return authority, node_tokens


def spawn_supervisor(folder: Path, *, detached: bool) -> subprocess.Popen[bytes]:
    """Start the supervisor, which records its own identity; it may not be ready yet."""
    argv = [sys.executable, "-I", "-S", str(SUPERVISOR), str(folder)]
    if not detached:
        argv.append(str(os.getpid()))
    env = {key: value for key, value in os.environ.items() if key in KEPT_VARIABLES}
    with (folder / "log" / "supervisor.log").open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**env, "PATH": SEARCH},
            cwd="/",
            start_new_session=True,
        )


def supervisor_ready(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    """Wait until the supervisor accepts commands; return False if it ended before."""
    ready = folder / "ready"
    wait_until(lambda: ready.exists() or process.poll() is not None, patient(20.0), 0.005)
    return ready.exists()
