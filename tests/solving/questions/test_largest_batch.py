"""The largest batch: scaled instances, and the search against a linear scan."""

import json
import signal
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.instance import digest, instance_document, load, save_instance
from remat.instance.batch_size import scaled
from remat.plugin.proposal import ALL_SCHEDULES, Status, Termination
from remat.testing import strategies
from tests import hooks
from tests.oracles import persistent, search
from tests.seeds import examples

CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "net",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 3,
    "static_memory": 10,
    "stages": [{"forward_time": 2, "backward_time": 3, "output_size": 3, "saved_size": 2, "repeat": 4}],
}
SHARES = st.sampled_from([None, Fraction(0), Fraction(1, 5), Fraction(1, 2)])
SIZES = {"input_size", "output_size", "saved_size", "gradient_size", "forward_workspace"}
SIZES |= {"saving_workspace", "backward_workspace", "workspace"}
TIMES = {"forward_time", "backward_time", "saving_forward_time", "time"}


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    hooks.register(monkeypatch)


def draws(count):
    return settings(
        max_examples=count, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )


def at_batch(document, batch, of=1):
    """Return the plain document of a chain at another batch size, computed independently."""

    def grown(node):
        if isinstance(node, list):
            return [grown(child) for child in node]
        if not isinstance(node, dict):
            return node
        new = {}
        for key, value in node.items():
            if key in SIZES and isinstance(value, (int, float)):
                new[key] = ceil(Fraction(int(value) * batch, of))
            elif key in TIMES and isinstance(value, (int, float)):
                product = Fraction(value) * Fraction(batch, of)
                new[key] = int(product) if isinstance(value, int) and product.denominator == 1 else float(product)
            else:
                new[key] = grown(value)
        return new

    return grown(document)


# --- scaling ----------------------------------------------------------------------------------------------------------


@draws(60)
@given(strategies.chains(largest=4, exact=True), st.integers(1, 40), st.integers(1, 7))
def test_chains_grow_with_the_batch(document, batch, of):
    grown = scaled(load(document), batch, of)
    assert digest(grown) == digest(load(at_batch(document, batch, of)))
    assert digest(load(json.loads(json.dumps(instance_document(grown))))) == digest(grown)


def test_names_and_sources():
    grown = scaled(load(CHAIN | {"source": "measured"}), 3, 2)
    assert grown.name == "net at batch 3"
    assert grown.source == "measured; scaled from batch 2 to 3"
    assert scaled(load(CHAIN), 2, 2) is not None
    same = load(CHAIN)
    assert scaled(same, 5, 5) is same


def test_exact_times_stay_whole():
    chain = load(CHAIN)
    assert scaled(chain, 3).stages[0].forward_time == 6
    assert isinstance(scaled(chain, 4, 2).stages[0].backward_time, int)
    assert scaled(chain, 1, 2).stages[0].backward_time == 1.5
    huge = load(CHAIN | {"stages": [{"forward_time": 10**13 + 1, "backward_time": 1, "output_size": 2**40 + 1}]})
    assert scaled(huge, 3).stages[0].forward_time == 3 * 10**13 + 3
    assert scaled(huge, 1, 2).stages[0].output_size == 2**39 + 1


def test_adjoints_grow_with_the_batch():
    document = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "steps": [{"forward_time": 3, "state_size": 5}, {"adjoint_size": 2, "tape_size": 1}, {}],
        "backward_time": 2,
        "tape_size": 4,
        "tape_time": 1,
        "storage": [
            {"name": "ram", "slots": 3, "write_time": 1, "bandwidth": 8},
            {"name": "disk", "capacity": 100, "read_time": 2, "channel": "io"},
            {"name": "tape"},
        ],
    }
    grown = scaled(load(document), 4)
    assert grown.forward_time == 4
    assert (grown.backward_time, grown.state_size, grown.tape_size, grown.tape_time) == (8, 4, 16, 4)
    assert [step.forward_time for step in grown.steps] == [12, None, None]
    assert [step.state_size for step in grown.steps] == [20, None, None]
    assert [step.adjoint_size for step in grown.steps] == [None, 8, None]
    assert [level.capacity for level in grown.storage] == [15, 100, None]
    assert [level.slots for level in grown.storage] == [None, None, None]
    assert [(level.write_time, level.read_time, level.bandwidth) for level in grown.storage] == [
        (4, 0, 8),
        (0, 8, None),
        (0, 0, None),
    ]


