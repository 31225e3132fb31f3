"""Solving: from a proposal to a verified result; statuses, claims, minimum budgets, arguments."""

import importlib
import json
import math
import signal
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import remat
from remat import ClaimError, OptionError
from remat.errors import AlgorithmError
from remat.plugin import registry
from remat.plugin.emit import run_in_order
from remat.plugin.proposal import ALL_SCHEDULES, Bound, LeastBudget, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.schedule.steps import StepBuilder, Steps
from remat.solving.conclusion import conclude
from remat.solving.problem_setup import make_problem, read_share
from remat.testing.cases import degenerate

# a (4) and b (3) are there together, with b's workspace; then b and c (2).
CHAINED = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "tasks": [
        {"id": "a", "time": 1, "size": 4},
        {"id": "b", "time": 2, "size": 3, "reads": ["a"], "workspace": 5},
        {"id": "c", "time": 3, "size": 2, "reads": ["b"]},
    ],
    "outputs": ["c"],
}
# Keeping x while y is produced costs memory; producing x twice costs time.
TWICE = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "tasks": [
        {"id": "x", "time": 5, "size": 6},
        {"id": "small", "time": 1, "size": 1, "reads": ["x"]},
        {"id": "y", "time": 1, "size": 6, "reads": ["small"]},
        {"id": "tiny", "time": 1, "size": 1, "reads": ["y"]},
        {"id": "end", "time": 1, "size": 1, "reads": ["x", "tiny"]},
    ],
    "outputs": ["end"],
}
REORDERING = "remat_algorithms.dag.programs.checkmate:CheckmateOptions"
HOST = {
    "memories": [{"name": "device"}, {"name": "host"}],
    "processors": [{"name": "gpu", "memory": "device"}],
    "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
}


def algorithm(guarantee="heuristic", **more):
    usual = {"solver": "nowhere:solve", "kinds": ("taskgraph",), "summary": "a fake", "within": "some orders"}
    return Algorithm(name="fake", guarantee=guarantee, **usual | more)


def order(problem, names):
    return run_in_order(problem.graph, problem.machine, [problem.graph.task(name) for name in names])


def concluded(proposal, *, document=CHAINED, budget=None, guarantee="heuristic", names="abc", **more):
    """Conclude from a proposal; by default its steps are the only order of `CHAINED`."""
    problem = make_problem(remat.load(document), budget=budget)
    if proposal.steps is None and names:
        proposal = replace(proposal, steps=order(problem, names))
    return conclude(problem, algorithm(guarantee, **more), proposal, {})


@pytest.fixture
def use(monkeypatch):
    """Return a function that registers its argument as the algorithm for every name."""

    def make(function, guarantee="heuristic", **more):
        monkeypatch.setattr(registry, "find", lambda name, kind: algorithm(guarantee, **more))
        monkeypatch.setattr(Algorithm, "load", lambda self: function)

    return make


# --- statuses ---------------------------------------------------------------------------------------------------------


def test_optimal_by_the_bound():
    result = concluded(Proposal(makespan=6))
    assert result.status is Status.OPTIMAL
    assert result.optimal_within == ALL_SCHEDULES
    assert result.proved_optimal
    assert (result.makespan, result.lower_bound, result.gap, result.overhead, result.recompute_time) == (6, 6, 0, 0, 0)
    assert result.peak_memory == {"memory": 12}
    assert result.peak_step("memory") == "b"


def test_feasible_above_the_bound():
    result = concluded(Proposal(), document=TWICE, names=["x", "small", "y", "tiny", "x", "end"], budget=8)
    assert result.status is Status.FEASIBLE
    assert result.optimal_within is None
    assert not result.proved_optimal
    assert (result.makespan, result.lower_bound, result.recompute_time) == (14, 9, 5)
    assert result.gap == pytest.approx(5 / 14)


def test_optimal_within_a_class_is_feasible():
    proposal = Proposal(optimal_within="some orders", bounds=(Bound(14, "some orders", "fake"),))
    result = concluded(proposal, document=TWICE, names=["x", "small", "y", "tiny", "x", "end"])
    assert result.status is Status.FEASIBLE
    assert result.optimal_within == "some orders"
    assert result.lower_bound == 9
    assert [(bound.value, bound.scope) for bound in result.bounds] == [(14, "some orders"), (9, ALL_SCHEDULES)]


