"""`auto` as a portfolio: it uses the instance's features, and keeps the schedules and proofs of all algorithms."""

import json
import time
from dataclasses import replace

import pytest
from pydantic import Field

import remat
from remat import OptionError
from remat.plugin import Context, LeastBudget, Options, Proposal, registry, run_in_order
from remat.plugin.problem import Problem
from remat.plugin.proposal import ALL_SCHEDULES, Bound, Status, Termination
from remat.plugin.registry import Trial
from remat.solving import auto, portfolio
from remat.solving.problem_setup import make_problem
from remat.testing.cases import moderate

UNITS = {"schema": "remat.instance/1", "units": {"time": "unit", "memory": "unit"}}
LINKS = [
    {"source": "device", "target": "host", "bandwidth": 2},
    {"source": "host", "target": "device", "bandwidth": 2},
]
WITH_HOST = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": LINKS,
}


def two_orders():
    """Return a graph that needs 21 bytes in the listed order, and 12 in another one."""
    tasks = [{"id": f"a{k}", "time": 1, "size": 10, "recomputable": False} for k in "12"]
    tasks += [{"id": f"c{k}", "time": 1, "size": 1, "reads": [f"a{k}"]} for k in "12"]
    tasks += [{"id": "join", "time": 1, "size": 1, "reads": ["c1", "c2"]}]
    return UNITS | {"kind": "dag", "tasks": tasks, "outputs": ["join"]}


def costly_order():
    """Return a graph that can be run in the listed order with reruns, and without any in another one."""
    tasks = [{"id": f"a{k}", "time": 5, "size": 10} for k in "12"]
    tasks += [{"id": f"c{k}", "time": 1, "size": 1, "reads": [f"a{k}"]} for k in "12"]
    tasks += [{"id": "join", "time": 1, "size": 1, "reads": ["c1", "c2"]}]
    return UNITS | {"kind": "dag", "tasks": tasks, "outputs": ["join"]}


def test_free_orders_come_first():
    found = remat.solve(two_orders(), budget=12)
    assert (found.status, found.makespan) == (Status.OPTIMAL, 5)
    assert any("another order than listed" in note for note in found.notes)


def test_the_listed_order_is_an_option():
    listed = remat.solve(costly_order(), budget=12, options={"order": "listed"})
    free = remat.solve(costly_order(), budget=12)
    assert (free.status, free.makespan) == (Status.OPTIMAL, 13)
    assert listed.makespan == 23
    first = list(dict.fromkeys(step.task for step in listed.steps))
    assert first == ["a1", "a2", "c1", "c2", "join"]
    assert any("a free order of the tasks is worth 76.9 %" in note for note in listed.notes)


def test_links_are_used():
    chain = UNITS | {
        "kind": "chain",
        "input_size": 1,
        "stages": [{"forward_time": 9, "backward_time": 9, "output_size": 4}] * 4,
        "machine": WITH_HOST,
    }
    peak = remat.solve(chain, algorithm="store-all").peak_memory["device"]
    found = remat.solve(chain, budget={"device": peak - 4})
    assert found.report.transferred["device->host"] > 0
    dag = UNITS | {
        "kind": "dag",
        "machine": WITH_HOST,
        "values": [{"id": "w1", "size": 10}, {"id": "w2", "size": 10}],
        "inputs": [{"value": "w1", "memory": "host"}, {"value": "w2", "memory": "host"}],
        "tasks": [
            {"id": "a", "time": 5, "size": 5, "reads": ["w1"]},
            {"id": "b", "time": 5, "size": 5, "reads": ["a", "w2"]},
        ],
    }
    # What begins in another memory than the processor's is no reason to refuse.
    assert remat.solve(dag, budget={"device": 30}).makespan == 15


def test_processors_are_used():
    tree = {"kind": "tree", "parent": [-1, 0, 0, 0, 0], "time": [1, 10, 10, 10, 10], "output_size": [1] * 5}
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 2}]}
    found = remat.solve(UNITS | tree | {"machine": machine})
    assert (found.status, found.makespan) == (Status.OPTIMAL, 21)


