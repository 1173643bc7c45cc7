"""Warm-up of JAX: a function compiled and run on the CPU, with a backend that is discarded."""

from __future__ import annotations


def warm(*, has_accelerator: bool) -> None:
    """Load the modules that tracing, lowering, compiling and serialising load at first use.

    ``jax.distributed.initialize`` fails once a backend exists, so the backend is removed again. On
    a machine with an accelerator nothing is done: its plugin would be initialised as well.
    """
    if has_accelerator:
        return
    import jax
    import jax.extend.backend
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import serialize_executable

    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")
    try:
        step = jax.jit(jax.value_and_grad(lambda weight, x: jnp.square(x @ weight).mean()))
        weight, x = np.zeros((2, 1), "float32"), np.zeros((2, 2), "float32")
        compiled = step.lower(weight, x).compile()
        serialize_executable.serialize(compiled)
        jax.block_until_ready(step(jax.device_put(weight), x))
    finally:
        jax.extend.backend.clear_backends()
        jax.clear_caches()
        jax.config.update("jax_platforms", before)
