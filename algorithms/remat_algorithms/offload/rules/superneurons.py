"""`superneurons`: offload outputs of expensive stages if necessary, recompute those of the cheap stages between them.

After Wang, Ye, Zhao et al. 2018, "SuperNeurons: dynamic GPU memory management for training deep neural networks".
Convolutions are expensive; their outputs and the input are checkpoints. A maximal run of cheap stages a+1 .. b between
two expensive ones is a segment, recomputed from its checkpoint x_a:

- speed-centric: all of it once, before the first backward that reads any of it, B_{b+1}; b - a forwards;
- memory-centric: separately for each of B_{b+1} .. B_{a+2}, up to the values it reads; (b-a)(b-a+1)/2 forwards.

A segment is speed-centric if it holds no more than the maximum that any single run holds, otherwise memory-centric.
Checkpoints leave as from a cache: only while memory is short, the least recently used one first.

In a graph with forks and joins, segments are the connected components of cheap tasks that some expensive task depends
on. Segments read outputs of expensive tasks, which stay or leave like these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pydantic import Field

from remat.plugin import BoolArray, Chain, Context, DagInstance, OptionError, Options, Problem, Proposal
from remat_algorithms.chain.phase_matrix import Phases
from remat_algorithms.chain.unsupported import refuse_alternatives
from remat_algorithms.dag.literature.retention import Stages
from remat_algorithms.dag.literature.retention_phases import Training, training_of
from remat_algorithms.dag.recompute import remake
from remat_algorithms.offload.swaps.gap_selection import Choice, Plan, best_of
from remat_algorithms.offload.swaps.offload_proposals import nothing_fits, proposal_of
from remat_algorithms.offload.swaps.routes import routes
from remat_algorithms.offload.swaps.stages import contains, named, stages_named, words_of
from remat_algorithms.offload.swaps.swaps import Order


class SuperneuronsOptions(Options):
    """Options of `superneurons`."""

    stages: str | None = Field(
        None,
        description="expensive stages, as words separated by commas: stages whose name, or each of whose operators, "
        "contains one of the words. Default: conv; without a match, stages whose forward takes at least the mean time",
    )


def solve(problem: Problem, options: SuperneuronsOptions, context: Context) -> Proposal:
    """Recompute cheap stages and offload outputs of expensive ones.

    Takes instances of kind `chain` or `dag`. Without links out of the processor's memory and back, checkpoints stay.
    Gives the fastest of three schedules that fits: no recomputation, recomputation by segment, all segments
    memory-centric.

    Raises
    ------
    remat.OptionError
        If a stage has variants, or no stage has such a name.

    Notes
    -----
    O(runs gaps), of at most O(L^2) runs.
    """
    ways = routes(problem.machine)
    if isinstance(problem.instance, DagInstance):
        training = training_of(problem, "superneurons")
        chosen = dear_tasks(problem, training, options.stages)
        kept = _kept_of_graph(training, chosen)
        remade = remade_in_graph(training, chosen)
    else:
        refuse_alternatives(problem, "superneurons")
        chosen = dear_stages(problem, options.stages)
        kept = _kept_of_chain(problem.chain, chosen)
        remade = _remade(problem.chain, Phases.of(problem.chain), chosen)
    order = Order.of(problem)
    reference = Choice(problem, order, ways)
    if reference.fits:
        plan = reference.plan([])
        if plan is None:  # the values that must leave, or begin elsewhere, exceed a memory
            return nothing_fits(reference, "superneurons")
        return proposal_of(plan, context, source="superneurons")
    orders = [order, *(Order(problem.graph, problem.machine, tasks) for tasks in remade)]
    plan = best_of(_plan(Choice(problem, order, ways), kept) for order in orders)
    if plan is None:
        return Proposal(notes=("superneurons found no schedule within the budget",))
    return proposal_of(plan, context, source="superneurons")


def dear_stages(problem: Problem, words: str | None) -> list[int]:
    """Return the stages (0-based) that are never recomputed.

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
    """Return the maximal ranges (first, end) of cheap stages before an expensive one; those after the last stay."""
    ends = [-1, *dear]
    return [(first + 1, end) for first, end in zip(ends, dear, strict=False) if end > first + 1]


