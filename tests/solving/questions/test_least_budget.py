"""Compare the minimum budget for a time limit with a scan over all budgets."""

import json
import signal
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.plugin.proposal import ALL_SCHEDULES, Proposal, Status, Termination
from remat.plugin.registry import Algorithm
from remat.solving.problem_setup import read_share
from remat.testing import strategies
from remat.units import parse_size
from remat_algorithms.dag import keep_all
from tests import hooks
from tests.oracles import persistent, search

LECTURE = {"schema": "remat.instance/1", "kind": "adjoint", "units": {"time": "unit", "memory": "unit"}, "steps": 6}
STORED = LECTURE | {"steps": 9, "state_size": 4, "storage": [{"name": "ram", "slots": 2}]}
CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 3,
    "static_memory": 10,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 4}],
}
SHARES = st.sampled_from([Fraction(0), Fraction(1, 20), Fraction(1, 5), Fraction(1, 2), Fraction(3, 2)])


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    hooks.register(monkeypatch)


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def least_by_scan(best, limit, top):
    """Return the minimum budget up to `top` whose best makespan is within the limit."""
    for budget in range(top + 1):
        makespan = best(budget)
        if makespan is not None and makespan <= limit:
            return budget
    return None


# --- against a scan of all budgets ------------------------------------------------------------------------------------


@draws(40)
@given(strategies.chains(largest=4, plain=True, exact=True), SHARES, st.sampled_from(["rotor", "unswept", "swept"]))
def test_the_minimum_budget_of_chains_equals_a_scan(document, share, algorithm):
    document = {key: value for key, value in document.items() if key != "machine"}
    whole = remat.solve(document, algorithm="store-all")
    limit = (1 + share) * whole.no_recompute_time
    top = whole.peak_memory["memory"]
    wanted = least_by_scan(persistent.Recursion(document).least_time, limit, top)
    found = remat.least_budget(document, algorithm=algorithm, max_overhead=float(share))
    assert found.answer.value == wanted == found.peak_memory["memory"]
    assert found.machine.memories[0].capacity == wanted
    assert found.makespan <= limit
    assert found.answer.proved
    assert remat.verify(document, found.to_dict()).ok


@draws(25)
@given(st.integers(1, 7), st.integers(0, 3), st.integers(1, 3), SHARES)
def test_the_minimum_number_of_slots_equals_exhaustive_search(steps, backward, state, share):
    document = STORED | {"steps": steps, "backward_time": backward, "state_size": state}
    forward = [1] * steps
    costs = [search.adjoint_best_cost(forward, [backward] * steps, [(slots, 0, 0)]) for slots in range(steps + 1)]
    time = steps - 1 + steps * backward
    wanted = next(slots for slots, cost in enumerate(costs) if cost is not None and cost <= (1 + share) * time)
    found = remat.least_budget(document, algorithm="revolve", max_overhead=float(share))
    assert found.answer.slots == wanted
    assert found.answer.value == wanted * state == found.peak_memory["ram"]
    assert found.answer.proved


@draws(3)
@given(st.integers(1, 7), st.integers(0, 3), st.integers(1, 3), SHARES)
def test_auto_needs_no_more_slots(steps, backward, state, share):
    document = STORED | {"steps": steps, "backward_time": backward, "state_size": state}
    asked = {"max_overhead": float(share), "time_limit": 2}
    wanted = remat.least_budget(document, algorithm="revolve", **asked)
    found = remat.least_budget(document, **asked)
    assert found.answer.value <= wanted.answer.value
    assert found.answer.slots * state == found.answer.value == found.peak_memory["ram"]


@draws(5)
@given(strategies.adjoints(largest=5, exact=True), SHARES)
def test_auto_on_adjoints_in_one_memory(document, share):
    check_auto_in_one_memory(document, share, most=8)


@pytest.mark.slow
@draws(60)
@given(strategies.adjoints(largest=5, exact=True), SHARES)
def test_auto_on_adjoints_in_one_memory_thoroughly(document, share):
    check_auto_in_one_memory(document, share, most=150)


def check_auto_in_one_memory(document, share, most):
    document = {key: value for key, value in document.items() if key not in ("storage", "initial_state", "machine")}
    found = remat.least_budget(document, max_overhead=float(share))
    value, limit = found.answer.value, (1 + share) * found.no_recompute_time
    if value is None:
        assert remat.solve(document).makespan > limit
        return
    for budget in range(min(value, 150))[-most:]:
        less = remat.solve(document, budget=budget)
        # The proof is about the class of the algorithm that auto chooses just below.
        if less.makespan is not None and less.makespan <= limit:
            assert found.answer.scope != ALL_SCHEDULES or not found.answer.proved
    assert found.makespan <= limit


