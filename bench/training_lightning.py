"""A data-parallel training of a tiny model with Lightning."""

from __future__ import annotations

import os
import time

START = time.time()

from typing import Any  # noqa: E402

import lightning  # noqa: E402
import torch  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.strategies import DDPStrategy  # noqa: E402
from training_worker import EVERY, SHARED, Run  # noqa: E402

IMPORTED = time.time()
FOLDER = SHARED / "lightning"


class Model(lightning.LightningModule):
    """Two layers that learn to return zero."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def training_step(self, batch: torch.Tensor, _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss: torch.Tensor = self.net(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Steps(lightning.Callback):
    """Report each step to the benchmark, and to the agent."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any, **__: Any) -> None:
        """Report a step."""
        self._run.stepped(trainer.global_step)


def main() -> None:
    """Train for a long time."""
    run = Run(START, IMPORTED)
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=local,
        num_nodes=run.world // local,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_steps=1_000_000,
        logger=False,
        enable_progress_bar="JOBSET_PROGRESS_FILE" not in os.environ,  # otherwise as without this
        enable_model_summary=False,
        callbacks=[
            ModelCheckpoint(FOLDER, every_n_train_steps=EVERY, save_last=True, save_top_k=1),
            Steps(run),
        ],
    )
    run.joined()
    data = torch.utils.data.DataLoader(torch.randn(100_000, 64), batch_size=32)
    trainer.fit(Model(), data, ckpt_path="last")


if __name__ == "__main__":
    main()
