"""Streams and single runs on several devices whose values have compression ratios: by hand, and against the oracles."""

import copy
import itertools
import random

import pytest

import remat
from tests.algorithms.parallel.placement import test_placements, test_tarnawski_latency
from tests.algorithms.parallel.placement.streams import star
from tests.oracles import latencies, placements, referee, samples
from tests.verifier.sample_streams import homes_of, pattern_of, spoilt, stream
from tests.verifier.test_samples import alike

# The links send 2 bytes per unit of time after a codec of 4; their ratio is 1/2. A byte of ratio r takes r/2 + 1/4.
#
#           x      y
# bytes     8      8
# ratio     1/4    1/2, of the link
# takes     3      4
ROW = {
    "schema": "remat.instance/3",
    "kind": "dag",
    "units": {"time": "unit", "memory": "unit"},
    "stream": 3,
    "machine": {
        "memories": [{"name": name} for name in "abc"],
        "processors": [{"name": f"p{name}", "memory": name} for name in "abc"],
        "links": [
            {"source": one, "target": other, "bandwidth": 2, "ratio": 0.5, "codec": 4, "channel": "wire"}
            for one, other in itertools.permutations("abc", 2)
        ],
    },
    "inputs": [{"value": f"w{k}", "memory": "any"} for k in range(3)],
    "values": [
        *({"id": f"w{k}", "size": 1} for k in range(3)),
        {"id": "x", "size": 8, "ratio": 0.25},
        {"id": "y", "size": 8},
    ],
    "tasks": [
        {"id": "first", "time": 3, "reads": ["w0"], "writes": ["x"], "on": ["pa"]},
        {"id": "second", "time": 2, "reads": ["w1", "x"], "writes": ["y"], "on": ["pb"]},
        {"id": "third", "time": 1, "reads": ["w2", "y"], "writes": [], "on": ["pc"]},
    ],
}
STREAMS = ("tarnawski-dp", "tarnawski-ip", "placement-replicated", "placement-bound", "auto")


def test_a_row_by_hand() -> None:
    """The wire is busy for 3 and 4 of each sample, longer than any device (3)."""
    for name in STREAMS:
        result = remat.solve(ROW, algorithm=name)
        assert result.makespan == 7, name
        assert result.lower_bound <= 7, name
    plan = remat.solve(ROW).to_dict()
    took = {(entry["copy"], entry["from"]) for entry in plan["pattern"] if "copy" in entry}
    assert took == {("x", "a"), ("y", "b")}
    verdict = samples.judge(ROW, plan)
    assert (verdict.violations, verdict.time_per_sample) == ([], 7)


def test_a_period_that_suffices_only_for_the_ratio_of_the_link() -> None:
    """8 bytes of x take 5 at ratio 3/4: the plan made for 1/4 keeps the wire busy for 9 of 7."""
    plan = remat.solve(ROW).to_dict()
    slower = copy.deepcopy(ROW)
    slower["values"][3]["ratio"] = 0.75
    report = remat.verify(slower, plan, any_instance=True)
    assert "period-overlap" in {violation.rule for violation in report.violations}
    assert remat.solve(slower).makespan == 9


@pytest.mark.parametrize("cheap", [0, 1])
def test_tasks_are_cut_where_the_value_compresses(cheap) -> None:
    """Of two values of 8 bytes, one takes 3 to cross, the other 6: the task between them is on the other side of it."""
    names, ratios = ["first", "middle", "last"], [0.25 if k == cheap else 1 for k in range(2)]
    tasks = [
        {"id": name, "time": 2, "reads": [f"v{k - 1}"] if k else [], "writes": [f"v{k}"] if k < 2 else []}
        | {"first": {"on": ["pa"]}, "last": {"on": ["pb"]}}.get(name, {})
        for k, name in enumerate(names)
    ]
    machine = copy.deepcopy(ROW["machine"])
    machine["memories"], machine["processors"] = machine["memories"][:2], machine["processors"][:2]
    machine["links"] = [link for link in machine["links"] if "c" not in (link["source"], link["target"])]
    values = [{"id": f"v{k}", "size": 8, "ratio": ratio} for k, ratio in enumerate(ratios)]
    document = {key: ROW[key] for key in ("schema", "kind", "units")}
    document |= {"machine": machine, "values": values, "tasks": tasks}
    for name in ("tarnawski-dp", "tarnawski-ip"):
        assert remat.solve(document | {"stream": 2}, algorithm=name).makespan == 4, name
    # Of five samples, four have the middle on the better side: the wire is busy for 4 * 3 + 6, a device for 5 * 2 + 8.
    assert remat.solve(document | {"stream": 2}, algorithm="placement-replicated").makespan == 18 / 5
    assert remat.solve(document, algorithm="tarnawski-latency").makespan == 2 + 2 + 2 + 3


