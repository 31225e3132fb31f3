"""offload-exact against exhaustive search, and by hand."""

import math
import time

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.instance import load
from remat.plugin.selection import candidates
from remat.solving.problem_setup import make_problem
from remat_algorithms.kit.programs.solver_status import Answer, Outcome
from remat_algorithms.offload.exact import offload_exact as exact
from tests.algorithms.offload.small_chains import chain, chains, machine, one_big_value, stage
from tests.oracles.offloading import least_makespan

LITTLE, MUCH = 0.05, 5.0
"""CP-SAT's work on each program, in its units of about 10 s: it decides alike on every machine, under any load."""

DRAWS = {
    "derandomize": True,
    "database": None,
    "deadline": None,
    "phases": (Phase.explicit, Phase.generate),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
}


def solve(document, budget, *, seconds=None, **options):
    return remat.solve(document, algorithm="offload-exact", budget=budget, options=options, time_limit=seconds)


def least_need(document):
    """Bytes that some task needs in any case, and bytes with which nothing has to move."""
    result = remat.solve(document, algorithm="keep-all")
    return result.memory_bounds["device"].size, result.peak_memory["device"]


def compare(document, share, states, **options):
    """Solve at a share between the memory bound and the budget of keeping all; compare with the search.

    If the search or the solver runs out of work, only the solver's bounds are checked.
    Return whether equality was checked.
    """
    low, high = least_need(document)
    budget = low + (high - low) * share // 100
    expected = least_makespan(document, budget, recompute=options.get("recompute", False), states=states)
    if expected is not None and math.isnan(expected):
        return False
    result = solve(document, budget, **options)
    if result.termination == "iteration limit":
        least = math.inf if expected is None else float(expected)
        assert all(bound.value <= least + 1e-9 for bound in result.bounds)
        assert result.makespan is None or result.makespan >= least - 1e-9
        return False
    if expected is None:
        assert result.scope is not None
    else:
        assert result.makespan == pytest.approx(float(expected), rel=1e-12)
        assert result.optimal_within is not None
    return True


def compared(count, documents, shares, states, **options):
    """Compare so many draws; return how many were held to equality."""
    held = []

    @settings(max_examples=count, **DRAWS)
    @given(document=documents, share=shares)
    def run(document, share):
        held.append(compare(document, share, states, **options))

    run()
    return sum(held)


def test_equals_exhaustive_search():
    assert compared(12, chains(largest=3), st.integers(0, 60), 2000, work=LITTLE) >= 8


def test_equals_exhaustive_search_with_recomputation():
    documents, options = chains(largest=2, quickest=1), {"recompute": True, "runs": 3}
    assert compared(8, documents, st.integers(0, 50), 2000, work=LITTLE, **options) >= 5


MACHINES = {
    "full-duplex": {},
    "half-duplex": {"channels": ("bus", "bus")},
    "synchronous": {"channels": ("gpu", "gpu")},
    "latency": {"latency": (1, 2)},
    "asymmetric": {"bandwidth": (1, 4)},
    "infinitely-fast": {"bandwidth": (None, None)},
    "instant-synchronous": {"bandwidth": (None, None), "channels": ("gpu", "gpu")},
    "fractional": {"bandwidth": (3, 2)},
    "bounded-host": {"host": 4},
    "third-level": {"host": 3, "disk": (2, None)},
}


def two_stages(**traits):
    return chain(stage(2, 3, 2, saved_size=1), stage(1, 2, 3, saved_size=2), machine=machine(**traits))


def three_stages(**traits):
    stages = (stage(2, 3, 2, saved_size=1), stage(1, 2, 3, saved_size=2), stage(2, 2, 2))
    return chain(*stages, machine=machine(**traits))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("traits", MACHINES.values(), ids=MACHINES)
def test_machines_against_exhaustive_search(traits, recompute):
    assert compare(two_stages(**traits), 0, None, work=MUCH, recompute=recompute, runs=3)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 40])
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("traits", MACHINES.values(), ids=MACHINES)
def test_machines_against_exhaustive_search_thoroughly(traits, recompute, share):
    compare(three_stages(**traits), share, 500_000, work=MUCH, recompute=recompute, runs=3)


