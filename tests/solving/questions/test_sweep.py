"""Test sweeps: curves against the best makespan per budget, hooks, minimum budget, knee, interruptions."""

import json
import math
import signal
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.plugin.proposal import ALL_SCHEDULES, LeastBudget, Proposal, Status, Termination
from remat.report.text.curve_tables import remark, sweep_markdown, sweep_table
from remat.solving.questions.curves import Curve, Least, Point, knee, pareto
from remat.testing import strategies
from remat.units import Units
from remat_algorithms.dag import keep_all
from tests import hooks
from tests.oracles import persistent, search

PERSISTENT = "memory-persistent schedules"
CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "net",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 3,
    "static_memory": 10,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 6}],
}
# Two branches need less memory one after the other than together, and are not recomputable.
ONE_ORDER = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "tasks": [
        {"id": "a1", "time": 1, "size": 10, "recomputable": False},
        {"id": "a2", "time": 1, "size": 10, "recomputable": False},
        {"id": "c1", "time": 1, "size": 1, "reads": ["a1"]},
        {"id": "c2", "time": 1, "size": 1, "reads": ["a2"]},
        {"id": "join", "time": 1, "size": 1, "reads": ["c1", "c2"]},
    ],
    "outputs": ["join"],
}
TREE = {
    "schema": "remat.instance/1",
    "kind": "tree",
    "units": {"time": "unit", "memory": "unit"},
    "parent": [-1, 0, 0, 1, 1, 2],
    "output_size": [1, 3, 4, 5, 2, 7],
}
STORED = {
    "schema": "remat.instance/1",
    "kind": "adjoint",
    "steps": 12,
    "state_size": 8,
    "storage": [{"name": "ram", "slots": 2}, {"name": "disk", "write_time": 2, "read_time": 1}],
}


DEVICE_AND_HOST = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 3,
    "machine": {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 4},
            {"source": "host", "target": "device", "bandwidth": 4},
        ],
    },
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 4}],
}


def test_budgets_may_name_the_memory_that_is_swept():
    named = remat.sweep(DEVICE_AND_HOST, "offload-greedy", budgets=["device=20", " device = 30", 40])
    plain = remat.sweep(DEVICE_AND_HOST, "offload-greedy", budgets=[20, 30, 40])
    assert figures(named.curves[0].answers) == figures(plain.curves[0].answers)
    with pytest.raises(remat.OptionError, match="a sweep is over the budgets of 'device', not 'host'"):
        remat.sweep(DEVICE_AND_HOST, "offload-greedy", budgets=["host=20"])
    with pytest.raises(remat.OptionError, match="did you mean 'device'"):
        remat.sweep(DEVICE_AND_HOST, "offload-greedy", budgets=["devise=20"])


def test_budgets_below_a_proved_minimum_are_infeasible():
    """A class without a schedule says less than the minimum budget, which is proved for all schedules."""
    point = Point.of(remat.solve(CHAIN, algorithm="rotor", budget=20), 0)
    assert not point.solved
    unknown = replace(point, status=Status.UNKNOWN, scope=PERSISTENT)

    def called(size, within):
        least = Least(size=size, sufficient=True, proved_within=within)
        curve = Curve(
            algorithm="auto",
            options={},
            answers=(unknown,),
            least=least,
            exhaustive=False,
            termination=Termination.COMPLETED,
        )
        return curve.answers[0].status, curve.answers[0].scope

    assert called(21, ALL_SCHEDULES) == (Status.INFEASIBLE, ALL_SCHEDULES)
    assert called(20, ALL_SCHEDULES) == (Status.UNKNOWN, PERSISTENT)
    assert called(21, PERSISTENT) == (Status.UNKNOWN, PERSISTENT)