def test_better_bound_of_the_algorithm():
    proposal = Proposal(bounds=(Bound(14, ALL_SCHEDULES, "fake"),))
    result = concluded(proposal, document=TWICE, names=["x", "small", "y", "tiny", "x", "end"], budget=8)
    assert result.status is Status.OPTIMAL
    assert result.lower_bound == 14


def test_infeasible_by_the_memory_bound():
    result = concluded(Proposal(), budget=11)
    assert result.status is Status.INFEASIBLE
    assert result.scope == ALL_SCHEDULES
    assert result.least_budget.size == 12
    assert result.graph.tasks[result.least_budget.task] == "b"
    assert (result.makespan, result.steps, result.peak_memory, result.gap) == (None, (), {}, None)


@pytest.mark.parametrize(("budget", "status"), [(11, Status.INFEASIBLE), (12, Status.OPTIMAL)])
def test_what_is_proved_met_no_limit(budget, status):
    result = concluded(Proposal(termination=Termination.SIZE_LIMIT), budget=budget)
    assert (result.status, result.termination) == (status, Termination.COMPLETED)


def test_infeasible_as_the_algorithm_says():
    least = LeastBudget(13, 1, True)
    result = concluded(Proposal(infeasible_within="some orders", least=least), budget=12, names=())
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.COMPLETED)
    assert (result.scope, result.least_budget) == ("some orders", least)
    assert result.least_budget.scope == "some orders"


def test_memory_bound_outdoes_the_scope_of_the_algorithm():
    result = concluded(Proposal(infeasible_within="some orders"), budget=11, names=())
    assert result.scope == ALL_SCHEDULES
    assert result.least_budget == LeastBudget(12, 1, False)
    assert result.least_budget.scope == ALL_SCHEDULES


def test_sufficient_budget_of_the_algorithm_outdoes_the_memory_bound():
    least = LeastBudget(20, 2, True)
    result = concluded(Proposal(infeasible_within="some orders", least=least), budget=11, names=())
    assert (result.scope, result.least_budget) == (ALL_SCHEDULES, least)
    assert result.least_budget.scope == "some orders"


def test_sufficient_budget_of_a_heuristic_is_no_bound():
    for budget in (11, 12):
        result = concluded(Proposal(least=LeastBudget(20, None, True)), budget=budget, names=())
        assert result.least_budget.scope is None
        assert result.head()["least_budget"]["scope"] is None


def test_class_needs_no_less_than_all_schedules():
    result = concluded(Proposal(infeasible_within="some orders", least=LeastBudget(12, None, True)), budget=11)
    assert result.least_budget.scope == ALL_SCHEDULES


@pytest.mark.parametrize(
    ("scope", "more", "said"),
    [
        ("schedules in the reference order", {}, "try algorithm dag-order-exact"),
        ("runs of the reference order", {"options": REORDERING}, "try option reorder=true or algorithm dag-order"),
        ("runs of the improved order", {"options": "remat_algorithms.dag.programs.checkmate:RoundingOptions"}, "try "),
        ("some orders", {"options": REORDERING}, None),
    ],
)
def test_other_orders_are_named(scope, more, said):
    proposal = Proposal(infeasible_within=scope, least=LeastBudget(13, None, False), notes=("rounded",))
    notes = concluded(proposal, budget=12, names=(), **more).notes
    assert notes[0] == "rounded"
    assert len(notes) == 2 if said is None else notes[1].startswith(f"another order of the tasks may fit: {said}")
    assert notes[-1].startswith("algorithm auto tries others")


def test_unknown_names_the_memory_bound():
    result = concluded(Proposal(termination=Termination.TIME_LIMIT), budget=12, names=())
    assert result.status is Status.UNKNOWN
    assert result.termination is Termination.TIME_LIMIT
    assert (result.scope, result.optimal_within) == (None, None)
    assert result.least_budget == LeastBudget(12, 1, False)


