"""Plans of chains in the formats of PyTorch, torchtitan, Megatron-LM, Primus and FlagScale."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from remat.bridges.checkpointing.policy import ChainPlan, Policy, Verified


@dataclass(frozen=True)
class Exported:
    """A policy as text of another program.

    Attributes
    ----------
    text : str
    notes : tuple of str
        Verified peak and time of the policy, and what it cannot express.
    peak : int
    makespan : int or float
    """

    text: str
    notes: tuple[str, ...]
    peak: int
    makespan: int | float


TWICE = "running statistics of normalisations in recomputed layers are updated twice"
ONE_BY_ONE = "layers are checkpointed one by one, so all their inputs stay"


def torch_checkpoint(plan: ChainPlan) -> Exported:
    """Return Python code that wraps blocks with `torch.utils.checkpoint`."""
    found = plan.verified(plan.closest)
    losses = (*plan.losses, "blocks of one segment get the arguments of its first block")
    return _exported(plan, found, losses, lambda notes: _python(plan, found.policy, notes))


def torchtitan(plan: ChainPlan) -> Exported:
    """Return the section `activation_checkpoint` of torchtitan's configuration."""
    length = plan.instance.length
    modes: dict[Policy, tuple[str, ...]] = {
        Policy(): ('mode = "none"',),
        Policy.each(range(length)): ('mode = "full"',),
    }
    for every in range(2, length + 1):
        policy = Policy.each(range(every - 1, length, every))
        modes.setdefault(policy, ('mode = "selective"', f'selective_ac_option = "{every}"'))
    found = plan.best(modes)
    losses = (*plan.losses, f"every n-th layer, or none, or all are recomputed; {ONE_BY_ONE}", TWICE)
    lines = ("[activation_checkpoint]", *modes[found.policy])
    return _exported(plan, found, losses, lambda notes: _lines("# ", notes, lines))


def megatron(plan: ChainPlan) -> Exported:
    """Return the recomputation flags of Megatron-LM."""
    length = plan.instance.length
    flags: dict[Policy, tuple[str, ...]] = {Policy(): ()}
    for count in range(1, length + 1):
        full = ("recompute-granularity full",)
        more = (f"recompute-num-layers {count}",)
        flags.setdefault(Policy.each(range(count)), (*full, "recompute-method block", *more))
        chunks = tuple(tuple(range(first, min(first + count, length))) for first in range(0, length, count))
        flags.setdefault(Policy(chunks), (*full, "recompute-method uniform", *more))
    found = plan.best(flags)
    losses = (*plan.losses, "the first n layers are recomputed one by one, or all layers in groups of n", TWICE)
    return _exported(
        plan, found, losses, lambda notes: _lines("# ", notes, tuple(f"--{flag}" for flag in flags[found.policy]))
    )


def layer_ids(plan: ChainPlan) -> Exported:
    """Return the ids of recomputed layers, as Primus takes them."""
    found = plan.verified(Policy.each(plan.closest.stages))
    losses = (*plan.losses, f"a layer is recomputed or not; {ONE_BY_ONE}", TWICE)
    lines = ids_lines(found.policy.stages)
    return _exported(plan, found, losses, lambda notes: _lines("# ", notes, lines))


def ids_lines(ids: tuple[int, ...]) -> tuple[str, ...]:
    """Return the keys of Primus for the ids of recomputed layers, counted from 0."""
    if not ids:
        return ("recompute_granularity: null",)
    return ("recompute_granularity: full", "recompute_method: block", f"recompute_layer_ids: [{_listed(ids)}]")


def flagscale(plan: ChainPlan) -> Exported:
    """Return the lists per stage and micro-batch of FlagScale: here one stage and one micro-batch."""
    length = plan.instance.length
    found = plan.best(Policy.each(range(count)) for count in range(length + 1))
    losses = (*plan.losses, "the first n layers of a stage are recomputed one by one", TWICE)
    lines = flagscale_lines([[len(found.policy.stages)]])
    return _exported(plan, found, losses, lambda notes: _lines("# ", notes, lines))


