"""A data-parallel training of a small model with JAX (collectives of CPUs, over gloo)."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path

START = time.time()

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import serialize_executable  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402
from training_worker import SHARED, Run  # noqa: E402

IMPORTED = time.time()
KEEP = "KEEP_EXECUTABLE" in os.environ
"""If true, use the program of the how-to for restart in place, else a plain one."""


def loss_of(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
    """Parameters of a model with two layers."""
    hidden = jax.nn.relu(batch @ params["w"] + params["b"])
    return jnp.square(hidden @ params["v"]).mean()


def train_step(params: dict[str, jax.Array], batch: jax.Array) -> tuple[dict, jax.Array]:
    """One step of gradient descent."""
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda value, grad: value - 0.01 * grad, params, grads), loss


def kept_step(path: Path, state: dict[str, jax.Array], batch: jax.Array) -> jax.stages.Compiled:
    """Return the compiled step, from a file if an earlier process of this rank has saved one.

    Not for use with JAX's own cache: steps that rank 0 has read from that cannot be saved.
    """
    if path.exists():
        return serialize_executable.deserialize_and_load(*pickle.loads(path.read_bytes()))
    compiled = jax.jit(train_step).lower(state, batch).compile()
    half = path.with_suffix(".half")
    half.write_bytes(pickle.dumps(serialize_executable.serialize(compiled)))
    half.rename(path)
    return compiled


def main() -> None:
    """Train forever."""
    run = Run(START, IMPORTED)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if not KEEP:
        # Cache all compilations, also short ones, for later runs.
        jax.config.update("jax_compilation_cache_dir", str(SHARED / "compiled"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Without this, SIGTERM does not end the process, which would also wait for a failed peer.
    jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(
        f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        run.world,
        run.rank,
        shutdown_timeout_seconds=1,
    )
    mesh = jax.make_mesh((run.world,), ("data",))
    run.joined()
    everywhere = NamedSharding(mesh, PartitionSpec())
    shares = NamedSharding(mesh, PartitionSpec("data"))
    random = np.random.default_rng(run.rank)
    start = np.random.default_rng(0)
    params = {
        "w": start.normal(size=(64, 64)).astype("float32") / 8,
        "b": np.zeros(64, "float32"),
        "v": start.normal(size=(64, 1)).astype("float32") / 8,
    }
    step = 0
    if run.checkpoint.exists():
        with np.load(run.checkpoint) as saved:
            step = int(saved["step"])
            params = {name: saved[name] for name in params}
    if KEEP:
        state = {
            name: jax.make_array_from_process_local_data(everywhere, value)
            for name, value in params.items()
        }
    else:
        state = jax.device_put(params, everywhere)
    compiled = None if KEEP else jax.jit(train_step)
    while True:
        batch = jax.make_array_from_process_local_data(
            shares, random.normal(size=(32, 64)).astype("float32")
        )
        compiled = compiled or kept_step(SHARED / f"step-{run.rank}.compiled", state, batch)
        state, loss = compiled(state, batch)
        loss.block_until_ready()
        step += 1
        run.stepped(step)
        if run.due(step):
            half = run.checkpoint.with_suffix(".half")
            with half.open("wb") as file:
                np.savez(
                    file, step=step, **{name: np.asarray(each) for name, each in state.items()}
                )
            half.replace(run.checkpoint)


if __name__ == "__main__":
    main()
