"""Test `dtr`: hand-computed eviction traces, and the guarantees of the wrapper."""

import pytest

import remat
from remat.plugin.context import Context
from remat.solving.problem_setup import make_problem
from remat_algorithms.dag.literature.dtr import simulate
from remat_algorithms.dag.literature.dtr_state import GaveUp, Heuristic, Program, Simulation
from remat_algorithms.dag.literature.retention import stages_of
from tests.algorithms.dag.graphs import document, layered, seeded, training


def task(name, time, size, *reads, **more):
    return {"id": name, "time": time, "size": size, "reads": list(reads), **more}


# Before e, at 19: x (9 of time, size 2, accessed at 9), a (4, 2, 14), b (1, 2, 16), c (2, 3, 19), and d, which e locks.
# The limit 11 lacks one unit. At f, at 20, with c locked, it lacks one again.
BY_HAND = document(
    [
        task("x", 9, 2),
        task("a", 4, 2),
        task("b", 1, 2, "a"),
        task("c", 2, 3, "b"),
        task("d", 3, 2, "c"),
        task("e", 1, 1, "d"),
        task("f", 1, 1, "c", workspace=4),
        task("g", 1, 1, "b"),
        task("h", 1, 1, "a"),
        task("k", 1, 1, "x"),
    ]
)
TRACES = {
    # e: x 9/20, a 4/10, b 1/6 -> b.  f: x 9/22, a with its evicted child b (4+1)/12 -> x.
    "h": ("b x", "x a b c d e f b g h x k"),
    "eq": ("b x", "x a b c d e f b g h x k"),
    # f: a 4/12 -> a.
    "local": ("b a", "x a b c d e f a b g h k"),
    # e: x has waited 10, a 5, b 3.  f: a 6, b 4.
    "lru": ("x a", "x a b c d e f g a h x k"),
    # e: c is the largest. f needs it again (22), and then two more units: x and a, the first of equals.
    "size": ("c x a", "x a b c d e c f g a h x k"),
    # e: x 9/2, a 4/2, b 1/2, c 2/3.  f: a has no evicted ancestor: 4/2.
    "msps": ("b a", "x a b c d e f a b g h k"),
}


def program_of(instance):
    return Program(stages_of(make_problem(remat.load(instance)), "test"))


@pytest.mark.parametrize("heuristic", TRACES)
def test_trace_worked_by_hand(heuristic):
    program = program_of(BY_HAND)
    simulation = Simulation(program, 11, Heuristic(heuristic))
    for stage in range(len(program.stages) + 1):
        simulation.perform(stage)
    graph = program.stages.graph
    evicted, runs = TRACES[heuristic]
    assert " ".join(graph.values[value] for value in simulation.evictions) == evicted
    assert " ".join(graph.tasks[run] for run in simulation.runs) == runs
    replay = program.stages.replay(simulation.runs)
    assert replay.time == simulation.clock
    assert replay.peak <= 11


def after(heuristic, *, evicted, returned=()):
    """Return a chain p -> q -> r -> s (times 1, 2, 4, 8; sizes 1) after some evictions and recomputations."""
    names = ("p", "q", "r", "s")
    tasks = [task(name, 2**i, 1, *names[max(0, i - 1) : i]) for i, name in enumerate(names)]
    readers = [task(f"read-{name}", 1, 0, name) for name in names]
    program = program_of(document([*tasks, *readers]))
    simulation = Simulation(program, 10**6, Heuristic(heuristic))
    for stage in range(4):
        simulation.perform(stage)
    for name in evicted:
        simulation._evict(program.stages.graph.value(name))
    for name in returned:
        simulation._return(program.stages.graph.value(name))
    simulation.clock += 1  # every value has waited since its last access: p at 3, q at 7, r and s at 15
    return {name: simulation.score(program.stages.graph.value(name)) for name in names}


def test_evicted_neighbours_count_in_the_recompute_cost():
    assert after("h", evicted="pqr")["s"] == 8 + 7
    assert after("h", evicted="qr")["p"] * 13 == pytest.approx(1 + 6)
    # r alone is reached: q is there again.
    assert after("h", evicted="pqr", returned="q")["s"] == 8 + 4
    # The class loses q, and is not split: p still counts.
    assert after("eq", evicted="pqr", returned="q")["s"] == 8 + 4 + 1
    assert after("msps", evicted="qr")["p"] == 1
    assert after("msps", evicted="pq")["r"] == 4 + 3
    assert after("local", evicted="pqr")["s"] == 8


def test_what_does_not_fit_is_given_up():
    program = program_of(BY_HAND)
    simulation = Simulation(program, 3, Heuristic.FULL)
    for stage in range(2):
        simulation.perform(stage)
    with pytest.raises(GaveUp):
        simulation.perform(2)
    assert simulate(program, 3, Heuristic.FULL, None, Context()) is None
    assert simulate(program, 11, Heuristic.FULL, 25, Context()) is None
    assert simulate(program, 11, Heuristic.FULL, None, Context(interrupted=True)) is None


@pytest.mark.parametrize("heuristic", TRACES)
@pytest.mark.parametrize("seed", range(2))
def test_more_memory_never_gives_a_longer_schedule(seed, heuristic):
    rng = seeded(seed)
    instance = training(rng, 8) if seed % 2 else layered(rng, 14)
    peak = remat.solve(instance, algorithm="keep-all").peak_memory["memory"]
    before = None
    options = {"heuristic": heuristic, "limits": 12}
    for budget in range(peak // 2, peak + 1, max(1, peak // 16)):
        result = remat.solve(instance, algorithm="dtr", budget=budget, options=options)
        if before is not None:
            assert result.makespan is not None
            assert result.makespan <= before
        before = result.makespan
    assert before is not None