@pytest.mark.slow
def test_equals_exhaustive_search_thoroughly():
    assert compared(200, chains(least=2, largest=5), st.integers(0, 80), 10_000, work=MUCH) >= 50


@pytest.mark.slow
def test_equals_exhaustive_search_with_recomputation_thoroughly():
    documents, options = chains(least=2, largest=4, quickest=1), {"recompute": True, "runs": 3}
    assert compared(100, documents, st.integers(10, 80), 10_000, work=MUCH, **options) >= 25


# --- by hand ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("traits", "options", "makespan"),
    [
        # x1's transfers overlap with F2 .. F5 and B5 .. B3.
        ({}, {}, 23),
        ({"channels": ("bus", "bus")}, {}, 23),
        # Both transfers block the processor; the alternative recomputes F1.
        ({"channels": ("gpu", "gpu")}, {}, 29),
        ({"channels": ("gpu", "gpu")}, {"recompute": True}, 25),
        # Out from 2 on, gone at 2 + 10: the loss waits for 1. Back from 13 on, as soon as the loss has ended, until 23:
        # B2, due at 20 by then, waits for 3.
        ({"bandwidth": (0.75, 0.75)}, {}, 27),
    ],
)
def test_five_stages_by_hand(traits, options, makespan):
    result = solve(one_big_value(**traits), 17, **options)
    assert result.makespan == makespan
    copied = [step for step in result.to_dict().get("steps", []) if "copy" in step]
    assert {step["copy"] for step in copied} == ({"x1"} if makespan in (23, 27, 29) else set())


def test_host_smaller_than_the_largest_value():
    document = one_big_value(host=5)
    document["stages"] = document["stages"][:2]
    assert solve(document, 14, copies=1).scope is not None
    document["machine"]["memories"][1]["capacity"] = 6
    # Out from 2 to 5, then the loss; back from 6 to 9, then both backwards.
    assert solve(document, 14).makespan == 13


def test_without_a_link_back_values_are_recomputed():
    document = one_big_value()
    document["machine"]["links"].pop()
    assert solve(document, 17).scope is not None
    assert solve(document, 17, recompute=True).makespan == 25


def test_large_instances_are_refused():
    document = chain(*[stage(1, 1, 1, saved_size=1) for _ in range(200)], machine=machine())
    with pytest.raises(remat.OptionError, match=r"601 tasks .* at most 600 are considered"):
        solve(document, 20)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_decimal_times_are_exact():
    document = one_big_value()
    for part in document["stages"]:
        part |= {"forward_time": part["forward_time"] / 10, "backward_time": part["backward_time"] / 10}
    document["loss"]["time"] = 0.1
    for link in document["machine"]["links"]:
        link |= {"bandwidth": 60, "latency": 0.2}
    result = solve(document, 17)
    assert result.makespan == pytest.approx(2.3)
    assert result.optimal_within is not None
    assert not result.notes


def test_too_fine_times_are_rounded_both_ways():
    document = one_big_value(channels=("gpu", "gpu"))
    for index, part in enumerate(document["stages"]):
        part["forward_time"] += math.pi / 10**6 * (index + 1)
    result = solve(document, 17)
    total = 29 + math.pi / 10**6 * 15
    assert total <= result.makespan <= total * (1 + 1e-5)
    (bound,) = [bound for bound in result.bounds if bound.source == "offload-exact"]
    assert total * (1 - 1e-5) <= bound.value < result.makespan
    assert result.optimal_within is None
    assert "rounded down" in result.notes[0]


def test_more_memory_never_hurts():
    document = two_stages(latency=(1, 1))
    low, high = least_need(document)
    makespans = [solve(document, budget).makespan for budget in range(low, high + 1)]
    known = [makespan for makespan in makespans if makespan is not None]
    assert known == sorted(known, reverse=True)
    assert known
    assert makespans[-len(known) :] == known