def test_the_mark_of_beaten_answers_is_explained():
    found = remat.sweep(CHAIN, "keep-all", budgets=[100])
    assert "beaten" not in sweep_table(found)
    (curve,) = found.curves
    best = curve.points[0]
    worse = replace(best, peak=best.peak + 1, budget=best.budget + 1)
    beaten = replace(found, curves=(replace(curve, answers=(best, worse)),))
    for text in (sweep_table(beaten), sweep_markdown(beaten)):
        assert text.endswith("beaten: another row of its table is no slower and needs no more memory")


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    hooks.register(monkeypatch)


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def figures(points):
    return [(point.peak, point.makespan) for point in points]


def by_scan(document, top):
    """Return the breakpoints of a chain: budget and makespan wherever more memory saves time."""
    found, least_time = [], persistent.Recursion(document).least_time
    for budget in range(top + 1):
        makespan = least_time(budget)
        if makespan is not None and (not found or makespan < found[-1][1]):
            found.append((budget, makespan))
    return found


# --- against a scan of all budgets ------------------------------------------------------------------------------------


@draws(15)
@given(strategies.chains(largest=4, plain=True, exact=True))
def test_curves_are_exact_where_there_are_enough_points(document):
    document = {key: value for key, value in document.items() if key != "machine"}
    top = remat.solve(document, algorithm="store-all").peak_memory["memory"]
    wanted = by_scan(document, top)
    found = remat.sweep(document, ("unswept", "swept", "rotor"), points=None)
    all_points = remat.sweep(document, "unswept", points=top + 2)
    for curve in (*found.curves[1:], all_points.curves[0]):
        assert figures(curve.points) == wanted
        assert (curve.least.size, curve.least.sufficient) == (wanted[0][0], True)
        assert curve.least.proved_within in (PERSISTENT, ALL_SCHEDULES)
    assert found.curves[1].exhaustive
    assert not found.curves[0].exhaustive
    # Fewer points are some of them, with both ends.
    assert set(figures(found.curves[0].points)) <= {*wanted, *figures(found.curves[0].answers)}
    assert figures(found.curves[0].points)[0][0] == wanted[0][0]
    assert figures(found.curves[0].points)[-1] == wanted[-1]


@pytest.mark.parametrize(
    ("kind", "count"),
    # Of adjoints, some draws take `adjoint-best` half a minute.
    [
        *(("chain", 3), ("adjoint", 2), ("dag", 4), ("tree", 4)),
        *(pytest.param(kind, 8, marks=pytest.mark.slow) for kind in ("chain", "adjoint", "dag", "tree")),
    ],
)
def test_what_holds_for_every_curve(kind, count):
    @draws(count)
    @given(strategies.documents(kind))
    def check(document):
        for algorithm in ("auto", "keep-all"):
            try:
                found = remat.sweep(document, algorithm, points=5, time_limit=1)
            except remat.OptionError:
                continue
            (curve,) = found.curves
            assert all(one.peak < two.peak for one, two in pairwise(curve.points))
            assert all(one.makespan > two.makespan for one, two in pairwise(curve.points))
            for point in curve.answers:
                assert point.solved == (point.status in (Status.OPTIMAL, Status.FEASIBLE))
                assert point.budget is None or point.peak is None or point.peak <= point.budget
                assert point.lower_bound <= (math.inf if point.makespan is None else point.makespan * (1 + 1e-9))
            if curve.points:
                assert curve.least.sufficient
                again = remat.solve(document, algorithm=algorithm, budget=curve.least.size)
                assert again.makespan is not None
                if curve.least.proved_within == ALL_SCHEDULES and curve.least.size:
                    below = remat.solve(document, algorithm="keep-all", budget=curve.least.size - 1)
                    assert below.makespan is None
            assert json.loads(json.dumps(found.to_dict()))["schema"] == "remat.sweep/1"

    check()


def test_a_tree_is_one_point():
    found = remat.sweep(TREE, ("liu", "postorder", "auto"))
    for curve in found.curves:
        assert len(curve.points) == 1
        assert curve.knee is None
    best = search.tree_best_traversal(TREE["parent"], TREE["output_size"], [0] * 6)
    assert found.curves[0].least.size == best
    assert found.curves[0].least.proved_within == ALL_SCHEDULES


