"""Named schedules: layers cut evenly by time, and operations in the order of a rule (see `rules`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

from pydantic import Field

from remat.plugin import Context, OptionError, Options, Orders, Pass, Phase, PipelineInstance, Problem, Proposal, Stage
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.limited_zero_bubble import limited_order
from remat_algorithms.parallel.pipeline.partition import balanced_cuts
from remat_algorithms.parallel.pipeline.replicas import Replicas
from remat_algorithms.parallel.pipeline.stages import check_copies, needs_flush, staging


class ReplicaOptions(Options):
    """Options of named schedules."""

    replicas: int = Field(
        default=1,
        ge=1,
        le=4096,
        description="number of devices that hold a replica of each stage; the instance's `copies` must allow it",
    )
    sharing: Literal["turns", "parts"] = Field(
        default="turns",
        description="how replicas share the work: `turns` distributes micro-batches round-robin, `parts` splits each "
        "micro-batch",
    )


class ChunkOptions(ReplicaOptions):
    """Options of the interleaved schedule."""

    chunks: int = Field(default=2, ge=1, le=64, description="number of model chunks on each device")


class LimitOptions(ReplicaOptions):
    """Options of zero-bubble schedules."""

    limit: float | None = Field(
        default=None,
        ge=1,
        le=1e9,
        description="maximum number of activations on each device; orders are then simulated with the instance's "
        "times. Default: the fixed order of the schedule",
    )


def orders_of(instance: PipelineInstance, lists: rules.Lists | rules.PairedLists, *, every: int = 1) -> Orders:
    """Assign layers to the parts of a rule, minimising the time of the slowest part.

    Operations on halves become whole operations if the layers of a stage have no halves. The rule's devices are every
    `every`-th device of the instance.

    Raises
    ------
    OptionError
        If the instance allows fewer copies of a layer than the rule keeps, or has too few layers.
    """
    needs_flush(instance)
    homes = [
        sorted({device * every for device, part in zip(lists.place, lists.part, strict=True) if part == wanted})
        for wanted in range(lists.parts)
    ]
    check_copies(instance, max(len(devices) for devices in homes))
    cuts = balanced_cuts(instance, homes)
    stages = tuple(
        Stage(tuple(range(cuts[part], cuts[part + 1])), device)
        for device, part in zip(lists.place, lists.part, strict=True)
    )
    layers = instance.each_layer()
    halves = [any(layers[layer].is_split for layer in stage.layers) for stage in stages]
    if isinstance(lists, rules.PairedLists):
        return _paired(stages, lists, halves)
    if all(halves):
        return Orders(stages, lists.lists)
    return Orders(stages, tuple(tuple(without_halves(operations, halves)) for operations in lists.lists))


def _paired(stages: tuple[Stage, ...], lists: rules.PairedLists, halves: list[bool]) -> Orders:
    """Return orders in which some operations run at the same time."""
    found: list[tuple[Pass, ...]] = []
    paired: list[frozenset[int]] = []
    for operations in lists.lists:
        listed: list[Pass] = []
        second: set[int] = set()
        for one in operations:
            listed += without_halves((one.forward, one.backward) if isinstance(one, rules.Pair) else (one,), halves)
            if isinstance(one, rules.Pair):
                second.add(len(listed) - 1)
        found.append(tuple(listed))
        paired.append(frozenset(second))
    return Orders(stages, tuple(found), tuple(paired))


def without_halves(operations: tuple[Pass, ...], halves: list[bool]) -> list[Pass]:
    """Return operations without the weight-gradient halves that stages do not have."""
    return [
        operation._replace(phase=Phase.B) if operation.phase is Phase.BW and not halves[operation.stage] else operation
        for operation in operations
        if operation.phase is not Phase.W or halves[operation.stage]
    ]


def _solved(
    problem: Problem, rule: Callable[[int, int], rules.Lists | rules.PairedLists], options: ReplicaOptions
) -> Proposal:
    replicas = Replicas(options.replicas, options.sharing == "parts")
    replicas.check(problem)
    instance, devices = problem.instance, len(problem.machine.processors) // replicas.count
    assert isinstance(instance, PipelineInstance)
    lists = rule(devices, instance.micro_batches // (1 if replicas.parts else replicas.count))
    check_copies(instance, replicas.count * max(Counter(lists.part).values()))
    # The cuts are those of every first device; its replicas run the same operations.
    return Proposal(orders=replicas.spread(orders_of(instance, lists, every=replicas.count)))


def _whole_backwards(
    problem: Problem, rule: Callable[..., rules.Lists], options: ReplicaOptions, **more: int
) -> Proposal:
    """Solve with a rule that runs each backward as a whole, whether it has halves or not."""
    split = _has_halves(problem)
    return _solved(problem, lambda devices, batches: rule(devices, batches, split=split, **more), options)


def _has_halves(problem: Problem) -> bool:
    return isinstance(problem.instance, PipelineInstance) and problem.instance.is_split


def _in_halves(problem: Problem, rule: Callable[[int, int], rules.Lists], options: ReplicaOptions) -> Proposal:
    """Solve with a rule that runs the halves of backwards separately."""
    if not _has_halves(problem):
        raise OptionError(
            "this schedule runs the two halves of a backward separately, and no layer gives a weight_time; give one "
            "(the part of the backward for the gradients of the parameters), or use 1f1b",
            argument="algorithm",
        )
    return _solved(problem, rule, options)


def _zero_bubble(problem: Problem, rule: Callable[[int, int], rules.Lists], options: LimitOptions) -> Proposal:
    """Solve with a zero-bubble rule, or within a limit on activations."""
    if options.limit is None or not _has_halves(problem):
        return _in_halves(problem, rule, options)
    if options.replicas > 1:
        raise OptionError("a limit is for stages on one device each, without replicas", argument="limit")
    staged = staging(problem, "chain")
    return Proposal(orders=staged.orders(limited_order(staged.model, options.limit)))


def named_orders(problem: Problem) -> Iterator[Orders]:
    """Yield the orders of every named schedule that applies to a problem."""
    instance, devices = problem.instance, len(problem.machine.processors)
    assert isinstance(instance, PipelineInstance)
    whole = (rules.gpipe, rules.one_forward_one_backward, rules.eager_one_forward_one_backward, rules.interleaved)
    for rule in (*whole, rules.chimera, rules.gems):
        with suppress(OptionError):
            yield orders_of(instance, rule(devices, instance.micro_batches, split=instance.is_split))
    for halves in (rules.zb_h1, rules.zb_h2, rules.zb_v, rules.v_half, rules.v_min) if instance.is_split else ():
        with suppress(OptionError):
            yield orders_of(instance, halves(devices, instance.micro_batches))


def solve_gpipe(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """All forwards, then all backwards (Huang et al. 2019)."""
    return _whole_backwards(problem, rules.gpipe, options)


def solve_1f1b(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """One forward, one backward, after the fewest forwards that keep the last stage busy (Fan et al. 2021)."""
    return _whole_backwards(problem, rules.one_forward_one_backward, options)


def solve_eager(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """1F1B with twice as many initial forwards, which hides hops."""
    return _whole_backwards(problem, rules.eager_one_forward_one_backward, options)


def solve_interleaved(problem: Problem, options: ChunkOptions, context: Context) -> Proposal:
    """1F1B with several chunks of the model on each device (Narayanan et al. 2021)."""
    return _whole_backwards(problem, rules.interleaved, options, chunks=options.chunks)


def solve_chimera(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Two pipelines in opposite directions (Li and Hoefler 2021)."""
    return _whole_backwards(problem, rules.chimera, options)


