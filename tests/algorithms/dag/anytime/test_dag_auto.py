"""Test `dag-auto` as a whole: against all schedules of its class, and its claims when stopped."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import remat
from remat.solving.problem_setup import make_problem
from remat.testing import strategies
from remat_algorithms.dag.anytime.dag_auto import NOT_REORDERED
from tests.algorithms.dag.anytime.subsets import best_of_class
from tests.oracles import search

SCOPE = "schedules in the reference order"
EVERYTHING = "all schedules"
FRONTIER = "frontier-advancing schedules of the reference order"


def graph(tasks, **more):
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, **more}


def ladder(depth, time=1, size=1):
    """A chain of forward tasks, and backward tasks that read them in reverse."""
    forward = [{"id": f"f{i}", "time": time, "size": size, "reads": [f"f{i - 1}"] if i else []} for i in range(depth)]
    backward = [
        {"id": f"b{i}", "time": time, "size": size, "reads": [f"f{i}", *([f"b{i + 1}"] if i < depth - 1 else [])]}
        for i in reversed(range(depth))
    ]
    return graph([*forward, *backward], outputs=["b0"])


def solved(document, budget, **more):
    return remat.solve(document, algorithm="dag-auto", budget=budget, **more)


def keep_peak(document):
    return next(iter(remat.solve(document, algorithm="keep-all").peak_memory.values()))


def keep_makespan(document):
    return remat.solve(document, algorithm="keep-all").makespan


def compare_with_class(document, share):
    """Assert that claims of optimality, infeasibility and bounds hold within the class."""
    problem = make_problem(remat.load(document))
    peak, low = keep_peak(document), problem.memory_bounds[0].size if problem.memory_bounds[0] else 0
    budget = low + (peak - low) * share // 100
    best = best_of_class(make_problem(remat.load(document), budget=budget))
    result = solved(document, budget, time_limit=20)
    exact = search.chain_best(document, budget)
    if result.makespan is None:
        if result.status == "infeasible":
            assert best is None
            assert exact is None or result.scope != EVERYTHING
    elif result.optimal_within == EVERYTHING:
        assert result.makespan == exact
    elif result.optimal_within in (SCOPE, FRONTIER):
        assert result.makespan == best
    for bound in result.bounds:
        if bound.scope in (SCOPE, FRONTIER) and best is not None:
            assert bound.value <= best
        if bound.scope == EVERYTHING and exact is not None:
            assert bound.value <= exact
    if best is not None:
        assert result.makespan is not None
        assert exact is not None
        assert result.makespan >= exact


SMALL = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=12, **SMALL)
@given(strategies.dags(largest=4, plain=True, exact=True), st.integers(0, 99))
def test_against_all_sets_of_reruns(document, share):
    compare_with_class(document, share)


@pytest.mark.slow
@settings(max_examples=300, **SMALL)
@given(strategies.dags(largest=5, plain=True, exact=True), st.integers(0, 99))
def test_against_all_sets_of_reruns_thoroughly(document, share):
    compare_with_class(document, share)


@settings(max_examples=15, **SMALL)
@given(strategies.chains(largest=4, plain=True, exact=True), st.integers(0, 99))
def test_chains_are_never_better_than_the_optimum(document, share):
    least, peak = search.chain_least_budget(document), keep_peak(document)
    budget = least + max(0, peak - least) * share // 100
    result = solved(document, budget)
    if result.makespan is not None:
        assert result.makespan >= search.chain_best(document, budget)


@pytest.mark.parametrize("depth", [6, 10])
def test_ladders_are_proved(depth):
    document = ladder(depth)
    result = solved(document, keep_peak(document) - depth // 3)
    assert result.optimal_within == EVERYTHING
    assert result.status == "optimal"
    assert result.makespan > 2 * depth
    assert max(bound.value for bound in result.bounds if bound.scope == EVERYTHING) == result.makespan


def test_more_memory_is_never_worse_where_it_is_proved():
    document = ladder(9)
    makespans = [solved(document, budget).makespan for budget in range(keep_peak(document), 3, -1)]
    known = [makespan for makespan in makespans if makespan is not None]
    assert known == sorted(known)
    assert len(known) > 3


def test_a_graph_without_times_has_makespan_zero():
    result = solved(ladder(8, time=0), 6)
    assert result.makespan == 0


def test_with_enough_memory_nothing_is_recomputed():
    document = ladder(30)
    result = solved(document, keep_peak(document))
    assert result.status == "optimal"
    assert result.makespan == 60


# In the listed order both sources are live at once, and they are not recomputable.
BOTH_LIVE = [
    {"id": "a", "time": 1, "size": 4, "recomputable": False},
    {"id": "b", "time": 1, "size": 4, "recomputable": False},
    {"id": "x", "time": 1, "size": 1, "reads": ["a"]},
    {"id": "y", "time": 1, "size": 1, "reads": ["b"]},
    {"id": "z", "time": 1, "size": 1, "reads": ["x", "y"]},
]


def test_infeasible_in_the_order_but_not_elsewhere():
    result = solved(graph(BOTH_LIVE), 7)
    assert (result.status, result.scope) == ("unknown", SCOPE)
    reordered = solved(graph(BOTH_LIVE), 7, options={"reorder": True})
    assert reordered.makespan == 5
    assert reordered.status == "optimal"


def test_another_order_of_a_graph_with_alternatives():
    sizes = {"a": 4, "b": 4, "x": 1, "y": 1, "z": 1}
    tasks = [
        {**{key: entry for key, entry in task.items() if key != "size"}, "writes": [task["id"]]} for task in BOTH_LIVE
    ]
    tasks.append({"id": "other", "time": 3, "reads": ["a"], "writes": ["x"], "required": False})
    values = [{"id": name, "size": size} for name, size in sizes.items()]
    document = graph(tasks, values=values, outputs=["z"])
    assert solved(document, 7).makespan is None
    assert solved(document, 7, options={"reorder": True}).makespan == 5


ALTERNATIVES = [
    {"id": "a", "time": 2, "writes": ["x"]},
    {"id": "other", "time": 1, "writes": ["x"], "required": False},
    {"id": "b", "time": 1, "reads": ["x"], "writes": ["y"]},
    {"id": "c", "time": 1, "reads": ["y"], "writes": ["z"], "workspace": 3},
    {"id": "d", "time": 1, "reads": ["x", "z"], "writes": ["g"]},
]


@pytest.mark.parametrize("budget", [1, 7, 20])
@pytest.mark.parametrize("reorder", [False, True])
def test_a_note_where_several_origins_keep_the_order(budget, reorder):
    values = [{"id": name, "size": size} for name, size in (("x", 3), ("y", 2), ("z", 1), ("g", 1))]
    # The tasks rewrite an input.
    document = graph(ALTERNATIVES, values=values, inputs=["x"], outputs=["g"])
    result = solved(document, budget, options={"reorder": reorder})
    assert (result.makespan is None) == (budget == 1)
    assert [note for note in result.notes if note.startswith("reorder")] == [NOT_REORDERED] * reorder
    without = graph(ALTERNATIVES, values=values, outputs=["g"])
    assert NOT_REORDERED not in solved(without, budget, options={"reorder": reorder}).notes


def test_below_every_schedule():
    result = solved(ladder(5), 2)
    assert (result.status, result.scope) == ("infeasible", "all schedules")
    assert result.least_budget.size == 3


def test_flops_and_terabytes():
    document = ladder(8, time=10**13 + 1, size=10**12)
    small = solved(ladder(8), 6)
    result = solved(document, 6 * 10**12)
    assert result.makespan == small.makespan * (10**13 + 1)
    assert result.optimal_within == small.optimal_within == EVERYTHING


@pytest.mark.parametrize("scale", [1, 10**5])
def test_proofs_are_exact_where_times_are_whole_numbers(scale):
    # Two schedules differ by three millionths of the overhead, or less.
    times = [time * scale + extra for time, extra in ((10, 4), (10, 6), (20, 2), (10, 1), (10, 6))]
    sizes = [3, 1, 2, 3, 3]
    forward = [
        {"id": f"f{i}", "time": time, "size": size, "reads": [f"f{i - 1}"] if i else []}
        for i, (time, size) in enumerate(zip(times, sizes, strict=True))
    ]
    backward = [
        {"id": f"b{i}", "time": times[i], "size": 1, "reads": [f"f{i}", *([f"b{i + 1}"] if i < 4 else [])]}
        for i in reversed(range(5))
    ]
    document = graph([*forward, *backward], outputs=["b0"])
    exact = remat.solve(document, algorithm="checkmate", budget=7)
    result = solved(document, 7)
    assert exact.optimal_within is not None
    assert result.optimal_within is not None
    assert result.makespan == exact.makespan


def test_a_twin_that_writes_less_stands_in():
    """The heavy task's second output is wanted late: first the light task runs, and the heavy one then."""
    tasks = [
        {"id": "heavy", "time": 2, "writes": ["x", "tape"], "required": False},
        {"id": "light", "time": 1, "writes": ["x"], "required": False},
        {"id": "wide", "time": 1, "reads": ["x"], "writes": ["w"], "workspace": 5},
        {"id": "back", "time": 1, "reads": ["w", "tape"], "writes": ["g"]},
    ]
    values = [{"id": name, "size": size} for name, size in (("x", 1), ("tape", 4), ("w", 1), ("g", 1))]
    document = graph(tasks, values=values, outputs=["g"])
    result = solved(document, keep_peak(document) - 1)
    assert [step.get("run") for step in result.to_dict()["steps"]] == ["light", "wide", "heavy", "back"]