def test_a_solver_that_meets_its_limit_a_moment_early_says_so(monkeypatch):
    outcomes = []

    def watched(job, over, limit):
        if Outcome.OPTIMAL not in outcomes:
            job.solver.parameters.max_time_in_seconds = 60  # a busy machine may need more than the limit
            answer = whole(job, lambda: False, 60)
            outcomes.append(answer.outcome)
            return answer
        time.sleep(max(0.0, limit - 0.02))
        assert not over()
        return Answer(Outcome.FEASIBLE, None, 1.0)

    whole = exact.watched
    monkeypatch.setattr(exact, "watched", watched)
    monkeypatch.setattr(exact, "starts", lambda *given: ())
    document = chain(*[stage(2, 3, 4) for _ in range(3)], machine=machine())
    result = solve(document, least_need(document)[0], seconds=2, recompute=True)
    assert outcomes[-1] is Outcome.OPTIMAL
    assert result.makespan is not None
    assert result.optimal_within is None
    assert result.termination == "time limit"


def test_an_output_is_not_given_up_in_place():
    """No in-place run may take over an output, even at the end of the step."""
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "units": {"time": "unit", "memory": "unit"},
        "tasks": [{"id": "t", "time": 5, "reads": ["i"], "writes": ["a", "b"], "workspace": 3, "in_place": True}],
        "values": [{"id": "i", "size": 3}, {"id": "a", "size": 3}, {"id": "b", "size": 4}],
        "inputs": ["i"],
        "outputs": ["i"],
    }
    assert solve(document, 12, copies=1).columns is None
    assert solve(document, 13, copies=1).makespan == 5


def test_without_any_limit_the_work_is_counted(monkeypatch):
    steps = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 5, "backward_time": 31882, "state_size": 78}
    document = steps | {"storage": [{"name": "level0", "slots": 0, "read_time": 43309815}]}
    monkeypatch.setattr(exact, "DEFAULT_WORK", 0.001)
    free = solve(document, 100)
    assert (free.termination, free.status) == ("iteration limit", "unknown")
    assert "not proved within 0.001 units of work" in " ".join(free.notes)
    chosen = solve(document, 100, work=0.002)
    assert chosen.termination == "iteration limit"
    assert not chosen.notes
    assert solve(document, 100, seconds=1e-3).termination == "time limit"


SMALL_FORK = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "machine": {
        "memories": [{"name": "device", "capacity": 13}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [
            {"source": "device", "target": "host", "bandwidth": 10},
            {"source": "host", "target": "device", "bandwidth": 10},
        ],
    },
    "tasks": [
        {"id": "read", "time": 2, "size": 5},
        {"id": "prep", "time": 1, "size": 6, "reads": ["read"]},
        {"id": "left1", "time": 2, "size": 4, "reads": ["prep"]},
        {"id": "left2", "time": 1, "size": 8, "reads": ["left1"]},
        {"id": "left3", "time": 2, "size": 2, "reads": ["left2"]},
        {"id": "right1", "time": 1, "size": 5, "reads": ["prep"]},
        {"id": "right2", "time": 2, "size": 3, "reads": ["right1"]},
        {"id": "join", "time": 3, "size": 3, "reads": ["left3", "right2", "read"]},
        {"id": "write", "time": 1, "size": 1, "reads": ["join", "left1"]},
    ],
    "outputs": ["write"],
}


def test_auto_asks_for_a_proof_over_moves_and_recomputation_of_a_small_graph():
    found = candidates(make_problem(load(SMALL_FORK))).anytime
    assert {"recompute": True, "work": 0.1} in [dict(one.trial.options) for one in found]
    larger = SMALL_FORK | {"tasks": [*SMALL_FORK["tasks"], *({"id": f"t{k}", "time": 1, "size": 1} for k in range(6))]}
    assert [one for one in candidates(make_problem(load(larger))).anytime if one.trial.options] == []


@pytest.mark.slow
def test_auto_proves_the_class_of_a_small_graph_with_a_host():
    """Without this proof `auto` gives the gap to a bound for all schedules, and no reason why nothing is better."""
    exact = remat.solve(SMALL_FORK, algorithm="offload-exact", options={"recompute": True})
    assert exact.optimal_within is not None
    found = remat.solve(SMALL_FORK)
    assert found.makespan <= exact.makespan
    assert found.optimal_within == exact.optimal_within or found.makespan < exact.makespan