def test_an_adjoint_may_be_parked():
    document = UNITS | {"kind": "adjoint", "steps": 4, "storage": [{"name": "ram", "slots": 2}]}
    assert remat.solve(document, algorithm="revolve").makespan == 8
    found = remat.solve(document)
    assert (found.makespan, found.status) == (7, Status.OPTIMAL)


def test_a_least_budget_works():
    document = UNITS | {
        "kind": "chain",
        "input_size": 1,
        "stages": [{"forward_time": 1, "backward_time": 2, "output_size": size} for size in (3, 1, 2)],
    }
    named = remat.solve(document, budget=0)
    assert (named.status, named.algorithm) == (Status.INFEASIBLE, "auto")
    assert named.least_budget.sufficient
    assert remat.solve(document, budget=named.least_budget.size).report.ok


# --- the merging of answers, with algorithms made for it --------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """Return a function that limits `auto` to these solvers, and the names of those that it has run."""
    names: list[str] = []

    def install(cheap=(), first=(), anytime=(), work_limits=(), options="", quick="", **solvers):
        for name, solver in solvers.items():

            def noted(problem, options, context, name=name, solver=solver):
                names.append(name)
                return solver(problem, options, context)

            monkeypatch.setitem(globals(), f"_solve_{name}", noted)
        entries = {
            name: registry.Algorithm(
                name=name,
                solver=f"{__name__}:_solve_{name}",
                kinds=("taskgraph",),
                summary=name,
                guarantee="heuristic",
                cheap=("dag",) if name in cheap else (),
                several_memories=True,
                trials=() if name.startswith("rest") else (Trial(early=name in first),),
                covered_by=("one",) if name.startswith("covered") else (),
                work_limits=work_limits,
                anytime=name in anytime,
                quick=quick,
                options=options,
            )
            for name in solvers
        }
        monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: tuple(entries.values()))
        return names

    return install


def keep_all(problem, options, context):
    from remat_algorithms.dag.keep_all import solve

    return solve(problem, None, context)


def nothing(problem, options, context):
    return Proposal()


def refuses(problem, options, context):
    raise OptionError("not for me")


def slow(problem, options, context):
    """Answer with everything run once, and one task twice."""
    from remat.plugin import run_in_order

    order = [0, *range(len(problem.graph.tasks))]
    return Proposal(steps=run_in_order(problem.graph, problem.machine, order))


DAG = moderate("dag")


def test_first_rows_spare_the_others(asked):
    names = asked(first=("one",), cheap=("two",), one=keep_all, two=slow, three=slow)
    assert remat.solve(DAG).status is Status.OPTIMAL
    assert names == ["one"]


def test_cheap_ones_then_rows_then_the_rest(asked):
    names = asked(cheap=("two",), one=nothing, two=refuses, rest=slow)
    found = remat.solve(DAG)
    assert names == ["two", "one", "rest"]
    assert (found.algorithm, found.status) == ("rest", Status.FEASIBLE)
    names.clear()
    asked(cheap=("two",), one=slow, two=refuses, rest=keep_all)
    assert remat.solve(DAG).algorithm == "one"
    assert "rest" not in names


def test_time_that_is_left_goes_to_algorithms_for_other_instances(asked):
    """Without a limit they run only if no schedule is known."""
    names = asked(one=slow, rest=keep_all)
    assert (remat.solve(DAG).algorithm, names) == ("one", ["one"])
    assert remat.solve(DAG, time_limit=100).algorithm == "rest"
    assert names == ["one", "one", "rest"]


def test_an_algorithm_that_needs_no_limit_leaves_time_to_those_for_other_instances(asked):
    left = []

    def ends(problem, options, context):
        left.append(context.seconds_left)
        return Proposal(termination=Termination.TIME_LIMIT)

    names = asked(one=ends, rest=keep_all)
    assert remat.solve(DAG, time_limit=100).algorithm == "rest"
    assert names == ["one", "rest"]
    assert 45 < left[0] < 51


def test_those_that_are_covered_have_the_rest_of_a_time_that_is_given(asked):
    """The algorithms that cover them may still be worse; without a limit they run only if no schedule is known."""
    names = asked(one=slow, rest=slow, covered=keep_all)
    assert (remat.solve(DAG).algorithm, names) == ("one", ["one"])
    assert remat.solve(DAG, time_limit=100).algorithm == "covered"
    assert names == ["one", "one", "rest", "covered"]