@draws(15)
@given(strategies.dags(largest=5, exact=True), SHARES)
def test_no_proof_is_refuted_by_any_schedule(document, share):
    """Claims about all schedules agree with exhaustive search."""
    if "machine" in document:
        return
    found = remat.least_budget(document, algorithm="keep-all", max_overhead=float(share))
    least = search.chain_least_budget(document)
    answer = found.answer
    if answer.scope == ALL_SCHEDULES and answer.bound is not None and answer.bound > least:
        best = search.chain_best(document, answer.bound - 1)
        assert best is None or best > (1 + share) * found.no_recompute_time


# --- what is asked, and how -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [0.2, "0.2", "20%", " 20 % ", "2e-1", Fraction(1, 5)])
def test_shares_are_read_exactly(given):
    assert read_share(given if not isinstance(given, Fraction) else float(given), "max_overhead") == Fraction(1, 5)


@pytest.mark.parametrize("given", ["", "%", "-1%", "nan", "inf", "ten", True, "20%%", -0.1, "1e99", None, [1]])
def test_texts_that_are_not_shares_are_refused(given):
    with pytest.raises(remat.OptionError, match=r"max_overhead.*0\.2 or 20%"):
        read_share(given, "max_overhead")


def test_exactly_at_the_limit():
    """0.2 is a fifth, and not a little more."""
    fifth = {"schema": "remat.instance/1", "kind": "adjoint", "steps": 5, "forward_time": 1, "backward_time": 16}
    top = remat.solve(fifth, algorithm="store-all")
    assert top.no_recompute_time == 84
    for share, makespan in ((Fraction(1, 84), 85), (Fraction(2, 84), 86)):
        limit = f"{float(share):.17f}"
        exact = Fraction(limit) >= share
        found = remat.least_budget(fifth, algorithm="adjoint-dp", max_overhead=limit)
        assert found.makespan <= (makespan if exact else makespan - 1)


def test_makespan_limits_are_met():
    for limit, peak in ((10**6, 3), (17, 3), (16, 4)):
        found = remat.least_budget(LECTURE, max_makespan=limit)
        assert found.makespan <= limit
        assert found.answer.value == peak
    ms = LECTURE | {"units": {"time": "ms"}}
    found = remat.least_budget(ms, max_makespan="0.02s")
    assert found.answer.question == "the minimum budget of memory for a makespan of at most 20 ms"
    assert found.answer.value == remat.least_budget(LECTURE, max_makespan="20").answer.value


def test_the_stricter_of_two_limits_counts():
    one = remat.least_budget(LECTURE, max_overhead="10%")
    two = remat.least_budget(LECTURE, max_overhead="10%", max_makespan=1000)
    three = remat.least_budget(LECTURE, max_overhead="1000%", max_makespan=one.makespan)
    assert one.answer.value == two.answer.value == three.answer.value
    assert "overhead" in two.answer.question
    assert "makespan" in two.answer.question


def test_no_budget_will_do():
    found = remat.least_budget(CHAIN, max_makespan=3)
    assert (found.status, found.scope, found.answer.value) == (Status.INFEASIBLE, ALL_SCHEDULES, None)
    assert found.notes == ("no budget is enough: with any memory, the makespan is at least 20",)
    assert found.answer.solves == 0
    assert "least_budget" not in found.to_dict()


def test_a_strategy_that_is_too_slow():
    found = remat.least_budget(CHAIN, algorithm="recompute-all", max_overhead=0)
    assert (found.status, found.scope) == (Status.UNKNOWN, "the recompute-all schedule")
    assert "even without a budget, the makespan of recompute-all is 32" in found.notes[0]
    enough = remat.least_budget(CHAIN, algorithm="recompute-all", max_overhead="60%")
    peak = remat.solve(CHAIN, algorithm="recompute-all").peak_memory["memory"]
    assert (enough.answer.value, enough.answer.proved, enough.answer.solves) == (peak, True, 1)


def test_a_heuristic_proves_nothing():
    exact = remat.least_budget(CHAIN, algorithm="rotor", max_overhead="30%")
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="30%")
    assert found.answer.value == exact.answer.value
    assert not found.answer.proved
    assert "not proved" in found.notes[-1]
    assert found.answer.bound <= exact.answer.value
    slow = remat.least_budget(CHAIN, algorithm="frugal", max_makespan=20)
    assert slow.answer.value == remat.solve(CHAIN, algorithm="store-all").peak_memory["memory"]


def test_a_heuristic_that_finds_nothing(monkeypatch):
    monkeypatch.setattr(hooks, "frugal", lambda problem, options, context: Proposal())
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="30%")
    assert (found.status, found.answer.value, found.answer.scope) == (Status.UNKNOWN, None, None)


