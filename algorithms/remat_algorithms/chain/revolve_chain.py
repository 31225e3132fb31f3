"""`chen-greedy` and `revolve-chain`: positions of checkpoints in a chain, by rules based only on sizes or on counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from remat.plugin import Chain, Context, LeastBudget, Number, Options, Problem, Proposal, check_length, run_in_order
from remat_algorithms.chain.floating.rotor_float import total_time
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.segments import RunList, Segments
from remat_algorithms.chain.strategies import segmented
from remat_algorithms.chain.unsupported import refuse_alternatives
from remat_algorithms.kit.binomial import advances, first_split

MOST_LIMITS = 200
"""Maximum number of limits b tried."""

MOST_SLOTS = 200
"""Largest number of slots up to which every smaller number is tried, too."""


class ChenGreedyOptions(Options):
    """Options of `chen-greedy`."""

    limit: int | None = Field(
        None,
        ge=0,
        description="bytes of outputs and saved values after which a segment ends; default: search for the best limit",
    )


class RevolveChainOptions(Options):
    """Options of `revolve-chain`."""

    saved: bool = Field(
        False,
        description="save all stages of a range that has no more stages than there are free slots; default: store "
        "inputs only",
    )


def solve_chen_greedy(problem: Problem, options: ChenGreedyOptions, context: Context) -> Proposal:
    """Cut the chain into segments of about equal bytes (Chen et al. 2016, algorithm 3).

    Going forward, the outputs and saved values of the stages are summed. Once the sum exceeds b, a new segment and a
    new sum begin with the next stage. The inputs of the segments are kept. Each segment is recomputed with saving
    before its backwards; the last segment is saved in the first sweep. Up to 200 values of b, between the largest stage
    and the total, are tried. The fastest schedule that fits is returned.

    Takes instances of kind `chain` and uses only the working memory. Returns no schedule if no b leads to one that
    fits. O(L) for each b; cuts whose kept bytes exceed the budget are not examined further.

    Raises
    ------
    remat.OptionError
        If a stage has several saving forwards.
    """
    refuse_alternatives(problem, "chen-greedy")
    chain = problem.chain
    kept = chain.activation_size[1:] + np.where(chain.reads_saved & chain.saves, chain.saved_size, 0)
    if options.limit is not None:
        limits = [options.limit]
    else:
        low, high = max(1, int(kept.max())), max(1, int(kept.sum()))
        spread = np.geomspace(low, high, MOST_LIMITS)
        limits = sorted({0, high, *(int(limit) for limit in spread)})
    cuts = {cut_by_bytes(kept.tolist(), limit): None for limit in limits}
    return _quickest(problem, list(cuts), context)


def cut_by_bytes(sizes: Sequence[int], limit: int) -> tuple[int, ...]:
    """Return the first stages of segments, each of which ends once its bytes exceed `limit`."""
    starts, total = [0], 0
    for stage, size in enumerate(sizes[:-1]):
        total += size
        if total > limit:
            starts.append(stage + 1)
            total = 0
    return tuple(starts)


def solve_revolve_chain(problem: Problem, options: RevolveChainOptions, context: Context) -> Proposal:
    """Apply Revolve (Griewank & Walther 2000) as if all stages were equal.

    The schedule has as many slots as fit, including that of x_0. Counts are tried from the largest one with which the
    smallest activations fit; of chains with more than 200 stages, some counts are left out.

    Takes instances of kind `chain` and uses only the working memory. Returns no schedule if a single slot does not fit.

    Raises
    ------
    remat.OptionError
        If a stage has several saving forwards.
    """
    refuse_alternatives(problem, "revolve-chain")
    chain, segments = problem.chain, Segments.of(problem.chain)
    phases = Phases.of(chain)
    slots = _most_slots(problem, segments)
    while True:
        check_length(advances(segments.length + 1, slots), f"revolve-chain with {slots} slots", context.limit)
        tasks = revolved(chain, segments, slots, saved=options.saved)
        peak = phases.peak(tasks) + chain.static_memory
        if problem.budget is None or peak <= problem.budget:
            steps = run_in_order(problem.graph, problem.machine, tasks)
            return Proposal(steps=steps, makespan=total_time(problem, tasks), peak=peak)
        if slots == 1:
            return Proposal(least=LeastBudget(peak, None, sufficient=True))
        slots -= max(1, slots // MOST_SLOTS)


def _most_slots(problem: Problem, segments: Segments) -> int:
    """Return the largest number of slots for which the smallest activations fit, next to x_0 in its slot."""
    chain, most = problem.chain, segments.length + 1
    if problem.budget is None:
        return most
    smallest = np.sort(chain.activation_size[1:]).cumsum()
    free = problem.budget - chain.static_memory - int(chain.activation_size[0])
    return min(most, 1 + int(np.searchsorted(smallest, free, side="right")))


def revolved(chain: Chain, segments: Segments, slots: int, *, saved: bool) -> list[int]:
    """Return the runs of Revolve's schedule, with the loss as an additional step."""
    length = segments.length
    runs = RunList(segments, has_saving=chain.saves)
    stack = [(0, length, slots)]
    while stack:
        first, last, free = stack.pop()
        count = last - first + 1
        if count == 1:
            runs.leaf(first)
        elif saved and count <= free:
            for stage in range(first, last if last == length else last + 1):
                runs.save(stage)
            for stage in range(last, first - 1, -1):
                runs.backward(stage)
        elif free == 1:
            for stage in range(last, first - 1, -1):
                runs.sweep(first, stage)
                runs.leaf(stage)
        else:
            split = first + first_split(count, free)
            runs.sweep(first, split)
            stack += [(first, split - 1, free), (split, last, free - 1)]
    return runs.tasks


