"""Test exact counting of huge sizes in the referee, placement and bounds.

If all sizes and capacities are multiplied by a factor, so are the peaks; all other results stay equal.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from remat.graph.bounds import memory_bounds, memory_time_bound
from remat.placement import Placement, place
from remat.verifier import check
from tests.verifier.judges import Case, rules

LARGEST = 2**62


def document(sizes, workspaces, capacity, factor, *, in_place=False):
    """Return three tasks in a row on four processors with a second memory; sizes are times `factor`."""
    machine = {
        "memories": [{"name": "near", "capacity": capacity * factor}, {"name": "far", "capacity": LARGEST}],
        "processors": [{"name": "p", "memory": "near", "count": 4}],
        "links": [{"source": "near", "target": "far"}, {"source": "far", "target": "near"}],
    }
    tasks = [
        {"id": f"t{k}", "time": 2, "reads": [f"v{k - 1}"] if k else ["i"], "writes": [f"v{k}"], "in_place": in_place}
        | {"workspace": workspaces[k] * factor}
        for k in range(3)
    ]
    values = [{"id": name, "size": size * factor} for name, size in zip(("i", "v0", "v1", "v2"), sizes, strict=True)]
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "machine": machine,
        "values": values,
        "inputs": ["i"],
        "static_memory": factor,
        "tasks": tasks,
    }


@st.composite
def step_lists(draw, starts):
    """Any steps at all, mostly nonsense."""
    steps = []
    for _ in range(draw(st.integers(3, 9))):
        kind = draw(st.sampled_from(("run", "run", "run", "run", "copy", "drop")))
        value = draw(st.sampled_from(("i", "v0", "v1", "v2")))
        if kind == "run":
            task = draw(st.sampled_from((0, 1, 1, 1, 2)))
            step = {"run": f"t{task}", "on": [f"p{draw(st.integers(0, 3))}"]}
            if draw(st.booleans()):
                step["drop"] = [draw(st.sampled_from((f"v{task}", f"v{task - 1}" if task else "i")))]
        elif kind == "copy":
            ends = draw(st.sampled_from((("near", "far"), ("far", "near"))))
            step = {"copy": value, "from": ends[0], "to": ends[1], "drop": draw(st.booleans())}
        else:
            step = {"drop": [value], "memory": draw(st.sampled_from(("near", "far")))}
        steps.append(step | ({"start": draw(st.integers(0, 1))} if starts else {}))
    return steps


@st.composite
def scaled(draw, starts):
    """The same instance with small and with the largest sizes, the factor, and steps."""
    weights = [0] * 7
    for weight in (1, 2, 9):  # one of the sizes is most of all
        weights[draw(st.integers(0, 6)) if weight < 9 else draw(st.sampled_from((2, 5)))] += weight
    sizes, workspaces = weights[:4], weights[4:]
    factor = LARGEST // (1 + sum(sizes) + sum(workspaces))
    capacity, in_place = draw(st.integers(5, 30)), draw(st.booleans())
    capacity = min(capacity, LARGEST // factor)
    cases = [Case(document(sizes, workspaces, capacity, each, in_place=in_place)) for each in (1, factor)]
    return *cases, factor, draw(step_lists(starts))


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(scaled(starts=True))
def test_the_referee_counts_the_largest_sizes_as_it_counts_small_ones(drawn):
    small, large, factor, steps = drawn
    one, other = (check(case.graph, case.machine, case.columns(steps)) for case in (small, large))
    others = [{rule for rule in rules(report) if rule[1] != "capacity"} for report in (one, other)]
    assert others[0] == others[1]
    assert other.peak_memory == {name: size * factor for name, size in one.peak_memory.items()}
    assert other.transferred == {name: size * factor for name, size in one.transferred.items()}
    overfull = {step for step, rule in rules(one) if rule == "capacity"}
    near = {step for step, rule in rules(other) if rule == "capacity"}
    # The other memory, unbounded for small sizes, may be overfull of large ones.
    assert overfull == near or (overfull < near and other.peak_memory["far"] > LARGEST)
    for name, profile in one.profiles.items():
        assert [size * factor for size in profile.size.tolist()] == other.profiles[name].size.tolist()


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(scaled(starts=False), st.booleans())
def test_placement_finds_the_same_room_for_the_largest_sizes(drawn, alone):
    small, large, factor, steps = drawn
    if alone:  # on one processor the list is placed at once
        steps = [{"run": step["run"], "drop": step.get("drop", [])} for step in steps if "run" in step]
    one, other = (place(case.graph, case.machine, case.columns(steps)) for case in (small, large))
    if isinstance(one, Placement) and isinstance(other, Placement):
        assert one.start.tolist() == other.start.tolist()
    elif isinstance(one, Placement):
        assert other.memory == 1
        assert other.needed > LARGEST
    elif other.memory == 0:
        assert (one.step, one.needed * factor, one.capacity * factor) == (other.step, other.needed, other.capacity)
    else:
        assert other.step < one.step


@settings(max_examples=40, derandomize=True, database=None, deadline=None)
@given(scaled(starts=False))
def test_bounds_on_the_largest_sizes_are_those_on_small_ones(drawn):
    small, large, factor, _ = drawn
    for one, other in zip(*(memory_bounds(case.graph, case.machine) for case in (small, large)), strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.size * factor, one.task) == (other.size, other.task)
    machine = small.machine.with_capacities({"near": 30}), large.machine.with_capacities({"near": 30 * factor})
    assert memory_time_bound(small.graph, machine[0]) == memory_time_bound(large.graph, machine[1])


def test_what_is_made_again_counts_beside_what_was_there():
    machine = {"memories": [{"name": "m", "capacity": LARGEST}], "processors": [{"name": "p", "memory": "m"}]}
    tasks = [{"id": "t", "time": 1, "size": LARGEST}]
    case = Case({"schema": "remat.instance/1", "kind": "dag", "machine": machine, "tasks": tasks})
    report = case.verify([{"run": "t", "start": 0}, {"run": "t", "start": 1}])
    assert rules(report) == {(1, "capacity")}
    assert report.peak_memory == {"m": 2**63}
    assert place(case.graph, case.machine, case.columns([{"run": "t"}, {"run": "t"}])).needed == 2**63


def test_workspaces_add_up_over_processors():
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m", "count": 8}]}
    tasks = [{"id": "t", "time": 1, "writes": [], "workspace": 2**61}]
    case = Case({"schema": "remat.instance/1", "kind": "dag", "machine": machine, "tasks": tasks})
    report = case.verify([{"run": "t", "start": 0, "on": [f"p{k}"]} for k in range(8)])
    assert report.ok
    assert report.peak_memory == {"m": 2**64}


def test_a_task_that_reads_and_writes_everything_needs_it_twice():
    task = {"id": "t", "time": 1, "reads": ["v"], "writes": ["v"]}
    values = {"values": [{"id": "v", "size": LARGEST}], "inputs": ["v"]}
    case = Case({"schema": "remat.instance/1", "kind": "dag", "tasks": [task], **values})
    (bound,) = memory_bounds(case.graph, case.machine)
    assert bound.size == 2**63


def test_a_copy_that_takes_longer_than_any_integer_is_no_negative_time():
    machine = {
        "memories": [{"name": "near"}, {"name": "far"}],
        "processors": [{"name": "p", "memory": "near"}],
        "links": [{"source": "near", "target": "far", "latency": LARGEST, "bandwidth": 1}],
    }
    for channel in ("p", "link"):
        machine["links"][0]["channel"] = channel
        case = Case(
            {
                "schema": "remat.instance/1",
                "kind": "dag",
                "machine": machine,
                "tasks": [{"id": "t", "time": 1, "size": LARGEST}],
            }
        )
        steps = [{"run": "t"}, {"copy": "t", "from": "near", "to": "far"}]
        columns = case.columns(steps)
        placed = columns.placed(place(case.graph, case.machine, columns).start)
        report = check(case.graph, case.machine, placed)
        assert report.ok
        assert report.makespan == 2.0**63


def test_starts_that_add_up_to_more_than_64_bits_stay_integers():
    tasks = [{"id": name, "time": time, "size": 1} for name, time in (("t", 3), ("u", 1))]
    case = Case({"schema": "remat.instance/1", "kind": "dag", "tasks": tasks})
    steps = [{"run": "t", "start": 0}, {"run": "u", "start": 2**61 + 1}, {"run": "t", "start": 2**62 - 1}]
    report = case.verify(steps)
    assert repr(report.makespan) == str(2**62 + 2)
    steps[1]["start"] = 2**62 - 2
    assert case.verify(steps).ok
    steps[1]["start"] = 2**62 - 1
    assert rules(case.verify(steps)) == {(2, "resource-busy")}


def test_durations_that_add_up_to_more_than_64_bits_stay_integers():
    half = 2**61
    tasks = [{"id": "t", "time": half + 1, "size": 4}, {"id": "u", "time": 3, "size": 2, "reads": ["t"]}]
    machine = {
        "memories": [{"name": "near"}, {"name": "far"}],
        "processors": [{"name": "p", "memory": "near"}],
        "links": [{"source": "near", "target": "far", "latency": half - 7}],
    }
    case = Case({"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "machine": machine})
    steps = [{"run": "t"}, {"copy": "t", "from": "near", "to": "far"}, {"run": "u"}]
    assert half + 1 + 3 + half - 7 + half > 2**62
    for starts in ((0, half + 1, half + 1), (0, half + 1, 2 * half)):
        timed = [step | {"start": start} for step, start in zip(steps, starts, strict=True)]
        assert repr(case.verify(timed).makespan) == str(max(2 * half - 6, starts[-1] + 3))