def test_heuristic_that_does_not_fit_is_unknown():
    document = TWICE
    names = ["x", "small", "y", "tiny", "end"]
    assert concluded(Proposal(), document=document, names=names).peak_memory == {"memory": 13}
    result = concluded(Proposal(), document=document, names=names, budget=12)
    assert (result.status, result.columns) == (Status.UNKNOWN, None)


def test_strategy_that_does_not_fit_names_its_own_peak():
    names = ["x", "small", "y", "tiny", "end"]
    result = concluded(Proposal(), document=TWICE, names=names, budget=12, guarantee="strategy")
    assert (result.status, result.scope) == (Status.UNKNOWN, "some orders")
    assert result.least_budget == LeastBudget(13, 2, True)
    again = concluded(Proposal(), document=TWICE, names=names, budget=13, guarantee="strategy")
    assert again.peak_memory == {"memory": 13}


def test_strategy_without_a_named_class():
    names = ["x", "small", "y", "tiny", "end"]
    result = concluded(Proposal(), document=TWICE, names=names, budget=12, guarantee="strategy", within="")
    assert result.scope == "the fake schedule"


@pytest.mark.parametrize("guarantee", ["strategy", "heuristic", "exact"])
def test_what_lies_there_at_the_start_may_be_too_much(guarantee):
    document = CHAINED | {
        "values": [{"id": "i", "size": 30}],
        "inputs": [{"value": "i", "memory": "host"}],
        "machine": HOST,
    }
    result = concluded(Proposal(), document=document, budget={"host": 29}, guarantee=guarantee)
    assert (result.status, result.scope) == (Status.INFEASIBLE, ALL_SCHEDULES)
    assert (result.least_budget.size, result.least_budget.memory) == (30, 1)
    assert concluded(Proposal(), document=document, budget={"host": 30}, guarantee=guarantee).makespan == 6


def test_two_memories_that_are_too_small_have_no_sufficient_budget():
    document = CHAINED | {"values": [{"id": "i", "size": 30}], "inputs": [{"value": "i", "memory": "host"}]}
    budget = {"host": 29, "device": 11}
    result = concluded(Proposal(), document=document | {"machine": HOST}, budget=budget, guarantee="strategy")
    assert result.status is Status.INFEASIBLE
    assert not result.least_budget.sufficient


def test_an_empty_schedule_is_optimal():
    document = degenerate("dag")["nothing-to-do"]
    result = concluded(Proposal(steps=Steps.of_runs(np.zeros(0, dtype=np.int64))), document=document, names=())
    assert (result.status, result.makespan, result.peak_memory) == (Status.OPTIMAL, 0, {"memory": 0})
    assert (result.gap, result.overhead, result.peak_step("memory")) == (0, None, "initial residency")


# --- claims -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("proposal", "message"),
    [
        (Proposal(makespan=5), "fake claims makespan 5, verified is 6"),
        (Proposal(makespan=7), "fake claims makespan 7, verified is 6"),
        (Proposal(makespan=6.1), "fake claims makespan 6.1, verified is 6"),
        (Proposal(makespan=math.nan), "fake claims makespan nan, verified is 6"),
        (Proposal(peak=11), "fake claims peak 11, verified is 12"),
        (Proposal(peak=13), "fake claims peak 13, verified is 12"),
        (Proposal(bounds=(Bound(7, ALL_SCHEDULES, "fake"),)), "fake claims bound 7, above the verified makespan 6"),
        (
            Proposal(bounds=(Bound(7, "mine", "fake"),), optimal_within="mine"),
            "fake claims bound 7, above the verified makespan 6",
        ),
    ],
)
def test_false_claims_are_errors(proposal, message):
    with pytest.raises(ClaimError, match=message):
        concluded(proposal)


def test_true_claims_are_accepted():
    claims = Proposal(makespan=6.0, peak=12, bounds=(Bound(6, ALL_SCHEDULES, "fake"), Bound(9, "others", "fake")))
    assert concluded(claims).makespan == 6


def test_claims_of_fractional_times_may_round():
    document = CHAINED | {"tasks": [task | {"time": 0.1} for task in CHAINED["tasks"]]}
    assert concluded(Proposal(makespan=0.3), document=document).makespan == 0.1 + 0.1 + 0.1
    with pytest.raises(ClaimError, match="claims makespan"):
        concluded(Proposal(makespan=0.3000001), document=document)