def test_a_curve_over_a_storage_level_has_valid_points():
    found = remat.sweep(STORED, "h-revolve")
    (curve,) = found.curves
    assert found.memory == "ram"
    assert len(curve.points) > 3
    for point in curve.points:
        assert point.peak % 8 == 0
        assert remat.solve(STORED, algorithm="h-revolve", budget=point.peak).makespan == point.makespan


# --- budgets, points, options -----------------------------------------------------------------------------------------


def test_given_budgets_have_the_answers_of_solves():
    for algorithm in ("rotor", "swept"):
        found = remat.sweep(CHAIN, algorithm, budgets=[60, "25", 30, 60, 5])
        (curve,) = found.curves
        assert [point.budget for point in curve.answers] == [5, 25, 30, 60]
        for point in curve.answers:
            alone = remat.solve(CHAIN, algorithm=algorithm, budget=point.budget)
            assert (point.status, point.makespan, point.recompute_time) == (
                alone.status,
                alone.makespan,
                alone.recompute_time,
            )
            assert (point.overhead, point.gap, point.lower_bound) == (alone.overhead, alone.gap, alone.lower_bound)
        least = remat.solve(CHAIN, algorithm="rotor", budget=5).least_budget.size
        assert (curve.least.size, curve.least.sufficient) == (least, True)
        assert curve.least.proved_within == ALL_SCHEDULES or curve.least.proved_within == PERSISTENT
        assert not curve.exhaustive


@pytest.mark.parametrize(
    ("kind", "family", "given"),
    [
        pytest.param("chain", "random", {"length": 4, "seed": 3}, marks=pytest.mark.slow),
        pytest.param("dag", "layered", {"nodes": 8, "seed": 1}, marks=pytest.mark.slow),
        ("dag", "layered", {"nodes": 4, "seed": 1}),
        ("adjoint", "uniform", {"steps": 7}),
        pytest.param("adjoint", "uniform", {"steps": 7, "storage": "ram:slots=2"}, marks=pytest.mark.slow),
        ("tree", "random", {"nodes": 9, "seed": 2}),
    ],
)
def test_a_budget_of_a_curve_has_the_status_of_a_solve(kind, family, given):
    """A proof for a larger budget also holds for a smaller one."""
    document = generate(kind, family, **given)
    limits = {"time_limit": 2, "gap": "100%"}
    full = remat.solve(document, **limits)
    peak = full.peak_memory[full.machine.memories[1 if "storage" in given else 0].name]
    budgets = sorted({0, 1, peak // 5, peak // 3, peak // 2})
    points = remat.sweep(document, budgets=budgets, **limits).curves[0].answers
    assert [point.budget for point in points] == budgets
    for point in points:
        solved = remat.solve(document, budget=point.budget, **limits)
        assert (point.status is Status.INFEASIBLE) == (solved.status is Status.INFEASIBLE)
        assert (point.peak is None) == (solved.report is None)
        assert point.scope == solved.scope


def test_budgets_that_are_all_too_small():
    found = remat.sweep(CHAIN, ("rotor", "periodic"), budgets=[3, 12])
    for curve in found.curves:
        assert curve.points == ()
        assert all(point.status is Status.INFEASIBLE for point in curve.answers)
        assert remat.solve(CHAIN, algorithm=curve.algorithm, budget=curve.least.size).makespan is not None


@pytest.mark.parametrize(("algorithm", "within"), [("dtr", None), ("keep-all", "the keep-all schedule")])
def test_least_budget_of_an_algorithm_is_not_that_of_all_schedules(algorithm, within):
    # All answers are infeasible for every schedule; a sufficient budget depends on the algorithm.
    (curve,) = remat.sweep(CHAIN, algorithm, budgets=[3]).curves
    assert [(point.status, point.scope) for point in curve.answers] == [(Status.INFEASIBLE, ALL_SCHEDULES)]
    assert curve.least.sufficient
    assert curve.least.proved_within == within


def test_bound_on_the_budget_names_its_class():
    (curve,) = remat.sweep(ONE_ORDER, "moccasin", budgets=[12]).curves
    within = "frontier-advancing schedules of the reference order, at most 2 runs a task"
    assert (curve.least.size, curve.least.sufficient, curve.least.proved_within) == (13, False, within)
    said = remark(curve, Units("unit", "unit"))
    assert said.startswith(f"no schedule; within {within}, the budget is at least 13")
    (curve,) = remat.sweep(ONE_ORDER, "moccasin", budgets=[9]).curves
    assert remark(curve, Units("unit", "unit")).startswith("no schedule; the budget is at least 11")


def test_infeasible_without_any_budget():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [{"id": "a", "time": 1, "size": 4}],
        "outputs": [{"value": "a", "memory": "host"}],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host", "capacity": 1}],
            "processors": [{"name": "cpu", "memory": "device"}],
            "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
        },
    }
    found = remat.sweep(document, "offload-exact")
    (curve,) = found.curves
    assert curve.points == ()
    assert curve.answers[0].status is Status.INFEASIBLE
    assert curve.least is None