def _remade(chain: Chain, phases: Phases, dear: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs with segments recomputed: each by its rule, then all memory-centric."""
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
    """Return the maximum bytes that one stage's run reads, writes and uses as workspace."""
    x, y = chain.activation_size, chain.gradient_size
    forward = x[:-1] + x[1:] + chain.saved_size + chain.saving_workspace
    backward = x[:-1] * chain.reads_input + x[1:] * chain.reads_output + chain.saved_size * chain.reads_saved
    backward = backward + y[:-1] + y[1:] + chain.backward_workspace
    return int(max(forward.max(), backward.max()))


def _kept_of_chain(chain: Chain, dear: Sequence[int]) -> set[int]:
    """Return x0, the outputs x_{k+1} of expensive stages k, and the values that those save (s_k, after all x)."""
    kept = {0, *(stage + 1 for stage in dear)}
    if chain.saves:
        kept |= {chain.length + 1 + stage for stage in dear}
    return kept


def dear_tasks(problem: Problem, training: Training, words: str | None) -> list[int]:
    """Return the forward stages of a graph that are never recomputed.

    The words are searched in a task's operator or, if its origin names none, in the last part of its name.

    Raises
    ------
    remat.OptionError
        If words are given and no task has one.
    """
    assert isinstance(problem.instance, DagInstance)
    tasks = problem.instance.tasks
    operators = [task.origin.op or task.id.rpartition(".")[2] for task in tasks]
    parts, stages = words_of("conv" if words is None else words), training.stages
    found = [stage for stage in range(training.forward) if contains((operators[stages.tasks[stage]],), parts)]
    if found or words is None:
        mean = sum(stages.time[: training.forward]) / max(1, training.forward)
        return found or [stage for stage in range(training.forward) if stages.time[stage] >= mean * (1 - 1e-9)]
    raise OptionError(f"superneurons found no forward task whose operator contains {words!r}", option="stages")


def _kept_of_graph(training: Training, dear: Sequence[int]) -> set[int]:
    """Return the inputs and the values that expensive stages produce."""
    stages = training.stages
    inputs = (value for value, maker in enumerate(stages.maker) if maker < 0)
    return {*inputs, *(value for stage in dear for value in stages.writes[stage])}


def cheap_components(training: Training, dear: Sequence[int]) -> list[int]:
    """Return for each forward stage the number of its segment; -1 for expensive ones and those that none depends on."""
    behind, kept = [False] * training.forward, set(dear)
    segment = [-1] * training.forward
    for stage in range(training.forward - 1, -1, -1):
        behind[stage] = any(other in kept or behind[other] for other in training.after[stage])
    for first in range(training.forward):
        if first in kept or not behind[first] or segment[first] >= 0:
            continue
        waiting = [first]
        segment[first] = first
        while waiting:
            stage = waiting.pop()
            for other in (*training.before[stage], *training.after[stage]):
                if other not in kept and behind[other] and segment[other] < 0:
                    segment[other] = first
                    waiting.append(other)
    return segment


def remade_in_graph(training: Training, dear: Sequence[int]) -> Iterator[list[int]]:
    """Yield the runs with segments recomputed: each by its rule, then all memory-centric."""
    stages, segment = training.stages, cheap_components(training, dear)
    lost: dict[int, list[int]] = {}
    for stage, mine in enumerate(segment):
        if mine >= 0:
            made = (value for value in stages.writes[stage] if not stages.fixed[value] and value not in stages.ends)
            lost.setdefault(mine, []).extend(made)
    if not any(training.backward_uses[value] for values in lost.values() for value in values):
        return
    largest = max(_bytes_of_run(stages, stage) for stage in range(len(stages)))
    at_once = {mine for mine, values in lost.items() if sum(stages.size[value] for value in values) <= largest}
    for whole in (at_once, set[int]()):
        away = {value for values in lost.values() for value in values}
        tasks = list(stages.tasks[: training.forward])
        for stage in range(training.forward, len(stages)):
            anew: list[int] = []
            for value in stages.reads[stage]:
                if value not in away:
                    continue
                mine = segment[stages.maker[value]]
                if mine not in whole:
                    anew += remake(training, value, away, tasks)
                    continue
                for other in lost[mine]:
                    if training.backward_uses[other]:
                        remake(training, other, away, tasks)
            tasks.append(stages.tasks[stage])
            away.update(anew)
        yield tasks


def _bytes_of_run(stages: Stages, stage: int) -> int:
    values = {*stages.reads[stage], *stages.writes[stage]}
    return sum(stages.size[value] for value in values) + int(stages.graph.workspace[stages.tasks[stage]])


def _plan(choice: Choice, kept: set[int]) -> Plan | None:
    """Offload checkpoints, the least recently used first, while memory is short; None if that is not enough."""
    if not choice.fits and not choice.routes:
        return None
    gaps = [gap for gap in choice.candidates.tolist() if choice.order.gaps[gap].value in kept]
    return choice.plan(choice.select(sorted(gaps, key=lambda gap: (choice.after[gap], gap))))
