"""A data-parallel training of a tiny language model with the Trainer of Hugging Face."""

from __future__ import annotations

import time

START = time.time()

import os  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402
import transformers  # noqa: E402
from training_worker import EVERY, SHARED, Run  # noqa: E402

IMPORTED = time.time()
FOLDER = SHARED / "trainer"


class Tokens(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Sequences of tokens that can be predicted."""

    def __len__(self) -> int:
        """Return their number."""
        return 100_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """Return one of them, which counts up from a number."""
        tokens = torch.arange(index, index + 16) % 64
        return {"input_ids": tokens, "labels": tokens}


class Steps(transformers.TrainerCallback):
    """Report each step to the benchmark, and to the agent."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_step_end(self, _arguments: Any, state: Any, _control: Any, **_: Any) -> None:
        """Report a step."""
        self._run.stepped(state.global_step)


def last_checkpoint() -> str | None:
    """Return the last complete checkpoint: the Trainer writes this file at its end."""
    whole = [each.parent for each in FOLDER.glob("checkpoint-*/trainer_state.json")]
    return str(max(whole, key=_step)) if whole else None


def _step(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def main() -> None:
    """Train for a long time."""
    run = Run(START, IMPORTED)
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 16}
    arguments = transformers.TrainingArguments(
        output_dir=str(FOLDER),
        max_steps=1_000_000,
        save_steps=EVERY,
        save_total_limit=3,
        logging_steps=1_000_000,
        per_device_train_batch_size=8,
        report_to=[],
        use_cpu=True,
        disable_tqdm="JOBSET_PROGRESS_FILE" in os.environ,  # otherwise as without these lines
        ignore_data_skip=True,
    )
    trainer = transformers.Trainer(
        model=transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)),
        args=arguments,
        train_dataset=Tokens(),
        callbacks=[Steps(run)],
    )
    run.joined()
    trainer.train(resume_from_checkpoint=last_checkpoint())


if __name__ == "__main__":
    main()
