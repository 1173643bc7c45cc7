"""Enforcement of NetworkPolicies on a node of ``hack/cluster``, whose network plugin has none.

Rules of nftables in the node's network namespace are renewed from the API server's objects. Only parts
of the tests' policies are supported: selectors by labels, ``ipBlock`` without ``except``, TCP ports by
number or name. Traffic of unknown pods is dropped, and the sender repeats it; traffic of the node
itself (probes of the kubelet) is always accepted, as in Kubernetes. Nodes here have no kube-proxy,
which translates the API server's Service to the address behind it: a rule for that address is one
for the Service's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any

from hack.cluster import Cluster
from hack.cluster._requirements import program, require_programs
from jobsetpy.client import Client
from support import patience
from support.cluster.json_api import send
from support.commands import run

Json = dict[str, Any]
PERIOD_S = 0.2
TABLE = "policies"
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"


class NetworkPolicies:
    """Enforcement on a node.

    Args:
        cluster: of the node.
        client: for pods, namespaces and policies.
        node: its name.
    """

    def __init__(self, cluster: Cluster, client: Client, node: str = "node-1") -> None:
        self._cluster = cluster
        self._node = node
        self._client = client
        self._rules: list[str] = []
        self._rounds = 0
        self._services: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Filter all traffic of pods within the block."""
        await self._find_services()
        await self._renew()
        renewing = asyncio.create_task(self._renew_always())
        try:
            yield
        finally:
            renewing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
            await self._run(f"delete table inet {TABLE}\n")

    async def settled(self) -> None:
        """Return when all objects that exist now are enforced."""
        begun = self._rounds
        await patience.eventually(lambda: self._rounds >= begun + 2, 30, poll_s=0.05)

    async def refused(self, namespace: str) -> int:
        """Return the number of refused packets of or to pods of a namespace."""
        shown = await self._run(f"list table inet {TABLE}\n")
        found = re.findall(rf'counter packets (\d+) .*"refused in {namespace}"', shown)
        return sum(map(int, found))

    async def _find_services(self) -> None:
        path = "/api/v1/namespaces/default"
        for name in ("services/kubernetes", "endpoints/kubernetes"):
            found = await send(self._client, "GET", f"{path}/{name}")
            if "spec" in found:
                service = found["spec"]["clusterIP"]
            else:
                address = found["subsets"][0]["addresses"][0]["ip"]
                self._services[f"{address}/32"] = service

    async def _renew_always(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self._renew()

    async def _renew(self) -> None:
        namespaces = {
            each["metadata"]["name"]: each["metadata"].get("labels", {})
            for each in await self._list("/api/v1/namespaces")
        }
        pods = [
            pod
            for pod in await self._list("/api/v1/pods")
            if pod["status"].get("podIP") and not pod["spec"].get("hostNetwork")
        ]
        rules = _rules(pods, namespaces, await self._list(POLICIES), self._services)
        if rules != self._rules:
            lines = "\n    ".join(rules)
            await self._run(
                f"add table inet {TABLE}\nflush table inet {TABLE}\ntable inet {TABLE} {{\n"
                f"  chain forward {{\n    type filter hook forward priority 0; policy accept;\n"
                f"    {lines}\n  }}\n}}\n"
            )
            self._rules = rules
        self._rounds += 1

    async def _list(self, path: str) -> list[Json]:
        return list((await send(self._client, "GET", path))["items"])

    async def _run(self, text: str) -> str:
        return await nft(self._cluster, self._node, text)


async def nft(cluster: Cluster, node: str, text: str) -> str:
    """Run commands of nftables in a node's network namespace; return what they print."""
    require_programs({"nft": "nftables"})
    network = f"--net=/proc/{cluster._init_of(node)}/ns/net"
    words = (program("nsenter"), network, "--", program("nft"), "-f", "-")
    done = await asyncio.to_thread(run, *words, timeout_s=20, input=text)
    assert done.returncode == 0, f"nft: {done.stderr}\n{text}"
    return done.stdout


def _rules(
    pods: list[Json],
    namespaces: dict[str, Json],
    policies: list[Json],
    services: dict[str, str],
) -> list[str]:
    rules = ["ct state established,related accept"]
    both = [("Ingress", "daddr", "saddr", "from"), ("Egress", "saddr", "daddr", "to")]
    for pod in pods:
        meta, address = pod["metadata"], pod["status"]["podIP"]
        own = [
            each
            for each in policies
            if each["metadata"]["namespace"] == meta["namespace"]
            and _selects(each["spec"].get("podSelector", {}), meta.get("labels", {}))
        ]
        for kind, mine, theirs, peers in both:
            chosen = [each for each in own if kind in each["spec"]["policyTypes"]]
            if not chosen:
                rules.append(f"ip {mine} {address} meta mark set meta mark or {_bit(kind)}")
            for rule in (r for each in chosen for r in each["spec"].get(kind.lower(), ())):
                ports = [_port(pod, each["port"]) for each in rule.get("ports", ())]
                where = f" tcp dport {{ {', '.join(map(str, ports))} }}" if ports else ""
                for peer in _addresses(rule.get(peers, ()), meta["namespace"], pods, namespaces):
                    then = f"meta mark set meta mark or {_bit(kind)}"
                    both_addresses = ", ".join(filter(None, (peer, services.get(peer))))
                    other = f" ip {theirs} {{ {both_addresses} }}" if peer else ""
                    rules.append(f"ip {mine} {address}{other}{where} {then}")
    for pod in pods:
        address, comment = pod["status"]["podIP"], f"refused in {pod['metadata']['namespace']}"
        for kind, mine, *_ in both:
            judged = f"ip {mine} {address} meta mark and {_bit(kind)} == 0"
            rules.append(f'{judged} counter reject comment "{comment}"')
    known = ", ".join(sorted(pod["status"]["podIP"] for pod in pods))
    if known:
        rules.append(f'iifname "cni0" ip saddr != {{ {known} }} drop')
    return rules


def _bit(kind: str) -> int:
    return 1 if kind == "Ingress" else 2


def _addresses(
    peers: list[Json], own: str, pods: list[Json], namespaces: dict[str, Json]
) -> list[str]:
    """Return addresses of a rule's peers; [""] for all."""
    found: list[str] = []
    for peer in peers:
        if "ipBlock" in peer:
            found.append(peer["ipBlock"]["cidr"])
            continue
        for pod in pods:
            meta = pod["metadata"]
            name = meta["namespace"]
            there = (
                _selects(peer["namespaceSelector"], namespaces[name])
                if "namespaceSelector" in peer
                else name == own
            )
            if there and _selects(peer.get("podSelector", {}), meta.get("labels", {})):
                found.append(pod["status"]["podIP"])
    return found if peers else [""]


def _selects(selector: Json, labels: Json) -> bool:
    wanted = selector.get("matchLabels", {})
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "Exists", "only Exists is understood here"
        if each["key"] not in labels:
            return False
    return all(labels.get(key) == value for key, value in wanted.items())


def _port(pod: Json, port: int | str) -> int:
    if isinstance(port, int):
        return port
    found = [
        each["containerPort"]
        for container in pod["spec"]["containers"]
        for each in container.get("ports", ())
        if each.get("name") == port
    ]
    return int(found[0]) if found else 0