@pytest.mark.parametrize("limit", [None, 100])
def test_candidates_know_whether_the_user_gave_the_limit(asked, limit):
    known = []

    def listens(problem, options, context):
        known.extend([context.limit_given, context.aside().limit_given])
        return keep_all(problem, options, context)

    asked(one=listens)
    remat.solve(DAG, time_limit=limit)
    assert known == [limit is not None] * 2


def late(problem, options, context):
    """Find nothing until the time ends."""
    while not context.stopped:
        time.sleep(0.001)
    return Proposal(termination=Termination.TIME_LIMIT)


@pytest.mark.slow
def test_those_without_a_schedule_have_longer_the_second_time_if_all_are_without(asked):
    lengths = []

    def timed(problem, options, context):
        started = time.monotonic()
        proposal = late(problem, options, context)
        lengths.append(time.monotonic() - started)
        return proposal

    asked(one=timed, two=timed, anytime=("one", "two"), cheap=("three",), three=slow)
    remat.solve(DAG, time_limit=2)
    assert min(lengths[2:4]) > 1.3 * max(lengths[:2])


class TwoWays(Options):
    """An option with which an algorithm may be tried twice."""

    second: bool = Field(False, description="the second way")


def shares_of_two_ways(asked, monkeypatch, repeats):
    """Return the shares of an algorithm with two options that never ends, beside one that repeats a run so often."""
    from remat.plugin import run_in_order

    shares = []

    def never(problem, options, context):
        shares.append(context.seconds_left / 100)
        return Proposal(termination=Termination.TIME_LIMIT)

    def repeating(problem, options, context):
        order = [0] * repeats + [*range(len(problem.graph.tasks))]
        return Proposal(steps=run_in_order(problem.graph, problem.machine, order), termination=Termination.TIME_LIMIT)

    asked(anytime=("one", "two"), options=f"{__name__}:TwoWays", one=repeating, two=never)
    one, two = registry.algorithms()
    two = replace(two, trials=(Trial(), Trial(options={"second": True})))
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (one, two))
    assert remat.solve(DAG, time_limit=100).algorithm == "one"
    return shares


def test_those_without_a_schedule_share_the_rest_also_with_other_options(asked, monkeypatch):
    *_, first, second = shares_of_two_ways(asked, monkeypatch, 1)
    assert (round(first, 1), round(second, 1)) == (0.5, 1.0)


def test_those_without_a_schedule_have_longer_if_the_best_schedule_has_a_large_gap(asked, monkeypatch):
    near, far = (sum(shares_of_two_ways(asked, monkeypatch, repeats)[2:4]) for repeats in (1, 300))
    assert far > 1.5 * near


def stops(repeats=None, *, shares=None, knows=False):
    """Return an algorithm that is stopped with a schedule that repeats a run so often; None: without a schedule.

    It adds the seconds that it has to `shares`, of a limit of 100.
    """
    from remat.plugin import run_in_order

    def solver(problem, options, context):
        if shares is not None:
            shares.append(context.seconds_left / 100)
        if knows:
            assert context.known_steps is not None
        if repeats is None:
            return Proposal(termination=Termination.TIME_LIMIT)
        order = [0] * repeats + [*range(len(problem.graph.tasks))]
        steps = run_in_order(problem.graph, problem.machine, order)
        return Proposal(steps=steps, termination=Termination.TIME_LIMIT)

    return solver


def test_a_single_anytime_algorithm_leaves_time_to_those_for_other_instances(asked):
    shares = []
    names = asked(anytime=("one",), one=stops(2, shares=shares), rest=keep_all)
    assert remat.solve(DAG, time_limit=100).algorithm == "rest"
    assert names == ["one", "rest"]
    assert 0.6 < shares[0] < 0.7
    asked(anytime=("one",), one=stops(2, shares=shares), rest=keep_all)
    remat.solve(DAG)  # without a limit, it has all of the time
    assert 0.55 < shares[1] <= 0.6


