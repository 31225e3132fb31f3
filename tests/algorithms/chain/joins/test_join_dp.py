"""`join-dp` against reference points, all nested schedules, and all schedules."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.testing import cases, strategies
from tests import places
from tests.algorithms.chain.joins.documents import as_dag, of_long_steps
from tests.oracles import joins, search

HEAD = {"schema": "remat.instance/3", "kind": "join", "units": {"time": "unit", "memory": "unit"}}
UNIT = {"forward_time": 1, "backward_time": 1, "output_size": 1}
POINTS = json.loads((places.REFERENCE / "join.json").read_text())["points"]


def unit_join(lengths):
    """Return a join of chains with unit steps; each backward reads its input and no saved value."""
    chains = [{"input_size": 1, "stages": [UNIT | {"repeat": length}]} for length in lengths]
    return HEAD | {"chains": chains, "backward_reads": ["input"]}


def solved(document, budget, **more):
    return remat.solve(document, algorithm="join-dp", budget=budget, **more)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point['lengths']}-{point['memory']}")
def test_makespans_equal_published_optima(point):
    document = unit_join(point["lengths"])
    for asked in (document, as_dag(document)):
        result = solved(asked, point["memory"])
        assert result.makespan == point["least_time"]
        if point["least_time"] is None:
            assert result.least_budget.size == 3 * len(point["lengths"])
    if "no_recompute" in point:
        assert solved(document, None).makespan == point["no_recompute"]


def against(front, documents):
    """Assert that all documents match the front's time and minimum budget at each of its breakpoints."""
    peaks = sorted(front)
    for budget in sorted({*peaks, *(peak - 1 for peak in peaks)} - {-1}):
        expected = min((time for peak, time in front.items() if peak <= budget), default=None)
        for document in documents:
            result = solved(document, budget)
            assert result.makespan == expected
            if expected is None and result.least_budget.scope != "all schedules":
                assert result.least_budget.size == peaks[0]


ONE_MEMORY = strategies.joins(largest=4, exact=True).filter(lambda document: "machine" not in document)


@settings(max_examples=12, deadline=None)
@given(ONE_MEMORY)
def test_best_of_all_nested_schedules(document):
    against(joins.front(document), [document, as_dag(document)])


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(ONE_MEMORY | strategies.joins(largest=5, exact=True, plain=True))
def test_best_of_all_nested_schedules_thoroughly(document):
    against(joins.front(document), [document, as_dag(document)])


@st.composite
def without_saved(draw, largest, sizes):
    """Draw chains of own times whose backwards read their inputs, and nothing else is saved."""
    count, time = draw(st.sampled_from([2, 2, 3])), st.integers(0, 5)
    stage = st.fixed_dictionaries({key: sizes if key == "output_size" else time for key in UNIT})
    stages = st.lists(stage, min_size=1, max_size=largest // count)
    chain = st.fixed_dictionaries({"input_size": sizes, "stages": stages})
    chains = draw(st.lists(chain, min_size=count, max_size=count))
    return HEAD | {"chains": chains, "backward_reads": ["input"]}


def equals_all_schedules(document):
    for budget in sorted(joins.front(document)):
        for least in (budget, budget - 1):
            assert solved(document, least).makespan == search.chain_best(document, least)


@settings(max_examples=12, deadline=None)
@given(without_saved(4, st.just(1)))
def test_best_of_all_schedules_where_states_are_of_one_size(document):
    equals_all_schedules(document)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(without_saved(6, st.just(1)))
def test_best_of_all_schedules_where_states_are_of_one_size_thoroughly(document):
    equals_all_schedules(document)


@settings(max_examples=12, deadline=None)
@given(without_saved(5, st.integers(0, 5)))
def test_never_better_than_all_schedules_and_never_a_wrong_proof(document):
    for budget in sorted(joins.front(document)):
        best, result = search.chain_best(document, budget), solved(document, budget)
        assert result.makespan >= best
        assert result.makespan == best or not result.proved_optimal


def test_states_of_unlike_sizes_can_do_better_without_persistence():
    stages = [
        {"forward_time": time, "backward_time": 0, "output_size": size} for time, size in ((1, 1), (0, 2), (0, 1))
    ]
    chains = [{"input_size": 0, "stages": [stages[2]]}, {"input_size": 0, "stages": stages}]
    document = HEAD | {"chains": chains, "backward_reads": ["input"]}
    assert (solved(document, 5).makespan, search.chain_best(document, 5)) == (3, 2)
    assert remat.solve(document, budget=5).makespan == 2


def test_values_that_are_saved_can_do_better_without_persistence():
    """`join-dp` limits its claim to persistent schedules, because other schedules can be faster."""
    stages = [(3, 2, 2, 4), (2, 3, 2, 2), (3, 2, 3, 3)]
    keys = ("backward_time", "forward_time", "output_size", "saved_size")
    listed = [dict(zip(keys, stage, strict=True)) for stage in stages]
    document = HEAD | {"chains": [{"input_size": 3, "stages": listed}], "backward_reads": ["input", "saved"]}
    least = search.chain_least_budget(document)
    result = solved(document, least)
    assert result.makespan is None
    assert result.status == "unknown"
    assert result.least_budget.size > least


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tasks: tasks.append({"id": "more", "time": 1, "writes": []}), "'more' belongs to no chain"),
        (lambda tasks: tasks[0]["reads"].append("x2.0"), "'x1.1' is not computed from a single value"),
        (lambda tasks: task(tasks, "loss")["reads"].pop(), "'loss' reads 1 values and writes 2"),
        (lambda tasks: task(tasks, "B1.1")["reads"].append("x2.0"), "not of one chain alone"),
        (lambda tasks: task(tasks, "F1.1").update(once=True, required=True), "cannot be recomputed|must run"),
        (lambda tasks: task(tasks, "F1.1").update(in_place=True), "some tasks are in place"),
        (lambda tasks: task(tasks, "F1.1").update(required=True), "'F1.1' must run"),
    ],
)
def test_what_is_no_join_is_refused(change, message):
    document = as_dag(unit_join([2, 2]))
    change(document["tasks"])
    with pytest.raises(remat.OptionError, match="takes one loss that reads k disjoint chains") as refused:
        solved(document, 6)
    assert any(part in str(refused.value) for part in message.split("|"))