def test_schedule_that_is_none():
    with pytest.raises(ClaimError, match=r"the verifier rejects the schedule: step 0: .*: b in memory"):
        concluded(Proposal(), names=["c", "a", "b"])
    with pytest.raises(ClaimError, match="the verifier rejects the schedule: schedule: "):
        concluded(Proposal(), names=["a", "b"])


def test_exact_algorithm_whose_schedule_does_not_fit():
    names = ["x", "small", "y", "tiny", "end"]
    with pytest.raises(ClaimError, match="fake: step 2 needs 13 of 12 in memory, although"):
        concluded(Proposal(), document=TWICE, names=names, budget=12, guarantee="exact")


def test_steps_with_start_times_are_taken_as_they_are():
    problem = make_problem(remat.load(CHAINED))
    builder = StepBuilder()
    for task, drop in ((0, ()), (1, (0,)), (2, (1,))):
        builder.run(task, drop=drop)
    result = conclude(problem, algorithm(), Proposal(steps=builder.build(np.array([0, 1, 10]))), {})
    assert result.makespan == 13
    with pytest.raises(ClaimError, match="verifier rejects"):
        conclude(problem, algorithm(), Proposal(steps=builder.build(np.array([0, 0, 10]))), {})


# --- end to end -------------------------------------------------------------------------------------------------------


def test_result_carries_what_was_asked():
    result = remat.solve(CHAINED | {"name": "three"}, algorithm="keep-all", budget=12, seed=7)
    document = result.to_dict()
    assert document["instance"]["name"] == "three"
    assert document["machine"]["memories"] == [{"name": "memory", "capacity": 12}]
    assert (document["algorithm"], document["seed"], document["options"]) == ("keep-all", 7, {})
    assert document["status"] == "optimal"
    assert [step["run"] for step in document["steps"]] == ["a", "b", "c"]
    assert remat.verify(CHAINED, json.loads(json.dumps(document))).ok
    assert result.solve_seconds >= 0


def test_infeasible_is_written_down():
    document = remat.solve(CHAINED, algorithm="keep-all", budget=11).to_dict()
    assert (document["status"], document["scope"]) == ("infeasible", ALL_SCHEDULES)
    least = {"memory": "memory", "size": 12, "task": "b", "sufficient": True, "scope": ALL_SCHEDULES}
    assert document["least_budget"] == least
    assert "steps" not in document


@pytest.mark.parametrize("budget", [12, "12", "12B", "0.012kB", {"memory": 12}, {"memory": "12"}])
def test_budgets_are_read_in_every_form(budget):
    assert remat.solve(CHAINED, algorithm="keep-all", budget=budget).machine.memories[0].capacity == 12


def test_budget_of_a_named_memory_and_of_the_first_storage_level():
    document = CHAINED | {"machine": HOST}
    result = remat.solve(document, algorithm="keep-all", budget={"host": 5, "device": None})
    assert [memory.capacity for memory in result.machine.memories] == [None, 5]
    adjoint = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 3, "storage": [{"name": "disk"}]}
    result = remat.solve(adjoint, algorithm="keep-all", budget=5)
    assert [(memory.name, memory.capacity) for memory in result.machine.memories] == [("working", 2), ("disk", 5)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"budget": -1}, "budget: -1 is negative"),
        ({"budget": "8,5GB"}, "budget: '8,5GB' is not a size"),
        ({"budget": True}, "budget: "),
        ({"budget": {"moon": 1}}, "budget: unknown memory 'moon'; this machine has 'memory'"),
        ({"time_limit": "soon"}, "time_limit: 'soon' is not a duration"),
        ({"time_limit": -1}, "time_limit: -1 is not a duration"),
        ({"time_limit": math.nan}, "time_limit: "),
        ({"time_limit": [1]}, "time_limit: "),
        ({"seed": -1}, "seed: expected a whole number >= 0, not -1"),
        ({"seed": 1.5}, "seed: "),
        ({"threads": 0}, "threads: expected a whole number >= 1, not 0"),
        ({"threads": True}, "threads: "),
        ({"algorithm": "keepall"}, "unknown algorithm 'keepall'; did you mean 'keep-all'"),
        ({"options": {"a": 1}}, "keep-all has no options, so 'a'"),
    ],
)
def test_arguments_that_cannot_be_used(more, message):
    with pytest.raises(OptionError, match=message):
        remat.solve(CHAINED, **{"algorithm": "keep-all"} | more)


