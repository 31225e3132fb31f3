"""Catalogue of the mathematical programs for task graphs: metadata only."""

from __future__ import annotations

from remat.plugin import Algorithm
from remat_algorithms.kit.catalogue import GENERAL

_FRONTIER = "frontier-advancing schedules of the reference order"

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        name="checkmate",
        solver="remat_algorithms.dag.programs.checkmate:solve",
        kinds=("taskgraph",),
        summary="integer program over stages; each stage advances to the next task of the reference order",
        guarantee="exact",
        within=_FRONTIER,
        complexity="integer program, O(n^2) binaries",
        reference="Jain et al. 2020",
        deviates="workspaces count at each run; an initial schedule prunes the program",
        options="remat_algorithms.dag.programs.checkmate:CheckmateOptions",
        requires=("ortools", "pulp"),
        anytime=True,
        covered_by=GENERAL,
    ),
    Algorithm(
        name="checkmate-lp",
        solver="remat_algorithms.dag.programs.checkmate:solve_rounded",
        kinds=("taskgraph",),
        summary="rounds the linear relaxation of `checkmate` in two phases, at nine thresholds",
        guarantee="heuristic",
        within=_FRONTIER,
        complexity="linear program, O(n^2) columns",
        reference="Jain et al. 2020",
        deviates="tries nine thresholds and checks every rounded schedule against the budget, which the paper's may "
        "exceed",
        options="remat_algorithms.dag.programs.checkmate:RoundingOptions",
        requires=("ortools", "pulp"),
        anytime=True,
        covered_by=GENERAL,
    ),
    Algorithm(
        name="moccasin",
        solver="remat_algorithms.dag.programs.moccasin:solve",
        kinds=("taskgraph",),
        summary="constraint program over retention intervals: each task runs at most a few times",
        guarantee="exact",
        within=f"{_FRONTIER}, at most 2 runs a task",
        complexity="constraint program, O(C n) intervals",
        reference="Bartan et al. 2023",
        deviates="CP-SAT, with a greedy schedule as its initial solution",
        options="remat_algorithms.dag.programs.moccasin:MoccasinOptions",
        requires=("ortools",),
        anytime=True,
        covered_by=GENERAL,
    ),
)
