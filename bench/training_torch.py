"""A data-parallel training of a small model with PyTorch (DDP over gloo)."""

from __future__ import annotations

import time

START = time.time()

import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from training_worker import Run  # noqa: E402

IMPORTED = time.time()


def main() -> None:
    """Train forever."""
    run = Run(START, IMPORTED)
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", rank=run.rank, world_size=run.world)
    run.joined()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    if run.checkpoint.exists():
        saved = torch.load(run.checkpoint)
        net.load_state_dict(saved["net"])
        step = saved["step"]
    while True:
        optimizer.zero_grad()
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        run.stepped(step)
        if run.due(step):
            half = run.checkpoint.with_suffix(".half")
            torch.save({"net": net.state_dict(), "step": step}, half)
            half.replace(run.checkpoint)


if __name__ == "__main__":
    main()