def compressed(chance, document):
    """Let links compress, and values have ratios; all sizes grow fourfold, so that many times remain whole."""
    for link in document["machine"]["links"]:
        if chance.random() < 0.8:
            link |= {"bandwidth": chance.choice([1, 2]), "ratio": chance.choice([0.5, 0.75, 1])}
            link |= chance.choice([{}, {"codec": 4}, {"codec": 8}])
    for value in document["values"]:
        value["size"] *= 4
        if chance.random() < 0.6:
            value["ratio"] = chance.choice([0.125, 0.25, 0.5, 1])
    for memory in document["machine"]["memories"]:
        if "capacity" in memory:
            memory["capacity"] *= 4
    return document


def put_before_both(seed):
    chance = random.Random(f"compressed stream {seed}")
    document = compressed(chance, stream(chance, room=(8, 40) if chance.random() < 0.4 else None))
    placed, schedule = pattern_of(document, homes_of(chance, document, chance.choice([1, 1, 2])))
    first = True
    for one in (schedule, spoilt(chance, schedule), spoilt(chance, schedule)) if schedule["pattern"] else ():
        try:
            report = remat.verify(document, one)
        except remat.InstanceError:
            assert not first, "the placement is a pattern"
            continue
        verdict = samples.judge(document, one)
        assert alike(report, verdict), (seed, first, report.violations, verdict.rules)
        assert not first or report.ok or not placed.fits, (seed, report.violations)
        first = False


@pytest.mark.parametrize("seed", range(6))
def test_both_judges_agree(seed):
    put_before_both(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_both_judges_agree_often(first):
    for seed in range(1_000 + first, 1_100 + first):
        put_before_both(seed)


def no_placement_is_quicker(seed):
    """The load is that of the best of all placements; no bound contradicts two samples with recomputation."""
    chance = random.Random(f"compressed placements {seed}")
    document = compressed(chance, star(chance, tasks=4, devices=2, host=chance.random() < 0.5))
    best = placements.least(document)
    if not best:
        return False
    result = test_placements.solve(document, "tarnawski-ip")
    assert result.makespan == pytest.approx(float(best), rel=1e-9)
    together = placements.least(document, samples=2, again=True)
    test_placements.check_bounds(document, result, together)
    for name in ("placement-replicated", "placement-bound", "auto"):
        other = test_placements.solve(document, name)
        test_placements.check_bounds(document, other, together)
        if other.makespan is not None:
            assert float(together) * (1 - 1e-9) <= other.makespan
            verdict = samples.judge(document, other.to_dict())
            assert not verdict.violations, verdict.violations
    row = placements.least(document, contiguous=True)
    if row:
        assert test_placements.solve(document, "tarnawski-dp").makespan == pytest.approx(float(row), rel=1e-9)
    return True


@pytest.mark.parametrize("seed", range(2))
def test_no_placement_is_quicker(seed):
    no_placement_is_quicker(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_placement_is_quicker_often(first):
    assert sum(no_placement_is_quicker(1_000 + seed) for seed in range(first, first + 20)) > 10


def no_single_run_is_faster(seed):
    chance = random.Random(f"compressed run {seed}")
    document = compressed(chance, test_tarnawski_latency.once(chance))
    best = latencies.least(document)
    result = remat.solve(document, algorithm="tarnawski-latency", options=test_tarnawski_latency.OPTIONS)
    assert (result.makespan is None) == (best is None)
    if best is None:
        return False
    verdict = referee.check(document, result.to_dict())
    assert verdict.ok, verdict.violations
    assert result.makespan == pytest.approx(float(best), rel=1e-9)
    return True


@pytest.mark.parametrize("seed", range(4))
def test_no_single_run_is_faster(seed):
    no_single_run_is_faster(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_no_single_run_is_faster_often(first):
    assert sum(no_single_run_is_faster(1_000 + seed) for seed in range(first, first + 20)) > 10
