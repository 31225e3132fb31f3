"""Strategies on chains: `store-all`, `recompute-all`, `fixed` and `periodic`; each is one schedule per instance.

A strategy names the stages whose inputs are kept during the first forward sweep. The stages between two of these form a
segment. They run without saving in the first sweep, and again with saving just before their backwards. The last segment
is saved in the first sweep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from remat.plugin import Chain, Context, OptionError, Options, Problem, Proposal, check_length, run_in_order


class FixedOptions(Options):
    """Options of `fixed`."""

    checkpoints: tuple[int, ...] | str = Field(
        (),
        description="stages whose inputs x_i are kept (0 always is), for example 0,4,8 or x0,x4,x8; for an adjoint: "
        "the states to store",
    )


class PeriodicOptions(Options):
    """Options of `periodic`."""

    segments: int | None = Field(None, ge=1, description="number of equal segments; default: round(sqrt(stages))")


def solve_store_all(problem: Problem, options: None, context: Context) -> Proposal:
    """Keep everything: one forward and one backward sweep, no recomputation (O(L))."""
    if problem.kind == "adjoint":
        from remat_algorithms.adjoint import strategies as adjoint

        return adjoint.store_all(problem, context)
    return _segmented(problem, [0])


def solve_recompute_all(problem: Problem, options: None, context: Context) -> Proposal:
    """Keep only x0, and recompute from it for every backward: O(L^2) runs."""
    if problem.kind == "adjoint":
        from remat_algorithms.adjoint import strategies as adjoint

        return adjoint.recompute_all(problem, context)
    from remat_algorithms.chain.segments import RunList, Segments

    segments = Segments.of(problem.chain)
    check_length(segments.length * (segments.length - 1) // 2, "recompute-all", context.limit)
    runs = RunList(segments, has_saving=problem.chain.saves)
    for stage in range(segments.length - 1, -1, -1):
        runs.sweep(0, stage)
        if stage == segments.length - 1:
            runs.save(stage)
            runs.backward(segments.length)
            runs.backward(stage)
        else:
            runs.leaf(stage)
    return Proposal(steps=run_in_order(problem.graph, problem.machine, runs.tasks))


def solve_fixed(problem: Problem, options: FixedOptions, context: Context) -> Proposal:
    """Keep the inputs of the stages named by the user.

    Raises
    ------
    remat.OptionError
        If a checkpoint is not a stage of this chain.
    """
    named = _numbers(options.checkpoints)
    if problem.kind == "adjoint":
        from remat_algorithms.adjoint import strategies as adjoint

        return adjoint.fixed(problem, named, context)
    length = problem.chain.length
    for stage in named:
        if not 0 <= stage < length:
            raise OptionError(f"{stage} is out of range; the stages are 0 to {length - 1}", option="checkpoints")
    return _segmented(problem, sorted({0, *named}))


def solve_periodic(problem: Problem, options: PeriodicOptions, context: Context) -> Proposal:
    """Cut the chain into k equal segments, as in Chen et al. 2016 and PyTorch's sequential checkpointing.

    All segments except the last have floor(L / k) stages; the last one is saved completely. Peak memory is O(sqrt L)
    for k = round(sqrt L), with one additional forward.
    """
    length = problem.chain.length
    count = options.segments if options.segments is not None else max(1, round(math.sqrt(length)))
    if count > length:
        raise OptionError(f"{count} segments of a chain of {length} stages; give at most {length}", option="segments")
    size = length // count
    return _segmented(problem, [size * k for k in range(count)])


def _numbers(given: tuple[int, ...] | str) -> list[int]:
    if not isinstance(given, str):
        return list(given)
    try:
        return [int(part.removeprefix("x")) for part in given.replace(" ", ",").split(",") if part]
    except ValueError:
        raise OptionError(f"{given[:60]!r} is not a list; write 0,4,8 or x0,x4,x8", option="checkpoints") from None


def _segmented(problem: Problem, starts: Sequence[int]) -> Proposal:
    return Proposal(steps=run_in_order(problem.graph, problem.machine, segmented(problem.chain, starts)))


def segmented(chain: Chain, starts: Sequence[int]) -> list[int]:
    """Return the runs of the schedule whose segments begin at the given stages (ascending, 0 first)."""
    from remat_algorithms.chain.segments import RunList, Segments

    segments = Segments.of(chain)
    length = segments.length
    runs = RunList(segments, has_saving=chain.saves)
    ends = [*starts[1:], length]
    runs.sweep(0, starts[-1])
    for number in range(len(starts) - 1, -1, -1):
        first, end = starts[number], ends[number]
        for stage in range(first, end):
            # A stage whose backward needs no forward runs only to reach the next one.
            last = number == len(starts) - 1 or stage < end - 1
            if last or segments.leaf_forward[stage]:
                runs.save(stage)
        if end == length:
            runs.backward(length)
        for stage in range(end - 1, first - 1, -1):
            runs.backward(stage)
    return runs.tasks
