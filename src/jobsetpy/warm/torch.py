"""Warm-up of PyTorch: a step of a tiny model, a save and a load, on the CPU."""

from __future__ import annotations

import io


def warm(*, has_accelerator: bool) -> None:
    """Run one training step, one save and one load of a tiny model.

    On a machine with an accelerator, the backward pass and the optimizer step are left out: both
    query its driver for the number of devices, which a standby process must not do.
    """
    import torch

    if int(torch.__version__.partition(".")[0]) >= 2:
        import torch._dynamo
    state = torch.get_rng_state()
    try:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
        loss = model(torch.zeros(2, 2)).square().mean()
        if not has_accelerator:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
            loss.backward()
            optimizer.step()
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "step": 0}, file)
        file.seek(0)
        model.load_state_dict(torch.load(file)["model"])
    finally:
        torch.set_rng_state(state)