def test_a_slow_heuristic_is_no_proof(monkeypatch):
    def slow(problem, options, context):
        runs = keep_all.solve(problem, None, context).steps.runs.tolist()
        from remat.plugin.emit import run_in_order

        return Proposal(steps=run_in_order(problem.graph, problem.machine, [runs[0], *runs]))

    monkeypatch.setattr(hooks, "frugal", slow)
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="0%")
    assert (found.status, found.scope) == (Status.UNKNOWN, None)
    assert "the makespan of frugal is 22" in found.notes[0]


def test_infeasible_for_another_reason():
    small = STORED | {"static_memory": 5, "machine": None}
    del small["machine"]
    found = remat.least_budget(small, budget={"working": 3}, max_overhead="50%")
    assert found.status is Status.INFEASIBLE
    assert found.answer.value is None
    assert found.least_budget.memory == 0


def test_budgets_of_other_memories():
    with pytest.raises(remat.OptionError, match="the budget of 'ram' is the answer"):
        remat.least_budget(STORED, budget=8, max_overhead="50%")
    with pytest.raises(remat.OptionError, match="the budget of 'ram' is the answer"):
        remat.least_budget(STORED, budget={"ram": 8}, max_overhead="50%")
    found = remat.least_budget(STORED, budget={"working": 50}, max_overhead="50%")
    assert [memory.capacity for memory in found.machine.memories] == [50, found.answer.value]


@pytest.mark.parametrize("algorithm", ["1f1b", pytest.param("pipe-plan", marks=pytest.mark.slow)])
def test_a_budget_of_all_devices(algorithm):
    document = generate("pipeline", "uniform", layers=6, devices=2, micro_batches=3)
    options = {"moves": 0, "zoo": False} if algorithm == "pipe-plan" else {}
    found = remat.least_budget(document, algorithm=algorithm, options=options)
    assert found.answer.question.startswith("the minimum budget of every device")
    assert found.answer.value == max(found.peak_memory.values()) > 0
    again = remat.solve(document, algorithm=algorithm, options=options, budget=found.answer.ask)
    assert again.report is not None
    swept = remat.sweep(document, algorithm, options=options, budgets=[found.answer.ask, 0])
    assert [point.peak for point in swept.curves[0].answers] == [None, max(again.peak_memory.values())]
    with pytest.raises(remat.OptionError, match="the budget of every device is the answer of this question"):
        remat.least_budget(document, algorithm=algorithm, budget={"gpu1": 9})


def test_an_option_of_the_same_name_is_the_algorithms():
    found = remat.solve(CHAIN, algorithm="own-options", options={"max_overhead": 3})
    assert (found.answer, found.options) == (None, {"max_overhead": 3})
    asked = remat.least_budget(CHAIN, algorithm="own-options", options={"max_overhead": 3}, max_makespan=1000)
    assert asked.options == {"max_overhead": 3}
    assert asked.answer.value is not None


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"max_makespan": "soon"}, "^max_makespan: 'soon'"),
        ({"max_makespan": -1}, "^max_makespan: "),
        ({"max_overhead": "much"}, "^max_overhead: 'much'"),
        ({"budget": 0.5}, "^budget: the budget of 'memory' is the answer"),
        ({"max_overhead": 1, "options": {"gab": 3}}, "has the option 'gab'; did you mean 'gap'"),
        ({"max_overhead": 1, "options": {"gap": 2}}, "^option gap: "),
        ({"max_overhead": 1, "budget": 30}, "^budget: the budget of 'memory' is the answer"),
    ],
)
def test_bad_questions_are_refused(question, message):
    with pytest.raises(remat.OptionError, match=message):
        remat.least_budget(CHAIN, **question)


def test_options_reach_the_algorithm():
    found = remat.least_budget(CHAIN, algorithm="rotor", max_overhead=1, options={"gap": 0.3})
    assert found.options == {"gap": 0.3}


def test_options_of_auto_go_to_those_who_know_them():
    """`auto` passes an option only to algorithms that have it, and rejects unknown options."""
    for loop in (LECTURE, STORED):
        chosen = remat.least_budget(loop, max_overhead="60%", time_limit=2)
        assert chosen.answer.value is not None
    with pytest.raises(remat.OptionError, match="nonsense"):
        remat.least_budget(LECTURE, max_overhead="60%", options={"nonsense": 1})
    with pytest.raises(remat.OptionError, match="nonsense"):
        remat.largest_batch(LECTURE, budget=30, options={"nonsense": 1})
    with pytest.raises(remat.OptionError, match="nonsense"):
        remat.sweep(LECTURE, options={"nonsense": 1})


