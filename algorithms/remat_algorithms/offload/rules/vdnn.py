"""`vdnn-all`, `vdnn-conv`, `vdnn-pp`: inputs of stages leave during their forwards and return one stage ahead.

Rhu et al. 2016, "vDNN: virtualized deep neural networks for scalable, memory-efficient neural network design";
`vdnn-pp` after Shriram et al. 2019, "Dynamic memory management for GPU-based training of deep neural networks". For an
offloaded stage i, s_i is the size of its input x_{i-1}. While its forward runs, x_{i-1} leaves; the next run waits
until it has gone. From the loss on, each run prefetches the input of the nearest earlier stage that is away, j(i),
unless a prefetched one still waits for its use. The next run waits for that, too. On two channels, with enough memory,
the makespan is

    T = sum_i max(uF_i, s_i / bwD) + sum_i max(uB_i, s_j(i) / bwH),

where the loss is one of the runs of the second sum. `vdnn-pp` drops both barriers: a value that has arrived elsewhere
is freed, and a run waits only for its own inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import Field

from remat.plugin import Context, OptionError, Options, Problem, Proposal
from remat_algorithms.offload.swaps.gap_selection import Choice
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, rule_proposal
from remat_algorithms.offload.swaps.routes import Route, required_routes
from remat_algorithms.offload.swaps.stages import named, stages_named
from remat_algorithms.offload.swaps.swaps import Order
from remat_algorithms.offload.swaps.value_copies import Swap


class VdnnOptions(Options):
    """Options of `vdnn-all` and `vdnn-pp`."""

    stages: str | None = Field(
        None,
        description="offload only for stages whose name or operators contain one of these words, separated by commas; "
        "default: all stages",
    )
    saved: bool = Field(False, description="also offload what each stage saves for its backward, one stage later")


class VdnnConvOptions(VdnnOptions):
    """Options of `vdnn-conv`."""

    stages: str | None = Field(
        "conv",
        description="offload only for stages whose name or operators contain one of these words, separated by commas",
    )


def solve_all(problem: Problem, options: VdnnOptions, context: Context) -> Proposal:
    """Offload the input of every stage.

    Takes instances of kind `chain`, on a machine with links out of the processor's memory and back. Gives one schedule
    for all budgets; infeasible within this rule if that schedule needs more.

    Raises
    ------
    remat.OptionError
        If the machine has no link out, or none back, no stage has such a name, or stages have parameters.

    Notes
    -----
    O(L log L).
    """
    return _solve(problem, options, context, "vdnn-all", barriers=True)


def solve_conv(problem: Problem, options: VdnnConvOptions, context: Context) -> Proposal:
    """Offload the input of every convolution: as `solve_all`, for stages with such a name or such an operator."""
    return _solve(problem, options, context, "vdnn-conv", barriers=True)


def solve_pp(problem: Problem, options: VdnnOptions, context: Context) -> Proposal:
    """Offload the input of every stage; runs wait only for transfers whose value or memory they need."""
    return _solve(problem, options, context, "vdnn-pp", barriers=False)


def _solve(problem: Problem, options: VdnnOptions, context: Context, name: str, *, barriers: bool) -> Proposal:
    ways = required_routes(problem, name)
    # Updates are no stage's forward or backward. Access to the arrays of a chain with parameters refuses it.
    assert problem.chain.length
    order = Order.of(problem)
    chosen = (
        range(problem.chain.length) if options.stages is None else stages_named(problem, options.stages, mixed=True)
    )
    if not chosen:
        raise OptionError(
            f"{name} found no stage whose name or operators contain {options.stages!r}; {named(problem)}",
            option="stages",
        )
    swaps = stage_swaps(order, chosen, ways[0], saved=options.saved, barriers=barriers)
    choice = Choice(problem, order, ways)
    routed = choice.routed([swap.gap for swap in swaps])
    if routed is None:
        return nothing_fits(choice, name)
    swaps = [replace(swap, route=way.route) for swap, way in zip(swaps, routed, strict=True)]
    return rule_proposal(order, order.program(swaps), choice.dispatched(swaps), name, context)


def stage_swaps(order: Order, stages: Sequence[int], route: Route, *, saved: bool, barriers: bool) -> list[Swap]:
    """Return when each offloaded gap's value leaves and comes back.

    Parameters
    ----------
    order : Order
        L forwards, the loss, and the backwards from the last one on.
    stages : sequence of int
        Stages (0-based) whose inputs leave.
    route : Route
    saved, barriers : bool
    """
    length = len(order.tasks) // 2
    offloaded = set(stages)
    leaving: dict[int, list[Swap]] = {}
    for index, gap in enumerate(order.gaps):
        stage = gap.after  # run k < L is the forward of stage k
        if stage not in offloaded or gap.before <= length or not order.graph.size[gap.value]:
            continue
        written = gap.value in order.graph.writes[order.tasks[stage]].tolist()
        # The values that a forward saves are complete only at its end; the last stage's are needed again too soon.
        if written and (not saved or stage + 1 == length):
            continue
        leave = stage + written
        gone = leave + 1 if barriers else None
        leaving.setdefault(stage, []).append(Swap(gap=index, route=route, leave_with=leave, gone_by=gone))
    swaps: list[Swap] = []
    away, latest = sorted(leaving), length
    for run in range(length, 2 * length):
        # One stage ahead: nothing returns while the latest returned value still waits for its backward.
        if away and latest >= 2 * length - run:
            latest = away.pop()
            back = run + 1 if barriers else None
            swaps += [replace(swap, return_with=run, back_by=back) for swap in leaving[latest]]
    return swaps
