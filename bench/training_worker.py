"""A data-parallel training of a small model with PyTorch: what the benchmark's pods run.

It is an ordinary program: ranks from the environment, gloo, a checkpoint on a shared folder. What
happens to each of its runs is a line of JSON in that folder.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

BEGAN = time.time()

import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

IMPORTED = time.time()
SHARED = Path(os.environ["SHARED"])
EVERY = 20


def main() -> None:
    """Train for ever."""
    began = time.time()
    rank = int(os.environ["RANK"])
    world = int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world)
    joined = time.time()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    checkpoint = SHARED / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        net.load_state_dict(saved["net"])
        step = saved["step"]
    first = step
    while True:
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        if step == first + 1:
            moments = {"imported": IMPORTED, "began": began, "joined": joined, "at": time.time()}
            line = {"rank": rank, "pid": os.getpid(), "step": step, **moments, "start": BEGAN}
            with (SHARED / f"runs-{rank}").open("a") as file:
                file.write(json.dumps(line) + "\n")
        if rank == 0 and step % EVERY == 0:
            half = checkpoint.with_suffix(".half")
            torch.save({"net": net.state_dict(), "step": step}, half)
            half.replace(checkpoint)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