def test_the_last_one_that_continues_leaves_time_to_those_for_other_instances(asked):
    shares = []
    one, two = (stops(repeats, shares=shares, knows=True) for repeats in (2, 3))
    names = asked(anytime=("one", "two"), cheap=("three",), one=one, two=two, three=slow, rest=keep_all)
    remat.solve(DAG, time_limit=100)
    assert names == ["three", "one", "two", "one", "two", "rest"]
    assert shares[3] < 0.7


def test_those_that_the_time_stopped_run_again_for_longer_until_one_is_left(asked):
    def takes(seconds, repeats):
        inner = stops(repeats)

        def solver(problem, options, context):
            until = time.monotonic() + min(seconds, context.seconds_left)
            while time.monotonic() < until:
                pass
            if context.seconds_left > 0:
                return inner(problem, options, context)
            return Proposal(termination=Termination.TIME_LIMIT)

        return solver

    # The first tries are too short for the best one, and three others have better schedules.
    others = {f"rest{k}": stops(2 + k) for k in range(3)}
    asked(one=slow, **others, rest_best=takes(0.6, 0))
    assert remat.solve(DAG, time_limit=2).algorithm == "rest_best"


def test_those_for_other_instances_share_half_of_the_time_by_the_number_of_those_that_they_cover(asked, monkeypatch):
    shares = []
    asked(one=slow, rest1=stops(3, shares=shares), rest2=stops(3, shares=shares), rest3=stops(3, shares=shares))
    one, *others = registry.algorithms()
    others = [others[0], *(replace(other, covered_by=("rest1",)) for other in others[1:])]
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (one, *others))
    remat.solve(DAG, time_limit=100)
    assert [round(share, 2) for share in shares[:2]] == [0.3, 0.14]


def test_an_algorithm_that_starts_again_does_so_only_with_more_time(asked):
    def waits(repeats, knows):
        inner = stops(repeats, knows=knows)

        def solver(problem, options, context):
            until = time.monotonic() + context.seconds_left
            while time.monotonic() < until:
                pass
            return inner(problem, options, context)

        return solver

    for knows, runs in ((True, 2), (False, 1)):
        names = asked(cheap=("two",), two=slow, rest=waits(3, knows))
        remat.solve(DAG, time_limit=0.4)
        assert names.count("rest") == runs
        names.clear()


@pytest.mark.parametrize(("knows", "repeats", "order"), [(False, 9, "two"), (True, 9, "one"), (False, 300, "one")])
def test_an_algorithm_that_starts_again_near_the_best_one_does_so_before_others_continue(asked, knows, repeats, order):
    """It needs most of the time, and the others continue from what it finds."""
    shares = []
    one, two = stops(8, knows=True), stops(repeats, knows=knows, shares=shares)
    names = asked(anytime=("one", "two"), cheap=("three",), one=one, two=two, three=stops(400))
    remat.solve(DAG, time_limit=100)
    assert names[:4] == ["three", "one", "two", order]
    assert order == "one" or shares[1] > 0.66


@pytest.mark.parametrize(("repeats", "share"), [(400, 0.5), (440, 2 / 3)])
def test_algorithms_that_are_equally_good_share_the_rest(asked, repeats, share):
    shares = []
    one, two = stops(400, shares=shares, knows=True), stops(repeats, knows=True)
    asked(anytime=("one", "two"), cheap=("three",), one=one, two=two, three=stops(500))
    remat.solve(DAG, time_limit=100)
    assert abs(shares[1] - share) < 0.01


@pytest.mark.parametrize("guarantee", ["exact", "heuristic"])
def test_an_exact_algorithm_with_a_poor_schedule_has_a_second_try_of_half_of_the_limit(asked, monkeypatch, guarantee):
    shares = []
    asked(anytime=("one", "two"), one=stops(100), two=stops(200, shares=shares))
    one, two = registry.algorithms()
    two = replace(two, guarantee=guarantee, within="some class")
    monkeypatch.setattr(registry, "algorithms", lambda kind=None, **_: (one, two))
    remat.solve(DAG, time_limit=100)
    assert (0.49 < shares[1] < 0.51) is (guarantee == "exact")