def test_dags_grow_but_for_what_is_pinned():
    document = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "values": [{"id": "weights", "size": 7}, {"id": "x", "size": 2}],
        "tasks": [{"id": "y", "time": 3, "size": 4, "reads": ["weights", "x"], "workspace": 1}],
        "inputs": ["weights", "x"],
        "pinned_inputs": ["weights"],
    }
    grown = scaled(load(document), 3)
    assert {value.id: value.size for value in grown.values} == {"weights": 7, "x": 6}
    assert (grown.tasks[0].time, grown.tasks[0].size, grown.tasks[0].workspace) == (9, 12, 3)


def test_trees_have_no_batch():
    tree = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}
    with pytest.raises(remat.OptionError, match="not a tree"):
        remat.largest_batch(tree, budget=3)


# --- the search, against a scan ---------------------------------------------------------------------------------------


@draws(20)
@given(strategies.chains(largest=4, plain=True, exact=True), st.integers(1, 120), st.integers(1, 3), SHARES)
def test_the_largest_batch_of_chains_equals_a_scan(document, budget, of, share):
    document = {key: value for key, value in document.items() if key != "machine"}
    sized = remat.solve(document, algorithm="store-all")
    if sized.peak_memory["memory"] - document.get("static_memory", 0) < 6:
        return  # hardly any size: no limit, or one beyond the scan
    largest = 0
    for batch in range(1, 130 * of):
        grown = at_batch(document, batch, of)
        time = persistent.Recursion(grown).least_time(budget)
        whole = remat.solve(grown, algorithm="store-all").no_recompute_time
        limit = None if share is None else (1 + share) * Fraction(whole)
        if time is None or (limit is not None and time > limit * (1 + Fraction(1, 10**9))):
            break
        largest = batch
    limit = None if share is None else float(share)
    found = remat.largest_batch(document, algorithm="rotor", budget=budget, batch=of, max_overhead=limit)
    assert found.answer.value == (largest or None)
    if largest:
        assert found.answer.proved
        assert found.answer.scope in (ALL_SCHEDULES, "memory-persistent schedules")
        assert digest(found.answer.instance) == digest(load(at_batch(document, largest, of))) == found.instance_digest
        assert remat.verify(found.answer.instance, found.to_dict()).ok
    else:
        assert found.makespan is None
        assert found.scope in (ALL_SCHEDULES, "memory-persistent schedules")


@examples(
    4,
    12,
    strategies.chains(largest=4, plain=True, exact=True),
    st.integers(1, 400),
    SHARES,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_both_questions_agree(document, budget, share):
    """With whole batches: what fits in B - static at batch b fits in (B - static) / b at batch 1."""
    document = {key: value for key, value in document.items() if key != "machine"}
    static = document.get("static_memory", 0)
    least = remat.least_budget(document, max_overhead="10000000%" if share is None else float(share)).answer.value
    if least == static:
        return
    found = remat.largest_batch(document, budget=budget + static, max_overhead=None if share is None else float(share))
    assert (found.answer.value or 0) == budget // (least - static)


@pytest.mark.slow
def test_slots_of_an_adjoint():
    """The bytes of a level stay: 8 slots hold 8 // b states of batch b."""
    loop = {
        "schema": "remat.instance/1",
        "kind": "adjoint",
        "steps": 7,
        "storage": [{"name": "ram", "slots": 8, "write_time": 0}],
    }
    costs = {slots: search.adjoint_best_cost([1] * 7, [1] * 7, [(slots, 0, 0)]) for slots in range(1, 9)}
    wanted = max(batch for batch in range(1, 9) if costs[8 // batch] <= 1.3 * 13)
    # The portfolio knows more than checkpointing schedules.
    assert remat.largest_batch(loop, max_overhead="30%", time_limit=3).answer.value >= wanted
    found = remat.largest_batch(loop, algorithm="revolve", max_overhead="30%")
    assert (found.answer.value, found.answer.proved) == (wanted, True)
    assert found.makespan == wanted * costs[8 // wanted]
    # The working memory grows with the states, but for one that is given.
    assert found.machine.memories[0].capacity == 2 * wanted
    fixed = remat.largest_batch(loop, algorithm="revolve", budget={"working": 5}, max_overhead="30%")
    assert (fixed.answer.value, fixed.machine.memories[0].capacity) == (2, 5)


def test_a_heuristic_proves_nothing():
    exact = remat.largest_batch(CHAIN, budget=100, max_overhead="20%")
    found = remat.largest_batch(CHAIN, algorithm="frugal", budget=100, max_overhead="20%")
    assert found.answer.value == exact.answer.value
    assert exact.answer.proved
    assert not found.answer.proved
    assert "not proved" in found.notes[-1]


def test_latencies_weigh_less_in_larger_batches():
    machine = {
        "memories": [{"name": "device"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "device"}],
        "links": [{"source": "device", "target": "host", "latency": 3}],
    }
    assert not remat.largest_batch(CHAIN, budget=100, machine=machine, max_overhead="20%").answer.proved
    assert remat.largest_batch(CHAIN, budget=100, machine=machine).answer.proved


def test_not_even_one():
    found = remat.largest_batch(CHAIN, budget=12)
    assert (found.status, found.answer.value, found.answer.bound) == (Status.INFEASIBLE, None, None)
    assert found.notes[-1] == "not even a batch of 1 fits"
    assert found.least_budget.sufficient
    slow = remat.largest_batch(CHAIN, budget=1000, max_makespan=3)
    assert (slow.status, slow.makespan, slow.answer.value) == (Status.INFEASIBLE, None, None)
    assert slow.notes[-1] == "not even a batch of 1 fits the limits"
    assert slow.least_budget is None


def test_a_batch_without_bytes_has_no_limit():
    weightless = CHAIN | {
        "input_size": 0,
        "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 0}],
    }
    found = remat.largest_batch(weightless, budget=10)
    assert found.answer.value == 2**31 - 1
    assert "no limit" in found.notes[-1]
    assert not found.answer.proved


def test_beyond_all_sizes():
    large = CHAIN | {"input_size": 2**59, "stages": [{"forward_time": 1, "backward_time": 1, "output_size": 0}]}
    found = remat.largest_batch(large, budget=2**62)
    assert found.answer.value == 3
    assert not found.answer.proved


def test_a_makespan_limits_the_batch():
    found = remat.largest_batch(CHAIN, budget=10**6, max_makespan=100, batch=1)
    assert (found.answer.value, found.makespan, found.answer.scope) == (5, 100, ALL_SCHEDULES)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"batch": 0}, "^batch: 0 is not a batch size"),
        ({"batch": "x"}, "^batch: 'x'"),
        ({"batch": 1.5}, "^batch: "),
        ({"batch": True}, "^batch: "),
        ({"max_overhead": "x"}, "^max_overhead: "),
    ],
)
def test_bad_questions_are_refused(question, message):
    with pytest.raises(remat.OptionError, match=message):
        remat.largest_batch(CHAIN, budget=100, **question)