def test_the_number_of_points_is_respected():
    found = remat.sweep(CHAIN, "rotor", points=4)
    assert len([point for point in found.curves[0].answers if point.solved]) <= 4
    swept = remat.sweep(CHAIN, "swept", points=4)
    assert not swept.curves[0].exhaustive
    assert figures(swept.curves[0].points) == figures(found.curves[0].points)


def test_options_go_to_those_who_have_them():
    found = remat.sweep(CHAIN, ("rotor", "swept", "keep-all"), options={"gap": None, "slots": 50, "rotor.gap": 0.5})
    assert [dict(curve.options) for curve in found.curves] == [
        {"gap": 0.5},
        {"gap": None, "slots": 50},
        {},
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithms": ()}, "algorithms: there are none"),
        ({"algorithms": ("rotor", "rotor")}, "'rotor' is given twice"),
        ({"algorithms": "roter"}, "did you mean 'rotor'"),
        ({"algorithms": "liu"}, "solves tree, not chain"),
        ({"budgets": []}, "there are no budgets"),
        ({"budgets": ["8GB"]}, "^budgets: '8GB' is in bytes"),
        ({"budgets": [3], "points": 3}, "points: the budgets are given already"),
        ({"points": 1}, "points"),
        ({"points": "many"}, "points"),
        ({"options": {"slot": 3}}, "no algorithm of auto has the option 'slot'"),
        ({"options": {"rotor.slots": 3}}, "'rotor' is not among the algorithms"),
        ({"algorithms": "rotor", "options": {"rotor.slot": 3}}, "it has gap"),
        ({"options": {"gap": 2}}, "option gap"),
        ({"options": {"max_overhead": 0.2}}, "is a question for `remat solve`"),
        ({"time_limit": "soon"}, "time_limit"),
        ({"seed": -1}, "seed"),
        ({"threads": 0}, "threads"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(remat.OptionError, match=message):
        remat.sweep(CHAIN, **arguments)


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_a_lie_of_a_hook_is_a_bug():
    for more in ({}, {"budgets": [100]}):
        with pytest.raises(remat.ClaimError, match="claims makespan 0"):
            remat.sweep(CHAIN, "swept-lying", **more)


def test_a_hook_that_ends_early():
    (curve,) = remat.sweep(CHAIN, "swept-short").curves
    assert len(curve.points) == 1
    assert (curve.least.size, curve.least.proved_within) == (curve.points[0].peak, None)
    (curve,) = remat.sweep(CHAIN, "swept-short", budgets=[100, 50]).curves
    assert [point.budget for point in curve.answers] == [100]


def test_a_hook_below_whose_breakpoints_there_is_another(monkeypatch):
    """Rounded sizes may hide the minimum-memory schedule from the table; the last answer reports it."""
    least = remat.solve(CHAIN, algorithm="rotor", budget=0).least_budget.size

    def coarse(problem, options, context, budgets):
        yield hooks.solve(problem, options, context)
        yield Proposal(infeasible_within=PERSISTENT, least=LeastBudget(least, None, sufficient=True))

    monkeypatch.setattr(hooks, "sweep", coarse)
    (curve,) = remat.sweep(CHAIN, "swept").curves
    assert curve.points[0].peak == least
    assert (curve.least.size, curve.least.proved_within) == (least, PERSISTENT)


def test_an_interrupted_hook_returns_its_points():
    (curve,) = remat.sweep(CHAIN, "swept-interrupted").curves
    assert curve.termination is Termination.INTERRUPTED
    assert len(curve.answers) == 3
    assert not curve.exhaustive


def test_a_budget_that_is_refused(monkeypatch):
    """Some budgets would take too long a schedule; the others are answered."""

    def solve(problem, options, context):
        if problem.budget is not None and problem.budget < 34:
            raise remat.OptionError("that would take too long")
        return hooks.rotor.solve(problem, hooks.rotor.RotorOptions(), context)

    monkeypatch.setattr(hooks, "frugal", solve)
    for more in ({}, {"budgets": [20, 33, 40]}):
        (curve,) = remat.sweep(CHAIN, "frugal", **more).curves
        assert curve.points[0].peak >= 34
        assert curve.least.sufficient
        refused = [point for point in curve.answers if not point.solved]
        assert {point.notes for point in refused} == {"that would take too long"}
    with pytest.raises(remat.OptionError, match="too long"):
        remat.sweep(CHAIN, "frugal", budgets=[20, 33])
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="10000%")
    assert found.answer.value == 33
    assert not found.answer.proved
    assert found.notes[0].startswith("keep this schedule, or ask for a budget of 34: ")


# --- limits and interruptions -----------------------------------------------------------------------------------------


def test_the_points_so_far(monkeypatch):
    calls = []

    def stop(times):
        def solve(problem, options, context):
            calls.append(problem.budget)
            if len(calls) == 6:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            return hooks.rotor.solve(problem, hooks.rotor.RotorOptions(), context)

        return solve

    for times, solved in ((1, 6), (2, 5)):
        calls.clear()
        monkeypatch.setattr(hooks, "frugal", stop(times))
        found = remat.sweep(CHAIN, ("frugal", "rotor"))
        assert len(found.curves) == 1
        assert found.curves[0].termination is Termination.INTERRUPTED
        assert len(calls) == 6
        assert 1 <= len(found.curves[0].answers) <= solved
        assert found.curves[0].points


def test_a_time_limit_returns_the_finished_points():
    found = remat.sweep(CHAIN, ("frugal", "keep-all"), time_limit=0)
    assert [curve.termination for curve in found.curves] == [Termination.TIME_LIMIT] * 2
    assert all(curve.points for curve in found.curves)
    given = remat.sweep(CHAIN, "unswept", budgets=[100, 200], time_limit="0s")
    assert given.curves[0].answers == ()
    assert given.curves[0].least is None


def test_progress_is_reported():
    seen = []
    remat.sweep(CHAIN, "rotor", points=3, progress=seen.append)
    assert any("rotor at " in message.message for message in seen)
    assert [message.seconds for message in seen] == sorted(message.seconds for message in seen)


def test_a_heuristic_is_searched_to_a_hundredth(monkeypatch):
    calls = []

    def solve(problem, options, context):
        calls.append(problem.budget)
        return (
            Proposal(steps=keep_all.solve(problem, None, context).steps)
            if (problem.budget is None or problem.budget >= 10**9)
            else Proposal()
        )

    monkeypatch.setattr(hooks, "frugal", solve)
    large = CHAIN | {"stages": [{"forward_time": 1, "backward_time": 1, "output_size": 10**8 + 1, "repeat": 6}]}
    (curve,) = remat.sweep(large, "frugal").curves
    assert len(calls) < 20
    peak = remat.solve(large, algorithm="keep-all").peak_memory["memory"]
    assert curve.points[0].peak == peak < 10**9
    # That is what its schedule needs, but not what it takes to find it.
    assert curve.least.size >= 10**9
    assert curve.least.sufficient
    assert curve.least.proved_within is None


# --- the curve itself -------------------------------------------------------------------------------------------------


def point(peak, makespan, budget=None):
    return Point(
        algorithm="by hand",
        budget=peak if budget is None else budget,
        status=Status.INFEASIBLE if makespan is None else Status.FEASIBLE,
        termination=Termination.COMPLETED,
        peak=peak,
        makespan=makespan,
        overhead=None,
        recompute_time=None,
        lower_bound=0,
        gap=None,
        optimal_within=None,
        scope=None,
        least_budget=None,
        steps=0,
        solve_seconds=0.0,
    )


@given(st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 9)))))
def test_pareto_points_are_not_dominated(pairs):
    points = [point(peak, makespan) for peak, makespan in pairs]
    found = pareto(points)
    solved = [(p, m) for p, m in pairs if m is not None]
    wanted = {(p, m) for p, m in solved if not any((q <= p and n <= m and (q, n) != (p, m)) for q, n in solved)}
    assert figures(found) == sorted(wanted)