def solve_gems(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Alternate micro-batches from both ends, with one activation per device (Jain et al. 2020)."""
    return _whole_backwards(problem, rules.gems, options)


def solve_dualpipe(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Two pipelines in opposite directions, with simultaneous forwards and backwards (DeepSeek-AI 2024)."""
    return _solved(problem, rules.dualpipe, options)


def solve_dualpipev(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """DualPipe folded: two chunks per device in a V, one copy of the model (DeepSeek-AI 2025)."""
    return _solved(problem, rules.dualpipev, options)


def solve_zb_h1(problem: Problem, options: LimitOptions, context: Context) -> Proposal:
    """Zero bubble in the memory of 1F1B (Qi et al. 2024)."""
    return _zero_bubble(problem, rules.zb_h1, options)


def solve_zb_h2(problem: Problem, options: LimitOptions, context: Context) -> Proposal:
    """Zero bubble in up to twice the memory of 1F1B (Qi et al. 2024)."""
    return _zero_bubble(problem, rules.zb_h2, options)


def solve_zb_v(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Two chunks per device in a V, in the memory of 1F1B (Qi et al. 2024)."""
    return _in_halves(problem, rules.zb_v, options)


def solve_v_half(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Two chunks per device in a V, in about half the memory of 1F1B (Qi et al. 2024)."""
    return _in_halves(problem, rules.v_half, options)


def solve_v_min(problem: Problem, options: ReplicaOptions, context: Context) -> Proposal:
    """Two chunks per device in a V, in about a third of the memory of 1F1B (Qi et al. 2024)."""
    return _in_halves(problem, rules.v_min, options)
