"""Functions under `jax.checkpoint` that save the names of an option."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from remat.bridges.jax.options import Option
from remat.bridges.jax.shim import jax


def checkpointed(function: Callable[..., Any], option: Option, *, loop: bool = False) -> Callable[..., Any]:
    """Return a function whose backward saves the names of an option and recomputes everything else.

    In the body of a loop, forward and backward are separate programs, which XLA cannot merge: they need no barrier.
    """
    policies = jax.checkpoint_policies
    if option.hosted:
        policy = policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(option.names),
            offload_src="device",
            offload_dst="pinned_host",
        )
    else:
        policy = policies.save_only_these_names(*option.names)
    found: Callable[..., Any] = jax.checkpoint(function, policy=policy, prevent_cse=not loop)
    return found