def flagscale_lines(counts: list[list[int]]) -> tuple[str, ...]:
    """Return FlagScale's keys for the number of recomputed layers of each stage and micro-batch.

    Each row begins with the number of stages that it is for; pairs follow, a number of micro-batches and their value.
    """

    def rows(value: Callable[[int], int]) -> str:
        found: list[list[int]] = []
        for stage in counts:
            row = [1]
            for count in stage:
                if len(row) > 1 and row[-1] == value(count):
                    row[-2] += 1
                else:
                    row += [1, value(count)]
            if found and found[-1][1:] == row[1:]:
                found[-1][0] += 1
            else:
                found.append(row)
        return "".join(f"\n  - [{_listed(row)}]" for row in found)

    return (
        "recompute_granularity: full",
        "recompute_method: block",
        "recompute_num_layers: 1",
        f"recompute_granularity_per_stage_micro_batch:{rows(lambda count: int(count > 0))}",
        f"recompute_method_per_stage_micro_batch:{rows(lambda _: 1)}",
        f"recompute_num_layers_per_stage_micro_batch:{rows(lambda count: count)}",
    )


CHAIN_FORMATS: dict[str, Callable[[ChainPlan], Exported]] = {
    "torch-checkpoint": torch_checkpoint,
    "torchtitan": torchtitan,
    "megatron": megatron,
    "layer-ids": layer_ids,
    "flagscale": flagscale,
}


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, numbers))


def _exported(
    plan: ChainPlan, found: Verified, losses: tuple[str, ...], text: Callable[[tuple[str, ...]], str]
) -> Exported:
    over = ("the policy needs more memory than the plan",) if found.peak > plan.peak else ()
    notes = (plan.compared(found), *over, *losses)
    return Exported(text(notes), notes, found.peak, found.result.makespan or 0)


def _lines(mark: str, notes: tuple[str, ...], lines: tuple[str, ...]) -> str:
    return "".join(f"{line}\n" for line in (*(f"{mark}{note}" for note in notes), *lines))


def _python(plan: ChainPlan, policy: Policy, notes: tuple[str, ...]) -> str:
    names = plan.names
    said = "".join(f"- {note}\n" for note in notes)
    how = "[model.get_submodule(name) for name in NAMES]" if names else "the model's blocks, in order"
    return CODE.format(
        notes=said,
        how=how,
        names=f"NAMES = {json.dumps(list(names))}\n" if names else "",
        segments=json.dumps([list(segment) for segment in policy.segments]),
        statistics=STATISTICS,
    )


STATISTICS = '''

@contextmanager
def _without_statistics(inner, blocks):
    """Put running statistics back after a block has run again, so that only its first run updates them."""
    parts = [part for block in blocks for part in block.modules()]
    parts = [part for part in parts if part.training and getattr(part, "track_running_stats", False)]
    buffers = [(buffer, buffer.clone()) for part in parts for buffer in part.buffers(recurse=False)]
    try:
        with inner:
            yield
    finally:
        for buffer, before in buffers:
            buffer.data.copy_(before)
'''
"""Part of exported code."""

CODE = '''"""Activation checkpointing as planned by remat.

{notes}
Call apply({how}) before training."""

from contextlib import contextmanager, nullcontext

from torch.utils.checkpoint import checkpoint

{names}SEGMENTS = {segments}  # places of blocks; each list is recomputed together, once


def apply(blocks):
    """Checkpoint the blocks of a model, given in order; each takes and returns one tensor."""
    for segment in SEGMENTS:
        first, *others = [blocks[place] for place in segment]
        first.forward = _checkpointed([first, *others])
        for block in others:
            block.forward = _passed


def _checkpointed(blocks):
    forwards = [block.forward for block in blocks]

    def contexts():
        return nullcontext(), _without_statistics(nullcontext(), blocks)

    def run(hidden, *args, **kwargs):
        for forward in forwards:
            hidden = forward(hidden, *args, **kwargs)
        return hidden

    return lambda hidden, *args, **kwargs: checkpoint(
        run, hidden, *args, use_reentrant=False, context_fn=contexts, **kwargs
    )


def _passed(hidden, *args, **kwargs):
    return hidden
{statistics}'''