def test_a_budget_is_needed():
    with pytest.raises(remat.OptionError, match="how much memory is there"):
        remat.largest_batch(CHAIN)


def test_an_interrupt_returns_the_best_batch(monkeypatch):
    calls = []

    def stop(problem, options, context):
        calls.append(problem)
        signal.raise_signal(signal.SIGINT)
        return hooks.rotor.solve(problem, hooks.rotor.RotorOptions(), context)

    monkeypatch.setattr(hooks, "frugal", stop)
    found = remat.largest_batch(CHAIN, algorithm="frugal", budget=100)
    assert len(calls) == 1
    assert found.termination is Termination.INTERRUPTED

    def stop_at_once(problem, options, context):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(hooks, "frugal", stop_at_once)
    found = remat.largest_batch(CHAIN, algorithm="frugal", budget=100)
    assert (found.termination, found.answer.value) == (Termination.INTERRUPTED, None)
    assert found.status is Status.UNKNOWN


def test_the_instance_of_the_batch_can_be_saved(tmp_path):
    found = remat.largest_batch(CHAIN, budget=100)
    path = tmp_path / "net.json.gz"
    save_instance(found.answer.instance, path)
    found.save(tmp_path / "schedule.json")
    assert remat.verify(path, tmp_path / "schedule.json").ok


def with_parameters_at_the_host():
    """Return a chain whose parameters come from a host: that takes as long for a small batch."""
    stage = {"forward_time": 2, "backward_time": 4, "output_size": 1, "saved_size": 1, "parameter_size": 40}
    links = [{"source": "host", "target": "gpu", "bandwidth": 4}, {"source": "gpu", "target": "host", "bandwidth": 4}]
    machine = {
        "memories": [{"name": "gpu"}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "gpu"}],
        "links": links,
    }
    given = {"schema": "remat.instance/3", "kind": "chain", "input_size": 1, "stages": [stage] * 3}
    return given | {"machine": machine, "parameter_memory": "host"}


def test_a_larger_batch_may_have_less_overhead():
    given = with_parameters_at_the_host()
    alone = remat.solve(given, budget={"gpu": 200}, time_limit=1)
    assert alone.overhead > 0.35
    found = remat.largest_batch(given, budget={"gpu": 200}, max_overhead="35%", time_limit=1)
    assert found.answer.value is not None
    assert found.answer.value > 1
    assert found.overhead <= 0.35