def test_reruns_at_the_end_for_outputs():
    tasks = [
        {"id": "a", "time": 1, "size": 5},
        {"id": "b", "time": 1, "size": 1, "reads": ["a"]},
        {"id": "c", "time": 1, "size": 1, "reads": ["b"], "workspace": 4},
    ]
    document = graph(tasks, outputs=["a", "c"])
    result = solved(document, 7)
    assert result.makespan == 4
    assert result.status == "optimal"


def test_iterations_do_not_depend_on_the_clock():
    document = remat.load(remat.example("layered_n60_mixed")) if hasattr(remat, "example") else None
    budget = keep_peak(document) * 9 // 10
    first, second = (solved(document, budget, options={"iterations": 10}, seed=3) for _ in range(2))
    assert first.to_dict()["steps"] == second.to_dict()["steps"]
    assert first.termination == second.termination


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share", "ratio"),
    [
        *(("checkmate/unet", s, r) for s, r in ((90, 1.01129), (80, 1.01984), (60, 1.04451), (40, 1.131108))),
        *(("checkmate/mobilenet", s, r) for s, r in ((90, 1.001635), (80, 1.00371), (60, 1.01068), (40, 1.02462))),
        *(("checkmate/resnet50", s, r) for s, r in ((90, 1.00109), (80, 1.00279), (60, 1.00963), (40, 1.022395))),
        *(("random_layered/rl100", share, ratio) for share, ratio in ((90, 1.0079), (80, 1.02297), (70, 1.060102))),
        ("random_layered/rl250", 90, 1.009039),
    ],
)
def test_known_optima_are_reached(name, share, ratio):
    data = os.environ.get("REMAT_DATA")
    if not data:
        pytest.skip("REMAT_DATA is not set")
    instance = remat.load(Path(data) / "dag" / f"{name}.json")
    keep = remat.solve(instance, algorithm="keep-all")
    result = solved(instance, keep.peak_memory["memory"] * share // 100, time_limit=120, threads=2)
    assert result.optimal_within == (SCOPE if name.startswith("random") or share == 40 else EVERYTHING)
    assert result.makespan / keep.makespan == pytest.approx(ratio, abs=1e-5)


@pytest.mark.slow
def test_alternatives_are_chosen_by_the_program_where_that_is_better():
    document = remat.load(remat.example("layered_n60_mixed"))
    budget = keep_peak(document) * 9 // 10
    program = remat.solve(document, algorithm="moccasin", budget=budget, time_limit=60)
    result = solved(document, budget, time_limit=60)
    assert program.optimal_within is not None
    assert result.makespan <= program.makespan
    assert result.optimal_within in (FRONTIER, program.optimal_within)
    rounds = solved(document, budget, options={"iterations": 5})
    assert rounds.makespan > result.makespan


def task(name, time, reads, writes, **more):
    return {"id": name, "time": time, "reads": reads, "writes": writes, **more}


@pytest.mark.parametrize("options", [{}, {"iterations": 0}])
def test_a_run_in_place_frees_what_is_made_again_at_once(options):
    # b overwrites x in place, and c reads x directly afterwards.
    tasks = [task("a", 9, [], ["x"]), task("b", 8, ["x"], ["y"], in_place=True), task("c", 2, ["x"], [])]
    result = solved(graph(tasks, values=[{"id": "x", "size": 2}, {"id": "y", "size": 7}]), 8, options=options)
    assert result.makespan == 9 + 8 + 9 + 2
    if not options:
        assert result.optimal_within is not None


def test_a_third_run_of_a_task():
    # moccasin allows two runs of each task; no schedule in that class fits.
    document = graph(
        [
            task("a", 1, [], ["x"]),
            *(task(f"b{number}", 1, ["x"], [f"y{number}"], in_place=True) for number in range(3)),
            task("c", 1, ["x"], ["z"]),
            task("other", 5, ["x"], ["z"], required=False),
        ],
        values=[
            {"id": "x", "size": 2},
            {"id": "z", "size": 1},
            *({"id": f"y{number}", "size": 3} for number in range(3)),
        ],
    )
    few = remat.solve(document, algorithm="moccasin", budget=3)
    assert few.makespan is None
    result = solved(document, 3)
    assert result.makespan == remat.solve(document, algorithm="checkmate", budget=3).makespan == 8


@pytest.mark.slow
def test_the_relaxation_bounds_what_the_program_does_not_end():
    document = remat.load(remat.example("layered_n60_mixed"))
    budget = keep_peak(document) * 6 // 10
    relaxed = remat.solve(document, algorithm="checkmate-lp", budget=budget)
    result = solved(document, budget, time_limit=12, threads=2)
    value = max(bound.value for bound in relaxed.bounds)
    assert value > keep_makespan(document)
    assert value <= max(bound.value for bound in result.bounds) <= result.makespan


@settings(max_examples=3, **SMALL)
@given(strategies.dags(largest=6), st.integers(0, 99))
def test_never_worse_than_the_program(document, share):
    check_against_program(document, share)


@pytest.mark.slow
@settings(max_examples=200, **SMALL)
@given(strategies.dags(largest=6), st.integers(0, 99))
def test_never_worse_than_the_program_thoroughly(document, share):
    check_against_program(document, share)


def check_against_program(document, share):
    assume(len(document.get("machine", {}).get("memories", [])) < 2)
    problem = make_problem(remat.load(document))
    low = problem.memory_bounds[0].size if problem.memory_bounds[0] else 0
    budget = low + (keep_peak(document) - low) * share // 100
    program = remat.solve(document, algorithm="moccasin", budget=budget, time_limit=20)
    if program.makespan is not None:
        result = solved(document, budget, time_limit=20)
        assert result.makespan is not None
        assert result.makespan <= program.makespan * (1 + 1e-9)