def _quickest(problem: Problem, cuts: list[tuple[int, ...]], context: Context) -> Proposal:
    """Return the fastest schedule that fits among those with segments at the given cuts; else their minimum peak."""
    chain, phases = problem.chain, Phases.of(problem.chain)
    budget = math.inf if problem.budget is None else problem.budget
    kept = [most_kept(chain, starts) + chain.static_memory for starts in cuts]
    before = np.append(0, chain.forward_time.cumsum())
    best: tuple[Number, int, list[int]] | None = None
    # Swept stages are recomputed, so this is nearly the order of the makespans.
    for index in sorted(range(len(cuts)), key=lambda index: before[cuts[index][-1]]):
        if kept[index] > budget:
            continue
        if context.stopped:
            break
        tasks = segmented(chain, cuts[index])
        time = total_time(problem, tasks)
        if best is not None and time > best[0]:
            continue
        peak = phases.peak(tasks) + chain.static_memory
        if peak <= budget and (best is None or (time, peak) < best[:2]):
            best = time, peak, tasks
            context.report(run_in_order(problem.graph, problem.machine, tasks), makespan=time)
    if best is not None:
        time, peak, tasks = best
        return Proposal(steps=run_in_order(problem.graph, problem.machine, tasks), makespan=time, peak=peak)
    if context.stopped:
        return Proposal(termination=context.termination)
    least = math.inf
    for index in sorted(range(len(cuts)), key=kept.__getitem__):
        if kept[index] < least:
            least = min(least, phases.peak(segmented(chain, cuts[index])) + chain.static_memory)
    return Proposal(least=LeastBudget(int(least), None, sufficient=True))


def most_kept(chain: Chain, starts: Sequence[int]) -> int:
    """Return the maximum of the bytes kept when a segment has been saved, a lower bound on its schedule's peak.

    The bytes are those of the inputs of earlier segments, and of the values that the segment's own backwards read.
    O(L).
    """
    first, ends = np.array(starts), np.array([*starts[1:], chain.length])
    again = (ends - first > 1) | Segments.of(chain).leaf_forward[first]
    inputs = np.where(again, chain.activation_size[first], 0)
    wanted = chain.reads_input.copy()
    wanted[1:] |= chain.reads_output[:-1]
    wanted[first] = False
    saved = np.where(chain.reads_saved & chain.saves, chain.saved_size, 0)
    read = np.add.reduceat(saved + np.where(wanted, chain.activation_size[:-1], 0), first)
    return int((inputs.cumsum() - inputs + read).max())