def test_knees_are_as_by_hand():
    # In equal ratios of memory: half of the memory range, a tenth of the time range: 1 - 1/2 - 1/10.
    curve = [point(100, 20), point(200, 11), point(400, 10)]
    assert knee(curve) is curve[1]
    # A straight line in log(memory) and a concave curve have no knee.
    assert knee([point(1, 30), point(2, 20), point(4, 10)]) is None
    assert knee([point(1, 30), point(2, 29), point(4, 10)]) is None
    assert knee(curve[:2]) is None
    assert knee([]) is None
    # A curve from memory 0 uses differences: 1/10 of the range is deeper than 1/2.
    curve = [point(0, 20), point(10, 12), point(50, 11), point(100, 10)]
    assert knee(curve) is curve[1]
    # Among equals, the knee has the smaller memory.
    curve = [point(1, 30), point(2, 20), point(4, 14), point(8, 12)]
    depths = [1 - math.log2(p.peak) / 3 - (p.makespan - 12) / 18 for p in curve]
    assert knee(curve) is curve[depths.index(max(depths))]


def test_records_are_flat_json():
    found = remat.sweep(CHAIN, ("rotor", "keep-all"), points=5, seed=3)
    records = found.to_records()
    assert json.loads(json.dumps(records)) == records
    assert len({tuple(record) for record in records}) == 1
    assert {record["algorithm"] for record in records} == {"rotor", "keep-all"}
    assert {record["seed"] for record in records} == {3}
    assert sum(record["knee"] for record in records) == sum(curve.knee is not None for curve in found.curves)
    for curve in found.curves:
        on_curve = [record for record in records if record["algorithm"] == curve.algorithm and record["pareto"]]
        assert [record["peak"] for record in on_curve] == [point.peak for point in curve.points]
    document = found.to_dict()["curves"][0]
    assert [document["answers"][k]["peak"] for k in document["points"]] == [
        point.peak for point in found.curves[0].points
    ]
    assert document["answers"][document["knee"]]["peak"] == found.curves[0].knee.peak


def test_frozen_and_equal():
    found = remat.sweep(CHAIN, "rotor", points=3)
    with pytest.raises(AttributeError):
        found.memory = "x"
    again = remat.sweep(CHAIN, "rotor", points=3)

    def timeless(sweep):
        return [{k: v for k, v in record.items() if k != "solve_seconds"} for record in sweep.to_records()]

    assert timeless(found) == timeless(again)


def test_auto_says_who_answered():
    loop = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 8}
    records = remat.sweep(loop).to_records()
    assert {record["algorithm"] for record in records} == {"auto"}
    assert "store-all" in {record["solver"] for record in records}
    assert len({record["solver"] for record in records}) > 1