def test_the_document_has_the_answer():
    found = remat.least_budget(STORED, algorithm="revolve", max_overhead="50%")
    document = json.loads(json.dumps(found.to_dict()))
    assert document["answer"]["value"] == found.answer.value
    assert document["answer"]["slots"] * 4 == found.answer.value
    assert document["answer"]["proved"] is True
    assert remat.verify(STORED, document).ok


def test_what_it_takes_to_find_the_schedule_again(monkeypatch):
    """The question for an algorithm that rounds the budget down."""

    def rounded(problem, options, context):
        budget = None if problem.budget is None else problem.budget // 2**26 * 2**26
        memory = problem.machine.memories[0].name
        return hooks.solve(problem.on(problem.machine.with_capacities({memory: budget})), hooks.Swept(), context)

    monkeypatch.setattr(hooks, "frugal", rounded)
    found = remat.least_budget(remat.example("resnet50"), max_overhead="20%", algorithm="frugal")
    note = next(note for note in found.notes if note.startswith("keep this schedule, or ask for a budget of"))
    assert remat.verify(remat.example("resnet50"), found.to_dict()).ok
    takes = found.answer.ask
    assert takes > found.answer.value
    assert parse_size(note.split("budget of ")[1].split(":")[0]) == takes
    again = remat.solve(remat.example("resnet50"), budget=takes, algorithm="frugal")
    assert again.makespan == found.makespan


# --- limits and interruptions -----------------------------------------------------------------------------------------


def test_interrupted_on_the_way(monkeypatch):
    calls = []

    def slow(problem, options, context):
        calls.append(problem.budget)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return hooks.rotor.solve(problem, hooks.rotor.RotorOptions(), context)

    monkeypatch.setattr(hooks, "frugal", slow)
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="90%")
    assert len(calls) == 2
    assert found.termination is Termination.INTERRUPTED
    assert found.status in (Status.OPTIMAL, Status.FEASIBLE)


def test_interrupted_before_the_first_answer(monkeypatch):
    def stuck(problem, options, context):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(hooks, "frugal", stuck)
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="90%")
    assert (found.status, found.termination) == (Status.UNKNOWN, Termination.INTERRUPTED)
    assert found.notes == ("stopped before the first answer",)


def test_interrupted_twice_on_the_way(monkeypatch):
    calls = []

    def stuck(problem, options, context):
        calls.append(problem.budget)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return hooks.rotor.solve(problem, hooks.rotor.RotorOptions(), context)

    monkeypatch.setattr(hooks, "frugal", stuck)
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead="90%")
    assert found.termination is Termination.INTERRUPTED
    assert found.answer.value is not None


def test_time_is_shared(monkeypatch):
    left = []

    def watch(problem, options, context):
        left.append(context.seconds_left)
        return keep_all.solve(problem, None, context)

    monkeypatch.setattr(hooks, "frugal", watch)
    fake = hooks.entry("anytime", solver="frugal", guarantee="heuristic", options="", anytime=True)
    hooks.register(monkeypatch, anytime=fake)
    remat.least_budget(CHAIN, algorithm="anytime", max_overhead=1, time_limit=1000)
    assert left[0] == pytest.approx(100, rel=0.1)
    assert all(seconds < 900 for seconds in left)
    left.clear()
    remat.least_budget(CHAIN, algorithm="frugal", max_overhead=1, time_limit=1000)
    assert all(900 < seconds <= 1000 for seconds in left)


def test_no_time_at_all():
    found = remat.least_budget(CHAIN, algorithm="frugal", max_overhead=1, time_limit=0)
    assert found.termination is Termination.TIME_LIMIT
    assert not found.answer.proved


# --- hooks ------------------------------------------------------------------------------------------------------------


def test_a_hook_spares_solves():
    plain = remat.least_budget(CHAIN, algorithm="unswept", max_overhead="40%")
    swept = remat.least_budget(CHAIN, algorithm="swept", max_overhead="40%")
    assert swept.answer.value == plain.answer.value
    assert swept.answer.proved
    assert swept.answer.solves == 2 < plain.answer.solves


def test_a_hook_that_ends_early_is_made_up_for():
    plain = remat.least_budget(CHAIN, algorithm="unswept", max_overhead="60%")
    short = remat.least_budget(CHAIN, algorithm="swept-short", max_overhead="60%")
    assert short.answer.value == plain.answer.value
    assert short.answer.proved


def test_a_hook_that_lies():
    with pytest.raises(remat.ClaimError, match="claims makespan 0"):
        remat.least_budget(CHAIN, algorithm="swept-lying", max_overhead="60%")


def test_fakes_are_algorithms():
    assert all(isinstance(fake, Algorithm) and fake.load() for fake in hooks.FAKES.values())