def task(tasks, name):
    return next(one for one in tasks if one["id"] == name)


def test_a_join_as_people_write_it():
    """Forwards that must run and always save, no values before the first or after the last tasks."""
    tasks = []
    for letter in "ab":
        tasks += [
            {"id": f"{letter}1", "time": 1, "writes": [f"x{letter}1", f"s{letter}1"]},
            {"id": f"{letter}2", "time": 1, "reads": [f"x{letter}1"], "writes": [f"x{letter}2"]},
        ]
    tasks.append({"id": "meet", "time": 3, "reads": ["xa2", "xb2"], "writes": ["ya2", "yb2"]})
    for letter in "ab":
        reads = [f"x{letter}1", f"y{letter}2"]
        tasks += [
            {"id": f"{letter}2'", "time": 1, "reads": reads, "writes": [f"y{letter}1"]},
            {"id": f"{letter}1'", "time": 1, "reads": [f"y{letter}1", f"s{letter}1"], "writes": []},
        ]
    names = dict.fromkeys(name for one in tasks for name in one["writes"])
    values = [{"id": name, "size": 5 if name.startswith("s") else 1} for name in names]
    document = HEAD | {"schema": "remat.instance/1", "kind": "dag", "values": values, "tasks": tasks}
    least = solved(document, 0).least_budget.size
    found = [solved(document, budget).makespan for budget in range(least, least + 9)]
    assert found == [search.chain_best(document, budget) for budget in range(least, least + 9)]


def test_limits_are_counted():
    document = unit_join([5, 5])
    assert solved(document, 7, options={"ways": 10}).termination == "size limit"
    rough, best = solved(document, 7, options={"points": 2}), solved(document, 7)
    assert rough.makespan >= best.makespan
    assert not rough.proved_optimal
    assert "thinned" in rough.notes[0]


def test_auto_runs_join_dp():
    document = cases.moderate("join")
    alone = solved(document, 20)
    assert alone.makespan is not None
    assert remat.solve(document, budget=20, time_limit=2).makespan <= alone.makespan
    dag = as_dag(unit_join([3, 3]))
    assert remat.solve(dag, budget=6, time_limit=2).makespan <= 17


@pytest.mark.parametrize("algorithm", ["join-dp", "dag-auto", "dag-offload-best"])
def test_sums_beyond_64_bits_are_no_proof(algorithm):
    result = remat.solve(of_long_steps(), algorithm=algorithm, budget=4, time_limit=20)
    assert result.makespan > 2**63
    assert result.makespan < 2**64
    assert algorithm != "join-dp" or result.optimal_within is None
