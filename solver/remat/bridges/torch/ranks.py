"""Modules that several processes train together: refused modules, and the agreement of the ranks on a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

from remat.bridges.torch.plan_options import Choices
from remat.bridges.torch.planning import Plan
from remat.bridges.torch.recording import TorchError
from remat.bridges.torch.shim import torch
from remat.errors import RematError
from remat.messages import first_line
from remat.solving.relative_budget import share_of
from remat.units import parse_budget

Orders = Sequence[tuple[str, ...]]


def is_sharded(module: Any) -> bool:
    """Whether FSDP2 has sharded a module, or a part of it."""
    if not torch.distributed.is_available():
        return False
    sharded = import_module("torch.distributed.fsdp").FSDPModule
    return any(isinstance(part, sharded) for part in module.modules())


def is_distributed(module: Any) -> bool:
    """Whether parameters of a module are distributed over several processes."""
    return any(hasattr(parameter, "device_mesh") for parameter in module.parameters())


def wrapped(module: Any) -> Any:
    """Return the module inside `DistributedDataParallel`, or None."""
    if not torch.distributed.is_available():
        return None
    return module.module if isinstance(module, torch.nn.parallel.DistributedDataParallel) else None


def bucket_bytes(module: Any) -> int:
    """Bytes of the buckets in which `DistributedDataParallel` exchanges gradients."""
    if module.gradient_as_bucket_view:
        return 0
    return sum(tensor.numel() * tensor.element_size() for tensor in module.parameters() if tensor.requires_grad)


def check_distributed(module: Any, choices: Choices) -> None:
    """Refuse modules and choices that cannot be planned over several processes."""
    if not is_distributed(module) and wrapped(module) is None:
        return
    if not torch.distributed.is_initialized():
        raise TorchError("the process group is not initialised: call torch.distributed.init_process_group first")
    if choices.inductor:
        raise TorchError("modules of several processes run with PyTorch's own kernels: inductor=False")
    if choices.host is not None:
        raise TorchError("a module of several processes cannot be planned with a host; leave host out")
    if is_sharded(module):
        if isinstance(choices.budget, Sequence) and not isinstance(choices.budget, str):
            raise TorchError("a module that FSDP2 shards has one budget for all graphs, not a list")
        if choices.plan is not None:
            raise TorchError("the plan of a module that FSDP2 shards cannot be loaded from a file; leave plan out")
        by_others = set(_by_others(module))
        for name, parameter in module.named_parameters():
            if id(parameter) in by_others:
                raise TorchError(f"{name} uses tensor parallelism together with FSDP2; plans support only one of them")


def _by_others(module: Any) -> Iterator[int]:
    """Yield the identities of parameters that tensor parallelism distributes, alone or together with FSDP2."""
    states = [part._get_fsdp_state() for part in module.modules() if hasattr(part, "_get_fsdp_state")]
    groups = [group for state in states for group in state._fsdp_param_groups]
    known = {id(held.sharded_param): bool(held.is_dtensor) for group in groups for held in group.fsdp_params}
    for parameter in module.parameters():
        if hasattr(parameter, "device_mesh") and known.get(id(parameter), True):
            yield id(parameter)


def group_of(module: Any) -> Any:
    """Return the process group whose ranks run the same graphs: that of the mesh if it has one dimension, or all."""
    mesh = next((parameter.device_mesh for parameter in module.parameters() if hasattr(parameter, "device_mesh")), None)
    return mesh.get_group() if mesh is not None and mesh.ndim == 1 else None


def agree(module: Any, choices: Choices, make: Callable[[], tuple[Plan, Orders]]) -> tuple[Plan, Orders, Orders]:
    """Plan, and agree with the other ranks on the orders: ranks with equal programs use those of the first rank.

    Ranks with other sizes keep their orders; collectives run in program order on all ranks.

    Parameters
    ----------
    module : torch.nn.Module
    choices : Choices
    make : callable
        Plans on this rank; if it raises, all ranks end.

    Returns
    -------
    Plan
        The plan of this rank.
    sequence of runs
        The orders of this plan.
    sequence of runs
        Those that all ranks run.

    Raises
    ------
    TorchError
        If a rank found none or ended, or if budgets differ.
    """
    mine = {"error": None, "budget": _budget(choices), "program": "", "orders": None}
    try:
        plan, orders = make()
    except RematError as error:
        _exchange(module, mine | {"error": str(error)})
        raise
    found = _exchange(module, mine | {"program": plan.fingerprint, "orders": orders})
    for rank, other in enumerate(found):
        if other["error"] is not None:
            raise TorchError(f"rank {rank} has no plan: {other['error']}")
    budgets = list(dict.fromkeys(other["budget"] for other in found))
    if len(budgets) > 1:
        raise TorchError(f"the ranks have unequal plans: their budgets are {', '.join(map(str, budgets))}; give one")
    return plan, orders, found[0]["orders"] if found[0]["program"] == plan.fingerprint else orders


def _exchange(module: Any, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the statements of all ranks, in the order of the ranks."""
    group, distributed = group_of(module), torch.distributed
    found: list[Any] = [None] * distributed.get_world_size(group)
    try:
        distributed.all_gather_object(found, mine, group=group)
    except (RuntimeError, ValueError) as failure:
        line = first_line(str(failure), 200) or type(failure).__name__
        raise TorchError(f"another rank ended while the ranks agreed on a plan: {line}") from failure
    return found


def _budget(choices: Choices) -> Any:
    budget = choices.budget
    if budget is None or share_of(budget) is not None:
        return budget
    return parse_budget(budget) if isinstance(budget, (int, str)) else [str(one) for one in budget]


__all__ = ["agree", "bucket_bytes", "check_distributed", "group_of", "is_distributed", "is_sharded", "wrapped"]