def test_byte_budget_of_an_instance_in_units():
    with pytest.raises(OptionError, match="budget: '8GB' is in bytes, but this instance counts memory in units"):
        remat.solve(CHAINED | {"units": {"memory": "unit"}}, algorithm="keep-all", budget="8GB")


def test_machine_is_replaced(tmp_path):
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(HOST))
    for machine in (HOST, path, str(path)):
        result = remat.solve(CHAINED, algorithm="keep-all", machine=machine, budget=12)
        assert result.peak_memory == {"device": 12, "host": 0}


@pytest.mark.parametrize(
    "ask",
    [
        lambda machine: remat.solve(CHAINED, machine=machine),
        lambda machine: remat.show(CHAINED, machine=machine),
        lambda machine: remat.verify(CHAINED, {"schema": "remat.schedule/2", "steps": []}, machine=machine),
    ],
)
def test_errors_of_a_machine_name_the_argument(ask):
    with pytest.raises(remat.InstanceError, match=r"^machine\.memories\[0\]\.name: expected a name") as refused:
        ask({"memories": [{"name": 3}], "processors": []})
    assert refused.value.path == "machine.memories[0].name"


@pytest.mark.parametrize("key", ["inputs", "outputs"])
def test_algorithms_of_one_memory_refuse_what_lies_elsewhere(key, use):
    document = CHAINED | {"machine": HOST, "values": [{"id": "i", "size": 1}], "inputs": ["i"]}
    document[key] = [{"value": {"inputs": "i", "outputs": "c"}[key], "memory": "host"}]
    with pytest.raises(OptionError, match=r"'keep-all' works only in memory 'device', but '[ic]' is in 'host'"):
        remat.solve(document, algorithm="keep-all")
    use(lambda problem, options, context: Proposal(), several_memories=True)
    assert remat.solve(document, algorithm="any").status is Status.UNKNOWN


def test_inputs_that_lie_in_both_memories_are_fine():
    adjoint = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 1, "storage": [{"name": "disk"}]}
    assert remat.solve(adjoint | {"initial_state": "disk"}, algorithm="keep-all").makespan == 1


# --- the context of a solve -------------------------------------------------------------------------------------------


def test_algorithm_sees_the_limits(use):
    seen = []

    def solver(problem, options, context):
        seen.append(context)
        return Proposal(termination=context.termination)

    use(solver)
    before = time.monotonic()
    remat.solve(CHAINED, algorithm="any", time_limit="100s", seed=3, threads=2)
    remat.solve(CHAINED, algorithm="any")
    (limited, free) = seen
    assert before + 100 <= limited.deadline <= time.monotonic() + 100
    assert (limited.seed, limited.threads) == (3, 2)
    assert (free.deadline, free.seed, free.threads) == (None, 0, 1)
    result = remat.solve(CHAINED, algorithm="any", time_limit=0)
    assert (result.status, result.termination) == (Status.UNKNOWN, Termination.TIME_LIMIT)


def test_progress_is_passed_on(use):
    heard = []

    def solver(problem, options, context):
        steps = order(problem, "abc")
        context.report(steps, makespan=6, bound=2, scope=ALL_SCHEDULES, message="found")
        return Proposal(steps=steps)

    use(solver)
    remat.solve(CHAINED, algorithm="any", progress=heard.append)
    assert [(entry.makespan, entry.bound, entry.message) for entry in heard] == [(6, 2, "found")]


@pytest.mark.parametrize(("scope", "lower"), [(ALL_SCHEDULES, 5), ("some class", 3)])
def test_the_answer_stands_by_the_bounds_that_were_reported(use, scope, lower):
    def solver(problem, options, context):
        context.report(bound=5, scope=scope)
        context.report(bound=4, scope=scope)
        return Proposal(steps=order(problem, "abc"), bounds=(Bound(3, ALL_SCHEDULES, "any"),))

    use(solver)
    result = remat.solve(CHAINED, algorithm="any")
    assert [(bound.value, bound.scope) for bound in result.bounds[:-1]][-1] == (lower, ALL_SCHEDULES)
    assert max(entry.bound or 0 for entry in result.history) <= result.lower_bound


