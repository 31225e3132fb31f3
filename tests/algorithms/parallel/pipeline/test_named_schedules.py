"""Named schedules end to end: layers cut, orders placed and judged, against the reference and by hand."""

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.instance import load
from remat.instance.lowering import lower, machine_of
from remat.schedule.orders import Orders, Stage
from remat.solving.orders import follow
from remat.verifier import check
from remat_algorithms.parallel.pipeline import rules
from remat_algorithms.parallel.pipeline.partition import balanced_cuts
from tests import places
from tests.oracles import referee

POINTS = json.loads((places.REFERENCE / "pipeline_rules.json").read_text())["points"]
RULES = {
    "gpipe": rules.gpipe,
    "1f1b": rules.one_forward_one_backward,
    "eager": rules.eager_one_forward_one_backward,
    "interleaved": rules.interleaved,
    "chimera": rules.chimera,
    "gems": rules.gems,
}


def pipeline(layers, devices, batches, **more):
    """Return an instance of one time unit."""
    level = {key: more.pop(key) for key in ("delay", "latency", "bandwidth") if key in more}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": batches,
        "cluster": {"devices": [{"name": "g", "count": devices}], "levels": [level]},
        **more,
    }


def at(figure, stage):
    return figure[stage] if isinstance(figure, list) else figure


def judged(document, lists):
    """Place and verify the lists of a rule, one layer a part."""
    instance = load(document)
    graph, machine = lower(instance), machine_of(instance)
    stages = tuple(Stage((part,), device) for part, device in zip(lists.part, lists.place, strict=True))
    followed = follow(instance, graph, machine, Orders(stages, lists.lists))
    return check(graph, machine, followed.steps)


@pytest.mark.parametrize("point", [p for p in POINTS if p["kind"] == "dualpipe"], ids=lambda p: str(p["id"]))
def test_dualpipe_equals_published_figures(point):
    """A forward and a backward at once: makespan, busy time and peak of each device, from the instance on."""
    layer = {"forward_time": point["F"], "backward_time": point["B"] - point["W"], "weight_time": point["W"]}
    layer |= {"paired_time": point["paired"], "saved_size": 1, "repeat": point["p"]}
    document = pipeline([layer], point["p"], point["m"], copies=2)
    result = remat.solve(document, algorithm="dualpipe")
    assert result.makespan == point["makespan"]
    assert list(result.peak_memory.values()) == point["peak"]
    assert [result.report.busy[f"g{k}"] for k in range(point["p"])] == point["busy"]
    assert result.lower_bound <= max(point["busy"])
    again = remat.verify(document, json.loads(json.dumps(result.to_dict())))
    assert again.ok
    assert again.makespan == result.makespan
    if point["p"] * point["m"] > 32:
        return  # the twin takes its time
    twin = referee.check(document, result.to_dict())
    assert (twin.ok, twin.makespan, list(twin.peaks.values())) == (True, point["makespan"], point["peak"])


def test_dualpipe_takes_two_copies_and_the_folded_one_does_not():
    layer = {"forward_time": 10, "backward_time": 10, "weight_time": 10, "paired_time": 28, "saved_size": 1}
    with pytest.raises(remat.OptionError, match='"copies": 2'):
        remat.solve(pipeline([layer | {"repeat": 4}], 4, 8), algorithm="dualpipe")
    result = remat.solve(pipeline([layer | {"repeat": 8}], 4, 10), algorithm="dualpipev")
    assert result.status == "feasible"
    assert result.makespan == 632  # as on eight devices with twice the micro-batches
    assert set(result.peak_memory.values()) == {9}


@pytest.mark.parametrize(
    ("paired", "message"),
    [(27, "at least 28"), (47, "at most 46"), ({"g": 20}, "at least 28"), (-1, "paired_time")],
)
def test_a_paired_time_lies_between_the_longer_one_and_the_sum(paired, message):
    layer = {"forward_time": 20, "backward_time": 18, "weight_time": 8, "paired_time": paired}
    with pytest.raises(remat.InstanceError, match=message):
        load(pipeline([layer], 2, 2))


@pytest.mark.parametrize(
    "point", [p for p in POINTS if p["kind"] == "flush"], ids=lambda p: f"{p['schedule']}-{p['id']}"
)
def test_flush_schedules_equal_published_figures(point):
    """Makespans with delays and with busy links, spans and peaks: from the orders alone."""
    lists = RULES[point["schedule"]](point["p"], point["m"], **({"chunks": point["v"]} if "v" in point else {}))
    layers = [
        {
            "forward_time": at(point["F"], lists.part.index(part)),
            "backward_time": at(point["B"], lists.part.index(part)),
            "saved_size": at(point["A"], lists.part.index(part)),
        }
        for part in range(lists.parts)
    ]
    for key, wanted in (("delay", point["makespan_delay"]), ("latency", point["makespan_link"])):
        report = judged(pipeline(layers, point["p"], point["m"], copies=2, **{key: point["c"]}), lists)
        assert report.ok, report.violations
        assert report.makespan == wanted
        assert list(report.peak_memory.values()) == point["peak"]
        if key == "delay":
            assert max(report.spans.values()) == point["span"]