def test_the_notes_name_those_that_had_too_little_time(asked):
    asked(one=late, two=slow)
    found = remat.solve(DAG, time_limit=0.3)
    assert (found.algorithm, found.status) == ("two", Status.FEASIBLE)
    assert "the time limit stopped one before a first schedule; with more time it may do better" in found.notes
    asked(one=late, two=keep_all)
    assert not remat.solve(DAG, time_limit=0.3).notes
    asked(one=late, two=late, three=slow)
    assert "stopped one, two before a first schedule; with more time they" in " ".join(
        remat.solve(DAG, time_limit=0.3).notes
    )


def test_the_best_schedule_with_all_bounds(asked):
    whole = remat.solve(DAG, algorithm="keep-all").makespan

    def claims(problem, options, context):
        from remat.plugin import Bound

        return replace(slow(problem, options, context), bounds=(Bound(whole - 1, "some class", "claims"),))

    asked(cheap=("two",), one=claims, two=slow)
    found = remat.solve(DAG)
    assert ("some class", whole - 1) in [(bound.scope, bound.value) for bound in found.bounds]
    assert found.history[-1].makespan == found.makespan


def test_what_one_proves_ends_it(asked):
    def never(problem, options, context):
        return Proposal(infeasible_within=ALL_SCHEDULES, least=LeastBudget(77, None, True))

    names = asked(one=never, two=slow)
    least = make_problem(remat.load(DAG)).memory_bounds[0].size
    found = remat.solve(DAG, budget=least)
    assert (found.status, found.scope, found.least_budget.size) == (Status.INFEASIBLE, ALL_SCHEDULES, 77)
    assert set(names) == {"one"}


def test_classes_are_not_the_instance(asked):
    def within(problem, options, context):
        return Proposal(infeasible_within="some class", least=LeastBudget(99, None, True))

    asked(one=within)
    least = make_problem(remat.load(DAG)).memory_bounds[0].size
    found = remat.solve(DAG, budget=least)
    assert (found.status, found.scope, found.least_budget.size) == (Status.UNKNOWN, "some class", 99)


def keeping_all(problem, enough, **otherwise):
    """Run every task once where there are so many bytes."""
    if problem.machine.memories[0].capacity < enough:
        return Proposal(**otherwise)
    return repeating(problem, 0)


def test_a_minimum_budget_has_the_name_of_a_class_only_if_the_class_has_a_schedule_there(asked):
    most = max(remat.solve(DAG, algorithm="keep-all").peak_memory.values())
    refused = {"infeasible_within": "some class", "least": LeastBudget(most + 10, None, True)}
    asked(
        one=lambda problem, options, context: keeping_all(problem, most + 10, **refused),
        two=lambda problem, options, context: keeping_all(problem, most),
    )
    least = remat.solve(DAG, budget=most - 5).least_budget
    assert (least.size, least.sufficient, least.scope) == (most, True, None)
    asked(one=lambda problem, options, context: keeping_all(problem, most, **refused))
    least = remat.solve(DAG, budget=most - 5).least_budget
    assert (least.size, least.sufficient, least.scope) == (most, True, "some class")


def test_a_minimum_budget_is_the_smallest_at_which_somebody_answers_not_the_smallest_peak(asked):
    """An algorithm wants twice what its schedule needs, and names four times as much."""
    most = max(remat.solve(DAG, algorithm="keep-all").peak_memory.values())
    named = {"least": LeastBudget(4 * most, None, True)}
    asked(one=lambda problem, options, context: keeping_all(problem, 2 * most, **named))
    least = remat.solve(DAG, budget=most - 1).least_budget
    assert (least.size, least.sufficient) == (2 * most, True)


def test_a_limit_that_ends_the_search_for_a_minimum_budget_is_noted(asked):
    most = max(remat.solve(DAG, algorithm="keep-all").peak_memory.values())
    named = {"least": LeastBudget(4 * most, None, True)}

    def late(problem, options, context):
        return keeping_all(problem, 4 * most, termination=Termination.TIME_LIMIT, **named)

    asked(one=late)
    assert "a limit ended the search for a smaller budget" in remat.solve(DAG, budget=most - 1).notes
    asked(one=lambda problem, options, context: keeping_all(problem, 4 * most, **named))
    assert "a limit ended the search for a smaller budget" not in remat.solve(DAG, budget=most - 1).notes