@pytest.mark.parametrize(("late", "status"), [(2.0**-50, Status.OPTIMAL), (2.0**-40, Status.FEASIBLE)])
def test_optimal_is_said_where_only_rounding_is_between(late, status):
    problem = make_problem(remat.load(CHAINED))
    steps = order(problem, "abc").placed(np.array([0.0, 1.0, 3.0]) + late)
    result = conclude(problem, algorithm(), Proposal(steps=steps), {})
    assert result.lower_bound == 6 < result.makespan
    assert result.status is status


def test_a_reported_bound_that_is_beaten_is_a_wrong_claim(use):
    def solver(problem, options, context):
        context.report(bound=7, scope=ALL_SCHEDULES)
        return Proposal(steps=order(problem, "abc"))

    use(solver)
    with pytest.raises(ClaimError, match="bound 7"):
        remat.solve(CHAINED, algorithm="any")


def test_interrupted_solver_returns_what_it_has(use):
    def solver(problem, options, context):
        signal.raise_signal(signal.SIGINT)
        assert context.stopped
        return Proposal(steps=order(problem, "abc"), termination=context.termination)

    use(solver)
    result = remat.solve(CHAINED, algorithm="any")
    assert (result.makespan, result.termination) == (6, Termination.INTERRUPTED)


@pytest.mark.parametrize("moment", ["make_problem", "check_reach", "conclude"])
def test_an_interrupt_beside_the_solver_loses_nothing(use, monkeypatch, moment):
    def solver(problem, options, context):
        return Proposal(steps=order(problem, "abc"), termination=context.termination)

    def interrupted(*given, **more):
        signal.raise_signal(signal.SIGINT)
        return whole(*given, **more)

    use(solver)
    entry = importlib.import_module("remat.solving.entry")
    whole = getattr(entry, moment)
    monkeypatch.setattr(entry, moment, interrupted)
    result = remat.solve(CHAINED, algorithm="any")
    assert result.makespan == 6
    assert (result.termination == Termination.INTERRUPTED) == (moment != "conclude")


def test_second_interrupt_is_an_exception(use):
    def solver(problem, options, context):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    use(solver)
    with pytest.raises(KeyboardInterrupt):
        remat.solve(CHAINED, algorithm="any")


def test_errors_of_a_solver_are_not_swallowed(use):
    def solver(problem, options, context):
        raise ZeroDivisionError

    use(solver)
    with pytest.raises(AlgorithmError, match="fake failed: ZeroDivisionError") as raised:
        remat.solve(CHAINED, algorithm="any")
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_machine_on_which_a_transfer_has_no_route_is_a_proof():
    memories = [{"name": "device"}, {"name": "host"}]
    machine = {"memories": memories, "processors": [{"name": "gpu", "memory": "device"}]}
    document = {
        "schema": "remat.instance/2",
        "kind": "dag",
        "machine": machine,
        "tasks": [{"id": "a", "time": 1, "size": 1}],
        "outputs": [{"value": "a", "memory": "host"}],
    }
    for algorithm in ("auto", "dag-offload-best"):
        found = remat.solve(document, algorithm=algorithm)
        assert (found.status, found.scope, found.least_budget) == (Status.INFEASIBLE, ALL_SCHEDULES, None)
        (line, *_) = found.notes
        assert "a" in line
        assert "host" in line


@pytest.mark.parametrize("text", ["1e-9999993", "1e-999999999999999999", "0." + "1" * 59_000, "1e-301%", "1e13", "NaN"])
def test_a_share_is_read_in_no_time_or_refused(text):
    """As a fraction, 1e-9999993 has ten million digits."""
    with pytest.raises(remat.OptionError, match=r"gap: .* is not a share >= 0"):
        read_share(text, "gap")


def test_small_shares_are_exact():
    assert read_share("1e-299", "gap") == Fraction(1, 10**299)
    assert read_share(0.25, "gap") == Fraction(1, 4)
    assert read_share("20%", "gap") == Fraction(1, 5)