@pytest.mark.parametrize("point", [p for p in POINTS if p["kind"] == "zb-reference"], ids=lambda p: str(p["id"]))
def test_zero_bubble_schedules_equal_published_figures(point):
    """Halves apart: an activation is 2, of which the second half keeps 1."""
    rule = rules.zb_h2 if point["limit"] > point["p"] else rules.zb_h1
    layer = {"saved_size": 2, "weight_saved_size": 1}
    layers = [
        layer
        | {
            f"{name}_time": at(point[key], stage)
            for name, key in (("forward", "F"), ("backward", "B"), ("weight", "W"))
        }
        for stage in range(point["p"])
    ]
    report = judged(pipeline(layers, point["p"], point["m"], delay=point["c"]), rule(point["p"], point["m"]))
    assert report.ok, report.violations
    assert (report.makespan, max(report.spans.values())) == (point["makespan"], point["oracle_span"])
    assert [size / 2 for size in report.peak_memory.values()] == point["peak"]


@pytest.mark.parametrize(
    ("algorithm", "hop", "makespan", "peaks"),
    [
        ("gpipe", 0, 33, [8, 8, 8, 8]),
        ("gpipe", 1, 39, [8, 8, 8, 8]),
        ("1f1b", 0, 33, [4, 3, 2, 1]),
        ("1f1b", 1, 49, [4, 3, 2, 1]),
    ],
)
def test_schedules_equal_the_textbook(algorithm, hop, makespan, peaks):
    result = remat.solve(generate("pipeline", "uniform", hop=hop), algorithm=algorithm)
    assert result.makespan == makespan
    assert list(result.peak_memory.values()) == peaks


def test_zero_bubble_is_a_matter_of_the_period():
    """ZB-H2's steps follow without a wait where no barrier is between them; alone, one is no shorter than ZB-H1's."""
    document = generate("pipeline", "uniform", backward_time=1, weight_time=1, activation=2, kept=1)
    first, second = (remat.solve(document, algorithm=name) for name in ("zb-h1", "zb-h2"))
    assert (first.makespan, second.makespan) == (27, 27)
    assert max(second.report.spans.values()) == 24


@pytest.mark.parametrize(
    ("devices", "batches", "times", "hop", "limit", "makespan", "span"),
    [
        (8, 24, (1, 1, 1), 0, 8, 79, 79),
        (8, 24, (1, 1, 1), 0, 16, 79, 72),
        (4, 8, (1, 1, 1), 0, 7, 27, 24),
        (8, 24, (18, 18, 17), 1, 8, 1433, 1433),
        (8, 24, (18, 18, 17), 1, 16, 1405, 1286),
        (4, 12, (10, 11, 9), 1, 8, 393, 369),
    ],
)
def test_zero_bubble_within_a_limit_is_as_short_as_published(devices, batches, times, hop, limit, makespan, span):
    names = ("forward_time", "backward_time", "weight_time")
    layer = dict(zip(names, times, strict=True)) | {"saved_size": 2, "weight_saved_size": 1, "repeat": devices}
    document = pipeline([layer], devices, batches, delay=hop)
    result = remat.solve(document, algorithm="zb-h2", options={"limit": limit})
    assert (result.makespan, max(result.report.spans.values())) == (makespan, span)
    peaks = [size / 2 for size in result.peak_memory.values()]
    assert peaks[0] <= limit
    if (devices, limit) == (8, 16):
        assert peaks == [16, 16, 16, 16, 15.5, 14.5, 13.5, 12.5]


@settings(deadline=None)
@given(data=st.data())
def test_zero_bubble_within_any_limit(data):
    """Every device keeps the limit, on layers of different times and sizes."""
    devices = data.draw(st.integers(1, 5))
    layers = [
        {
            "forward_time": data.draw(st.integers(0, 9)),
            "backward_time": data.draw(st.integers(0, 9)),
            "weight_time": data.draw(st.integers(1, 9)),
            "saved_size": (saved := data.draw(st.integers(0, 6))),
            "weight_saved_size": data.draw(st.integers(0, saved)),
        }
        for _ in range(devices)
    ]
    limit = data.draw(st.sampled_from([1, 1.5, 2, 3.25, 8]))
    document = pipeline(layers, devices, data.draw(st.integers(1, 7)), delay=data.draw(st.integers(0, 4)))
    result = remat.solve(document, algorithm="zb-h1", options={"limit": limit})
    assert result.report.ok
    allowed = [int(limit * layer["saved_size"]) for layer in layers]
    assert all(peak <= most for peak, most in zip(result.peak_memory.values(), allowed, strict=True))


def test_a_limit_is_refused_with_replicas():
    layer = {"forward_time": 1, "backward_time": 1, "weight_time": 1, "saved_size": 2, "repeat": 2}
    with pytest.raises(remat.OptionError, match="a limit is for stages on one device each, without replicas"):
        remat.solve(pipeline([layer], 4, 4, copies=2), algorithm="zb-h1", options={"limit": 3, "replicas": 2})


