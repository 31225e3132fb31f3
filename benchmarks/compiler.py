"""The small compiler against numba and against the interpreter: what compiling costs, and how quick the code is.

Each kernel is compiled in a process of its own, with nothing on disk. Where numba is installed, it gets the same text;
it knows no cells, so that kernels with some are compared with the interpreter alone.
"""

from __future__ import annotations

import ctypes
import importlib.util
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import remat
from benchmarks.harness import Stopwatch, measure, table
from benchmarks.rotor import chain

STAGES, SLOTS = 60, 200
COLUMNS = 300
TASKS = 120
ROUNDS, STEPS, LAYERS = 3, 500, 12


def _segments(stages: int) -> Any:
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.chain.segments import Segments

    return Segments.of(make_problem(remat.load(chain(stages))).chain)


def least_memory(stages: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return a kernel, its records, and the numbers of each call that makes up one run."""
    from remat_algorithms.chain.minimum_memory_kernel import FILL_COLUMN, Columns

    segments = _segments(stages)
    shape = len(segments.states.stage), segments.length + 1
    columns = Columns.of(segments, np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=segments.states.time.dtype))
    return FILL_COLUMN, [columns], [(last, True) for last in range(segments.length + 1)]


def floating_least(stages: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of the least memory of floating schedules."""
    from remat_algorithms.chain.floating.kernel import LEAST_COLUMN, Least
    from remat_algorithms.chain.floating.model import Needs

    segments = _segments(stages)
    needs = Needs.of(segments.chain, segments)
    given = {name: np.ascontiguousarray(getattr(needs, name)) for name in Least._fields[1:]}
    least = Least(np.zeros((2, *(3 * [stages + 1])), dtype=np.int64), **given)
    return LEAST_COLUMN, [least], [(last,) for last in range(stages + 1)]


def floating_times(stages: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of the least times of floating schedules, tapes left out."""
    from remat_algorithms.chain.floating.kernel import TIME_ROW, Times
    from remat_algorithms.chain.floating.model import Needs
    from remat_algorithms.chain.floating.table import Rows, Slots, cell

    segments = _segments(stages)
    needs = Needs.of(segments.chain, segments)
    budget = segments.saved_whole_need() // 2
    grid = Slots.of(budget, budget // SLOTS, up=True)
    rows = Rows.of(needs, grid)
    given = {name: np.ascontiguousarray(getattr(rows, name)) for name in Times._fields[2:]}
    tape = np.zeros((2, *rows.sweep.shape), dtype=np.int64)
    record = Times(np.zeros((2, cell(0, 0, stages + 1), grid.rows)), tape, **given)
    return TIME_ROW, [record], [(first, last) for last in range(stages + 1) for first in range(last, -1, -1)]


def phases(stages: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of the walk of `chain-best`."""
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.chain import phase_matrix_kernel
    from remat_algorithms.chain.phase_matrix import Phases

    problem = make_problem(remat.load(chain(stages)))
    facts = Phases.of(problem.chain)
    runs = np.tri(stages + 1, stages, dtype=np.bool_)
    room = facts.peak(facts.tasks(runs)) * 5 // 4
    walk = phase_matrix_kernel.walk_from(facts, runs, 12345)
    return phase_matrix_kernel.IMPROVE, [phase_matrix_kernel.facts_of(facts, room), walk], [(ROUNDS,)]


def greedy(tasks: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of the greedy on task graphs."""
    from remat.generate import generate
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.dag.plans import kernel, ruin_and_recreate
    from remat_algorithms.dag.plans.model import stage_model
    from remat_algorithms.dag.plans.search_state import Search

    model = stage_model(make_problem(remat.load(dict(generate("dag", "layered", nodes=tasks, seed=3)))))
    search = Search(model, 0, 0, compiled=True)
    budget = search.measure(model.tables.first, range(model.stages)).peak * 9 // 10
    return (
        kernel.ACT,
        list(search.records),
        [(budget, ruin_and_recreate.MEND, 1.0, 0.0), (budget, ruin_and_recreate.PRUNE, 1.0, 0.0)],
    )


def annealing(tasks: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of the walks on task graphs."""
    from remat.generate import generate
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.dag.anytime.local_search import kernel
    from remat_algorithms.dag.anytime.local_search.annealer import Annealer
    from remat_algorithms.dag.plans.model import stage_model

    model = stage_model(make_problem(remat.load(dict(generate("dag", "layered", nodes=tasks, seed=3)))))
    walks = Annealer(model, sum(model.tables.size) // 10, 3, compiled=True)
    walks.round(1, float("inf"), lambda: True)
    return kernel.ACT, list(walks.records), [(walks.budget, STEPS)]


def transfers(layers: int) -> tuple[Any, list[Any], list[tuple[Any, ...]]]:
    """Return the same of an order of runs with its transfers."""
    from benchmarks.hosts import host
    from remat.generate import generate
    from remat.solving.problem_setup import make_problem
    from remat_algorithms.offload.offload_greedy import rankings
    from remat_algorithms.offload.swaps.order_kernel import kernel, timing
    from remat_algorithms.offload.swaps.order_timing import Columns
    from remat_algorithms.offload.swaps.routes import routes

    instance = remat.load(dict(generate("dag", "transformer", layers=layers)))
    peak = remat.solve(instance, algorithm="keep-all", machine=host(12)).peak_memory["device"]
    problem = make_problem(instance, machine=host(12), budget={"device": peak * 9 // 10})
    columns = Columns(problem, routes(problem.machine)[0])
    outline = columns.look([*range(len(instance.tasks))])
    assert outline is not None
    ranking = rankings(outline)[0]
    gaps = outline.select(ranking)
    assert gaps is not None
    columns.moves.chosen[gaps] = 1
    columns.moves.leave_with[:] = columns.moves.return_with[:] = -1
    calls = [(timing.LOOK, len(outline.tasks)), (timing.SELECT, len(ranking)), (timing.TIME, 0)]
    return kernel.ACT, [columns.given, columns.runs, columns.moves], calls


CASES: dict[str, tuple[Callable[[int], Any], int, bool]] = {
    "least memory": (least_memory, COLUMNS, True),
    "floating, least": (floating_least, STAGES, True),
    "floating, times": (floating_times, STAGES, True),
    "chain-best": (phases, STAGES, False),
    "dag, greedy": (greedy, TASKS, False),
    "dag, annealing": (annealing, TASKS, False),
    "dag, transfers": (transfers, LAYERS, False),
}


def by_numba(function: types.FunctionType, known: dict[str, Any] | None = None) -> Any:
    """Compile a function with all that it calls by numba."""
    import numba

    known = {} if known is None else known
    if function.__name__ not in known:
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            if isinstance(names.get(name), types.FunctionType):
                names[name] = by_numba(names[name], known)
        twin = types.FunctionType(function.__code__, names, function.__name__)
        known[function.__name__] = numba.njit(twin, nogil=True)
    return known[function.__name__]


class Kept:
    """What records held at first, to begin each run with."""

    def __init__(self, records: list[Any]) -> None:
        fields = [value for record in records for value in record]
        self.arrays = [(value, value.copy()) for value in fields if isinstance(value, np.ndarray)]
        cells = [value for value in fields if isinstance(value, ctypes.Structure)]
        self.cells = [(value, type(value).from_buffer_copy(value)) for value in cells]

    def restore(self) -> None:
        for array, kept in self.arrays:
            array[...] = kept
        for value, kept in self.cells:
            ctypes.memmove(ctypes.addressof(value), ctypes.addressof(kept), ctypes.sizeof(kept))


def spent(case: str, way: str) -> dict[str, Any]:
    """Return the CPU seconds of compiling, and the least of some runs; imports are not counted."""
    build, size, _ = CASES[case]
    kernel, records, calls = build(size)
    # What has been compiled for the inputs, in this process, is thrown away.
    kernel._compiled.clear()
    if way == "numba":
        import numba.core.typed_passes  # noqa: F401
    kept = Kept(records)
    with Stopwatch() as cold:
        if way == "own":
            bound = kernel.bind(*records)
        elif way == "numba":
            bound = partial(by_numba(kernel.plain), *records)
            bound(*calls[0])
        else:
            bound = partial(kernel.plain, *records)
    warm = []
    for _ in range(1 if way == "plain" else 5):
        kept.restore()
        with Stopwatch() as watch:
            for numbers in calls:
                bound(*numbers)
        warm.append(watch.cpu)
    return {"cpu": cold.cpu, "wall": cold.wall, "warm": min(warm)}


def checked(case: str) -> dict[str, Any]:
    """Return the CPU seconds of a run whose indices are checked."""
    from remat_algorithms.kit.compile.lowering import checked_indices

    with checked_indices():
        return spent(case, "own")


def run() -> None:
    """Print ratios."""
    rows: list[list[Any]] = []
    installed = importlib.util.find_spec("numba") is not None
    for case, (_, _, numba_too) in CASES.items():
        own, plain, careful = measure(spent, case=case, way="own"), None, measure(checked, case=case)
        numba = measure(spent, case=case, way="numba") if numba_too and installed else None
        if case != "floating, times":  # minutes
            plain = measure(spent, case=case, way="plain")
        row = [case, own.cpu, own.value["warm"]]
        row += [numba.cpu / own.cpu, numba.value["warm"] / own.value["warm"]] if numba else ["-", "-"]
        row.append(plain.value["warm"] / own.value["warm"] if plain else "-")
        row.append(careful.value["warm"] / own.value["warm"])
        rows.append(row)
    header = ["kernel", "cold CPU s", "warm CPU s", "numba/own cold", "numba/own warm", "plain/own", "checked/own"]
    table("The small compiler, CPU s, without imports", header, rows)
