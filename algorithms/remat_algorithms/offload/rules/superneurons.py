"""`superneurons`: what dear stages produce leaves where it must, what cheap stages between them produce is remade.

After Wang, Ye, Zhao et al. 2018, "SuperNeurons: dynamic GPU memory management for training deep neural networks".
Convolutions are dear; their outputs and the input are checkpoints. A maximal run of cheap stages a+1 .. b between two
dear ones is a segment, remade from its checkpoint x_a:

- speed-centric: all of it once, before the first backward that reads any of it, B_{b+1}; b - a forwards;
- memory-centric: for each of B_{b+1} .. B_{a+2} anew, as far as it reads; (b-a)(b-a+1)/2 forwards.

By segment, the first is chosen where what it holds is not above the most that any single run holds, else the second.
Checkpoints leave as from a cache: only while there is no room, the least recently used one first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from remat.plugin import BoolArray, Chain, Context, OptionError, Options, Problem, Proposal
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.unsupported import refuse_alternatives
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import proposal_of
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.stages import named, stages_named
from remat_algorithms.offload.swaps.swaps import Order


class SuperneuronsOptions(Options):
    """Options of `superneurons`."""

    stages: str | None = Field(
        None,
        description="dear stages: those whose name contains one of these words, separated by commas, or all of whose "
        "operators do. Default: conv, or, where there is none, those whose forward takes the mean or longer",
    )


def solve(problem: Problem, options: SuperneuronsOptions, context: Context) -> Proposal:
    """Remake cheap stages and offload what dear ones produce.

    Takes instances of kind `chain`. Without a way out of the processor's memory and back, checkpoints stay. Gives the
    quickest of three schedules that fits: nothing remade, remade by segment, all segments memory-centric.

    Raises
    ------
    remat.OptionError
        If a stage has variants, or no stage has such a name.

    Notes
    -----
    O(runs gaps), of at most O(L^2) runs.
    """
    refuse_alternatives(problem, "superneurons")
    ways = routes(problem.machine)
    dear = dear_stages(problem, options.stages)
    phases = Phases.of(problem.chain)
    order = Order.of(problem)
    reference = Choice(problem, order, ways)
    if reference.fits:
        plan = reference.plan([])
        assert plan is not None, "nothing moves"
        return proposal_of(plan, context, source="superneurons")
    orders = [order, *(Order(problem.graph, problem.machine, tasks) for tasks in _remade(problem.chain, phases, dear))]
    plan = best_of(_plan(Choice(problem, order, ways), dear) for order in orders)
    if plan is None:
        return Proposal(notes=("superneurons found no schedule within the budget",))
    return proposal_of(plan, context, source="superneurons")


def dear_stages(problem: Problem, words: str | None) -> list[int]:
    """Return the stages (0-based) that are never remade.

    Raises
    ------
    remat.OptionError
        If words are given and no stage has one in its name or operators.
    """
    found = stages_named(problem, "conv" if words is None else words, mixed=False)
    if found or words is None:
        time = problem.chain.forward_time
        return found or np.flatnonzero(time >= time.mean() * (1 - 1e-9)).tolist()
    raise OptionError(
        f"superneurons found no stage whose name or operators contain {words!r}; {named(problem)}", option="stages"
    )


def cheap_segments(dear: Sequence[int]) -> list[tuple[int, int]]:
    """Return the maximal ranges (first, end) of cheap stages before a dear one; what follows the last one stays."""
    ends = [-1, *dear]
    return [(first + 1, end) for first, end in zip(ends, dear, strict=False) if end > first + 1]


def _remade(chain: Chain, phases: Phases, dear: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs with segments remade: as each should be, then all memory-centric."""
    segments = cheap_segments(dear)
    if not segments:
        return
    largest = _largest_need(chain)
    for by_segment in (True, False):
        runs: BoolArray = np.zeros((chain.length + 1, chain.length), dtype=np.bool_)
        runs[chain.length] = True
        for first, end in segments:
            held = int(chain.activation_size[first + 1 : end + 1].sum() + chain.saved_size[first:end].sum())
            if by_segment and held <= largest:
                runs[end, first:end] = True
                continue
            for phase in range(end, first, -1):
                runs[phase, first:phase] = True
        yield phases.tasks(runs)


def _largest_need(chain: Chain) -> int:
    """Return the most bytes that one stage's run reads, writes and works with."""
    x, y = chain.activation_size, chain.gradient_size
    forward = x[:-1] + x[1:] + chain.saved_size + chain.saving_workspace
    backward = x[:-1] * chain.reads_input + x[1:] * chain.reads_output + chain.saved_size * chain.reads_saved
    backward = backward + y[:-1] + y[1:] + chain.backward_workspace
    return int(max(forward.max(), backward.max()))


def _plan(choice: Choice, dear: Sequence[int]) -> Plan | None:
    """Let checkpoints leave, the least recently used first, while there is no room; None where that is not enough."""
    if not choice.fits and not choice.routes:
        return None
    length = choice.problem.chain.length
    # x0, the outputs x_{k+1} of dear stages k, and what those save (s_k, behind all x).
    kept = {0, *(stage + 1 for stage in dear)}
    if choice.problem.chain.saves:
        kept |= {length + 1 + stage for stage in dear}
    gaps = [gap for gap in choice.candidates.tolist() if choice.order.gaps[gap].value in kept]
    return choice.plan(choice.select(sorted(gaps, key=lambda gap: (choice.after[gap], gap))))
