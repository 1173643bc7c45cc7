"""A data-parallel training without a framework: ranks sum a number over TCP in each step.

It starts in a fraction of a second and waits for a silent peer without a timeout, as frameworks do
by default. It needs only Python, so every pod can run it.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

START = time.time()

from training_worker import Run  # noqa: E402

IMPORTED = time.time()
LIMIT_S = 60.0


def meet(run: Run) -> list[socket.socket]:
    """Connect rank 0 with all others, which send their rank; return the connections."""
    master, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if run.rank == 0:
        with socket.create_server(("", port), backlog=run.world) as server:
            server.settimeout(LIMIT_S)
            peers: dict[float, socket.socket] = {}
            while len(peers) < run.world - 1:
                peer, address = server.accept()
                peer.settimeout(LIMIT_S)
                try:
                    peers[received(peer)] = peer
                except OSError as error:
                    print(f"{address} has connected and says nothing: {error}", flush=True)
        for peer in peers.values():
            peer.settimeout(None)
        return list(peers.values())
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            peer = socket.create_connection((master, port), timeout=1.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            peer.sendall(struct.pack("d", run.rank))
            peer.settimeout(None)
            return [peer]


def received(peer: socket.socket) -> float:
    """Return the number that a peer sends."""
    data = peer.recv(8, socket.MSG_WAITALL)
    if len(data) < 8:
        raise ConnectionError("a peer has ended")
    return float(struct.unpack("d", data)[0])


def total(run: Run, peers: list[socket.socket], number: float) -> float:
    """Return the sum of all ranks' numbers."""
    if run.rank:
        peers[0].sendall(struct.pack("d", number))
        return received(peers[0])
    whole = number + sum(map(received, peers))
    for peer in peers:
        peer.sendall(struct.pack("d", whole))
    return whole


def save(checkpoint: Path, step: int) -> None:
    """Write a checkpoint, unless the epoch is over."""
    epoch = os.environ.get("JOBSET_EPOCH", "")
    half = Path(f"{checkpoint}.{epoch}.half")
    half.write_text(str(step))
    if not epoch or Path(os.environ["JOBSET_EPOCH_FILE"]).read_text() == epoch:
        half.replace(checkpoint)


def main() -> None:
    """Train forever."""
    run = Run(START, IMPORTED)
    peers = meet(run)
    run.joined()
    step = int(run.checkpoint.read_text()) if run.checkpoint.exists() else 0
    while True:
        total(run, peers, float(step))
        step += 1
        run.stepped(step)
        if run.due(step):
            save(run.checkpoint, step)


if __name__ == "__main__":
    main()
