"""`checkmate-lp`: two-phase rounding of the relaxation of Checkmate's program."""

from __future__ import annotations

from collections.abc import Sequence

from remat_algorithms.dag.programs.frontier import Frontier
from remat_algorithms.dag.programs.stage_program import Formulation
from remat_algorithms.kit.programs.program import FloatArray


def kept_at_borders(form: Formulation, solution: FloatArray, threshold: float) -> list[set[int]]:
    """Return the values that are resident at the beginning of each stage, in the rounded relaxation."""
    return [
        {value for value, column in border.items() if solution[column] >= threshold - 1e-9} for border in form.borders
    ]


def least_runs(front: Frontier, keep: Sequence[set[int]]) -> list[tuple[int, int]] | None:
    """Return the minimum runs (stage, position) for given values kept at the borders of stages, after Jain et al.

    In each stage, run its last task. Recursively, run the producers of missing inputs, and of missing values to keep.
    Values that no task can recompute are always kept.

    Returns
    -------
    list or None
        None if some value is lost for good.
    """
    chosen: list[tuple[int, int]] = []
    done = [0] * len(front.tasks)
    precious = [
        all(front.single[position] for position in makers) and bool(front.users[value] or value in front.outputs)
        for value, makers in enumerate(front.makers)
    ]
    there = set(front.inputs)
    for stage in range(front.stages):
        there = {
            value
            for value in there
            if (value in keep[stage] or precious[value]) and (front.needed_until[value] >= stage)
        }
        after = keep[stage + 1] if stage + 1 < front.stages else front.outputs
        runs = _stage_runs(front, stage, there, sorted(after), done)
        if runs is None:
            return None
        for position in runs:
            done[position] += 1
            chosen.append((stage, position))
            there.update(front.writes[position])
    return chosen if front.outputs <= there else None


def _stage_runs(front: Frontier, stage: int, there: set[int], after: list[int], done: list[int]) -> list[int] | None:
    """Return the positions to run in a stage; values of `after` that no run can compute in it are left out."""
    runs: set[int] = set()
    final = stage == front.stages - 1
    goals: list[tuple[int, int, bool]] = []  # value, position before which it is needed, whether it is mandatory
    if front.terminal[stage]:
        runs.add(front.end[stage])
        goals += [(value, front.end[stage], True) for value in front.reads[front.end[stage]]]
    goals += [(value, front.end[stage] + 1, final) for value in after]
    while goals:
        value, reader, needed = goals.pop()
        if value in there or any(position < reader and position in runs for position in front.makers[value]):
            continue
        makers = [
            position
            for position in front.makers[value]
            if position < reader
            and front.may_run(stage, position)
            and not (front.single[position] and done[position])
            and not (front.forced[position] and front.single[position] and front.first[position] != stage)
            and value not in front.reads[position]
        ]
        if not makers:
            if needed:
                return None
            continue
        best = min(makers, key=lambda position: (front.time[position], position))
        runs.add(best)
        goals += [(other, best, True) for other in front.reads[best]]
    return sorted(runs)