def test_an_interrupt_keeps_what_there_is(asked):
    def interrupts(problem, options, context):
        context.report(slow(problem, options, context).steps, makespan=None)
        context.interrupted = True
        raise KeyboardInterrupt

    names = asked(cheap=("two",), one=interrupts, two=slow, three=keep_all)
    found = remat.solve(DAG)
    assert (found.algorithm, found.termination) == ("auto", Termination.INTERRUPTED)
    assert found.report.ok
    assert "three" not in names


def test_options_go_to_those_that_have_them():
    problem = make_problem(remat.load(DAG))
    read = auto.read_options(problem, auto.AUTO, {"order": "listed", "reorder": "true"})
    assert (read.order, read.others) == ("listed", {"reorder": "true"})
    with pytest.raises(OptionError, match=r"'reoder'; did you mean 'reorder'"):
        remat.solve(DAG, options={"reoder": "true"})
    with pytest.raises(OptionError, match="order"):
        remat.solve(DAG, options={"order": "reverse"})


# --- limits -----------------------------------------------------------------------------------------------------------


class Limited(Options):
    """Options with a limit of work."""

    rounds: int = 3
    size: int | None = None


class Capped(Options):
    """Options with a limit of work that has a largest value."""

    rounds: int = Field(3, le=40)


class Deepening:
    """A searcher that reruns a task fewer times the more rounds it has, down to a number; it notes its rounds."""

    def __init__(self, least: int, seconds: float = 0.0):
        self.least, self.seconds, self.rounds = least, seconds, list[int]()

    def __call__(self, problem, options, context):
        self.rounds.append(options.rounds)
        time.sleep(self.seconds)
        return repeating(problem, max(self.least, 100 // options.rounds))


def repeating(problem, count):
    order = [0] * count + [*range(len(problem.graph.tasks))]
    return Proposal(steps=run_in_order(problem.graph, problem.machine, order))


LIMITED = {"work_limits": ("rounds", "size"), "options": f"{__name__}:Limited"}


def test_the_best_searcher_gets_more_work_until_there_is_no_gain(asked):
    searcher, other = Deepening(5), Deepening(60)
    asked(one=searcher, two=other, **LIMITED)
    found = remat.solve(DAG)
    assert searcher.rounds == [3, 12, 48, 192]
    assert other.rounds == [3]
    assert found.options == {"rounds": 48}
    assert len(found.steps) == len(DAG["tasks"]) + 5
    again = remat.solve(DAG)
    assert (list(again.steps), again.options) == (list(found.steps), found.options)


def test_more_work_ends_at_the_largest_value_of_an_option_and_the_log_says_so(asked):
    """3, 12, 48 rounds are more than allowed: 40 are tried, and no more."""
    searcher = Deepening(1)
    asked(one=searcher, work_limits=("rounds",), options=f"{__name__}:Capped")
    found = remat.solve(DAG)
    assert searcher.rounds == [3, 12, 40]
    assert found.log == ("one ended at the largest rounds=40",)
    assert found.options == {"rounds": 40}


def test_a_time_limit_that_is_given_allows_rounds_without_gain(asked):
    searcher = Deepening(33)
    asked(one=searcher, **LIMITED)
    remat.solve(DAG, time_limit=30)
    assert searcher.rounds == [3, 12, 48, 192]


def test_work_that_the_user_gave_is_not_changed(asked):
    searcher = Deepening(1)
    asked(one=searcher, **LIMITED)
    assert remat.solve(DAG, options={"rounds": 5}).options == {"rounds": 5}
    assert searcher.rounds == [5]


def little(problem):
    return {"rounds": 1}


def test_quick_solves_use_the_options_declared_for_them(asked):
    searcher = Deepening(1)
    asked(one=searcher, quick=f"{__name__}:little", **LIMITED)
    assert remat.least_budget(DAG, time_limit=20).report is not None
    assert searcher.rounds[0] == 1
    assert 3 in searcher.rounds


def test_an_algorithm_without_work_limits_runs_once(asked):
    searcher = Deepening(1)
    asked(one=searcher, options=LIMITED["options"])
    remat.solve(DAG)
    assert searcher.rounds == [3]


def test_a_round_that_would_not_fit_does_not_begin(asked, monkeypatch):
    monkeypatch.setattr("remat.solving.problem_setup.AUTO_SECONDS", 3.0)
    searcher = Deepening(1, seconds=0.8)
    asked(one=searcher, **LIMITED)
    assert remat.solve(DAG).options == {}
    assert searcher.rounds == [3]


def test_a_warm_start_is_never_lost():
    document = moderate("chain")
    least = remat.solve(document, budget=0, algorithm="rotor").least_budget.size
    good = remat.solve(document, budget=least + 6, algorithm="rotor")
    warm = remat.solve(document, budget=least + 6, algorithm="recompute-all", warm_start=good)
    assert (warm.makespan, warm.algorithm) == (good.makespan, "warm start")
    written = json.loads(json.dumps(good.to_dict()))
    again = remat.solve(document, budget=least + 6, algorithm="rotor", warm_start=written)
    assert (again.makespan, again.algorithm) == (good.makespan, "rotor")
    small = remat.solve(document, budget=least, algorithm="rotor", warm_start=good)
    if good.peak_memory["memory"] > least:
        assert "does not fit" in small.notes[-1]


def test_a_warm_start_must_be_one():
    document = moderate("chain")
    with pytest.raises(OptionError, match="another instance"):
        remat.solve(document, warm_start=remat.solve(DAG, algorithm="keep-all"))
    with pytest.raises(OptionError, match="without a schedule"):
        remat.solve(document, warm_start=remat.solve(document, budget=0))
    broken = remat.solve(document, algorithm="store-all").to_dict()
    broken["steps"] = broken["steps"][1:]
    with pytest.raises(OptionError, match="warm_start"):
        remat.solve(document, warm_start=broken)


def test_a_gap_that_is_met_ends_the_search(asked):
    names = asked(cheap=("one",), one=slow, two=keep_all)
    found = remat.solve(DAG, gap="50%")
    assert (found.termination, found.status) == (Termination.GAP, Status.FEASIBLE)
    assert names == ["one"]
    with pytest.raises(OptionError, match="gap"):
        remat.solve(DAG, gap="little")
    with pytest.raises(OptionError, match="patience"):
        remat.solve(DAG, patience="long")


def test_patience_counts_from_the_last_news():
    context = Context(patience=10.0)
    context.report(remat.solve(DAG, algorithm="keep-all").columns, makespan=30)
    assert not context.stopped
    context.changed -= 11
    assert (context.stopped, context.termination) == (True, Termination.PATIENCE)
    part = context.part("next")
    part.report(bound=3, scope=ALL_SCHEDULES)
    assert (context.best_bound, context.source) == (3, "next")
    part.report(bound=100, scope="some class")
    assert context.best_bound == 3


def test_parts_share_the_patience():
    """The patience applies to the whole portfolio, for any number of algorithms without a result."""
    context = Context(patience=10.0)
    context.report(remat.solve(DAG, algorithm="keep-all").columns, makespan=30)
    spent = 0.0
    for left in (4, 3, 2, 1):
        part = context.part("next", share=1 / left)
        assert part.patience is not None
        assert not part.stopped
        spent += part.patience
        context.changed -= part.patience
    assert spent == pytest.approx(10.0, abs=0.1)
    assert context.stopped


@pytest.mark.failing_algorithm
def test_a_failing_algorithm_ends_nothing(asked):
    def fails(problem, options, context):
        raise IndexError("list index out of range")

    def claims(problem, options, context):
        return replace(slow(problem, options, context), makespan=1)

    asked(cheap=("two",), one=fails, two=claims, three=slow)
    found = remat.solve(DAG)
    assert (found.status, found.algorithm) == (Status.FEASIBLE, "three")
    two, one = found.log
    assert two.startswith("bug: two claims makespan 1, verified is ")
    assert one == "bug: one failed: IndexError: list index out of range"


@pytest.mark.failing_algorithm
def test_a_bound_that_a_schedule_refutes_is_left_out(asked):
    def claims(problem, options, context):
        wrong = Bound(problem.no_recompute_time + 0.5, ALL_SCHEDULES, "one")
        return replace(slow(problem, options, context), makespan=None, bounds=(wrong,))

    asked(one=claims, two=keep_all)
    found = remat.solve(DAG)
    assert (found.status, found.algorithm) == (Status.OPTIMAL, "two")
    assert found.lower_bound == found.makespan
    assert any(line.startswith("bug: one claims bound ") for line in found.log)


def test_what_is_proved_with_one_processor_is_not_said_of_several(asked):
    def claims(problem, options, context):
        return replace(keep_all(problem, options, context), optimal_within=ALL_SCHEDULES)

    memories, processors = [{"name": "device"}], [{"name": "gpu", "memory": "device", "count": 2}]
    tasks = [{"id": f"t{k}", "time": 5, "size": 1} for k in range(4)]
    machine = {"memories": memories, "processors": processors}
    document = UNITS | {"kind": "dag", "tasks": tasks, "machine": machine, "outputs": [task["id"] for task in tasks]}
    asked(one=claims)
    found = remat.solve(document)
    assert (found.status, found.makespan, found.lower_bound) == (Status.FEASIBLE, 20, 10)
    assert found.optimal_within == "schedules on one processor"


def test_orders_are_told_apart():
    problem: Problem = make_problem(remat.load(costly_order()), budget=12)
    free = remat.solve(costly_order(), budget=12)
    listed = remat.solve(costly_order(), algorithm="keep-all")
    assert not portfolio.in_listed_order(problem.graph, free.columns)
    assert portfolio.in_listed_order(problem.graph, listed.columns)


def test_answers_of_several_algorithms_are_told_apart():
    """Schedules of unequal lengths cannot be compared; that one is none of those in the listed order is known."""
    tasks = [{"id": f"t{k}", "time": int(k < 2), "writes": writes} for k, writes in enumerate(UNEQUAL)]
    sizes = {"i": 1, "b": 1, "d": 1, "e": 2}
    values = [{"id": name, "size": sizes.get(name, 0)} for name in "iabcdefg"]
    machine = {
        "memories": [{"name": "device"}],
        "processors": [{"name": "gpu", "memory": "device", "count": 2}],
    }
    document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "values": values, "machine": machine}
    result = remat.solve(document | {"inputs": ["i"], "outputs": ["d"]}, budget=2)
    assert result.makespan == 2


UNEQUAL = (("a", "b"), ("c", "d"), ("e",), ("f",), ("g",))


def test_where_it_is_proved_nobody_says_that_he_does_not_know_the_instance(asked):
    """Refusals are reported only if no algorithm has an answer."""

    def infeasible(problem, options, context):
        return Proposal(infeasible_within="some class")

    asked(cheap=("two",), one=nothing, two=refuses, rest=infeasible)
    assert not any("not for me" in note for note in remat.solve(DAG, budget=keep_all_peak() - 1).notes)
    asked(cheap=("two",), one=nothing, two=refuses, rest=nothing)
    assert any("not for me" in note for note in remat.solve(DAG, budget=keep_all_peak() - 1).notes)


def keep_all_peak():
    return next(iter(remat.solve(DAG, algorithm="keep-all").peak_memory.values()))


def test_without_a_limit_a_small_graph_is_proved_before_others_do_all_their_work(monkeypatch):
    """`dag-exact` immediately proves that no schedule fits, so no other algorithm runs."""
    asked = []
    run = portfolio.run
    monkeypatch.setattr(
        portfolio, "run", lambda problem, solver, *more: asked.append(solver.name) or run(problem, solver, *more)
    )
    graph = remat.dag([(0, 1), (0, 2), (1, 3), (2, 3)], time=[2, 3, 3, 1], size=[40, 60, 60, 2], outputs=[3])
    result = remat.solve(graph, budget=159)
    assert result.status == "infeasible"
    assert result.least_budget.size == 160
    assert "dag-exact" in asked
    assert "dag-auto" not in asked