def test_budgets_by_type():
    layer = {"forward_time": {"a": 1, "b": 2}, "backward_time": {"a": 1, "b": 2}, "saved_size": 1, "repeat": 4}
    document = pipeline([layer], 1, 4)
    document["cluster"] = {"devices": [{"name": "x", "type": "a", "count": 2}, {"name": "y", "type": "b", "count": 2}]}
    budget = {"": 9, "type:b": 8, "y1": 7}
    result = remat.solve(document, algorithm="1f1b", budget=budget)
    assert [memory.capacity for memory in result.machine.memories] == [9, 9, 8, 7]
    with pytest.raises(remat.OptionError, match="no processor is of type 'c'; the types are: a, b"):
        remat.solve(document, algorithm="1f1b", budget={"type:c": 1})


def test_budgets_are_for_every_device():
    document = generate("pipeline", "uniform")
    assert remat.solve(document, algorithm="1f1b", budget=4).makespan == 33
    short = remat.solve(document, algorithm="1f1b", budget=3)
    assert short.status is remat.Status.UNKNOWN
    assert (short.least_budget.size, short.least_budget.sufficient) == (4, True)
    assert remat.solve(document, algorithm="1f1b", budget="100%").makespan == 33
    assert remat.solve(document, algorithm="1f1b", budget={"gpu3": 1}).makespan == 33
    assert remat.solve(document, algorithm="1f1b", budget={"gpu0": 3}).report is None
    assert remat.solve(document, algorithm="1f1b", budget={"": 3, "gpu0": 4}).makespan == 33


@pytest.mark.slow
def test_auto_takes_the_quickest_that_fits():
    document = generate("pipeline", "uniform", layers=8, backward_time=1, weight_time=1, activation=2, kept=1)
    little = {"effort": 1, "moves": 400}
    free = remat.solve(document, options=little)
    assert (free.algorithm, free.makespan) == ("zb-v", 51)
    assert remat.solve({**document, "copies": 2}, options=little).makespan < free.makespan
    least = min(
        max(one.peak_memory.values())
        for name in ("zb-v", "v-half", "v-min", "1f1b")
        if (one := remat.solve(document, algorithm=name)).report
    )
    small = remat.solve(document, budget=least, options=little)
    assert max(small.peak_memory.values()) <= least
    assert small.makespan > free.makespan


@pytest.mark.parametrize(
    ("algorithm", "changed", "message"),
    [
        ("interleaved-1f1b", {"layers": 8, "micro_batches": 6}, "6"),
        ("chimera", {"devices": 3, "copies": 2}, "3"),
        ("chimera", {}, '"copies": 2'),
        ("zb-h1", {}, "weight_time"),
        ("interleaved-1f1b", {}, "8 stages .* 4 layers"),
        ("gpipe", {"layers": 2}, "4 stages .* 2 layers"),
    ],
)
def test_what_a_schedule_is_not_for(algorithm, changed, message):
    with pytest.raises(remat.OptionError, match=message):
        remat.solve(generate("pipeline", "uniform", **changed), algorithm=algorithm)


@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_cuts_are_the_best_ones(data):
    """Against all cuts: of equal and of unequal devices, some of which cannot run some layers."""
    count = data.draw(st.integers(1, 6))
    types = data.draw(st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3))
    layers = []
    for _ in range(count):
        times = {name: data.draw(st.integers(0, 9)) for name in ("a", "b")}
        if data.draw(st.integers(0, 3)) == 3:
            del times[data.draw(st.sampled_from(["a", "b"]))]
        layers.append({"forward_time": times, "backward_time": data.draw(st.integers(0, 9))})
    devices = [{"name": f"d{k}", "type": name} for k, name in enumerate(types)]
    document = pipeline(layers, 1, 1) | {"cluster": {"devices": devices}}
    try:
        instance = load(document)
    except remat.InstanceError:
        return  # no device can run one of the layers
    best = None
    for inner in itertools.combinations(range(1, count), len(types) - 1) if len(types) <= count else ():
        cuts = [0, *inner, count]
        loads = [
            [layer["forward_time"].get(name) for layer in layers[a:b]]
            for a, b, name in zip(cuts[:-1], cuts[1:], types, strict=True)
        ]
        if all(None not in load for load in loads):
            whole = [
                sum(load) + sum(layer["backward_time"] for layer in layers[a:b])
                for load, a, b in zip(loads, cuts[:-1], cuts[1:], strict=True)
            ]
            best = min(max(whole), max(whole) if best is None else best)
    if best is None:
        with pytest.raises(remat.OptionError):
            balanced_cuts(instance, [[k] for k in range(len(types))])
        return
    cuts = balanced_cuts(instance, [[k] for k in range(len(types))])
    slowest = max(
        sum(layer["forward_time"][name] + layer["backward_time"] for layer in layers[a:b])
        for a, b, name in zip(cuts[:-1], cuts[1:], types, strict=True)
    )
    assert slowest == best
