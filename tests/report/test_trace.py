"""Traces: the trace-event format, every step on its track, memory as the verifier measured it."""

import gzip
import itertools
import json
import re
from collections import defaultdict
from dataclasses import replace

import pytest

import remat
from remat.errors import OptionError, RematError
from remat.report.trace import MICROSECONDS, write_trace
from tests.algorithms.offload.trained import chain, stage
from tests.report.results import CHAIN, chain_result, long_result, offload_result, result_of
from tests.report.trace_format import problems

RESULTS = {"chain": chain_result, "offload": offload_result, "long": lambda: long_result(12_000)}


def traced(result, path):
    write_trace(result, path)
    return json.loads(path.read_text("utf-8"))


def tracks(trace):
    """Names of the threads by their number."""
    metadata = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    return {event["tid"]: event["args"]["name"] for event in metadata if event["name"] == "thread_name"}


@pytest.mark.parametrize("name", RESULTS)
def test_memory_is_what_the_verifier_measured(name, tmp_path):
    result = RESULTS[name]()
    counters = defaultdict(list)
    for event in traced(result, tmp_path / "trace.json")["traceEvents"]:
        if event["ph"] == "C":
            (size,) = event["args"].values()
            counters[event["name"]].append(size)
    assert {name: max(sizes) for name, sizes in counters.items()} == {
        f"memory {name}": size for name, size in result.peak_memory.items()
    }
    for memory, profile in result.report.profiles.items():
        assert counters[f"memory {memory}"] == profile.size.tolist()


@pytest.mark.parametrize("name", RESULTS)
def test_every_step_is_on_its_tracks(name, tmp_path):
    result = RESULTS[name]()
    trace = traced(result, tmp_path / "trace.json")
    names = tracks(trace)
    served = defaultdict(list)
    by_step = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            served[names[event["tid"]]].append((event["ts"], event["ts"] + event["dur"]))
            by_step[event["args"]["step"]].append(event)
    # Nothing overlaps on a track, and it is as busy as the verifier says.
    scale = MICROSECONDS[result.units.time]
    slack = 1e-9 * result.makespan * scale
    for track, intervals in served.items():
        intervals.sort()
        assert all(one[1] <= other[0] + slack for one, other in itertools.pairwise(intervals))
        busy = result.report.busy[track.removeprefix("channel ")] * scale
        assert sum(end - start for start, end in intervals) == pytest.approx(busy)
    for index, step in enumerate(result.steps):
        events = by_step.pop(index, [])
        kind = type(step).__name__
        if kind == "Drop":
            assert events == []
        elif kind == "Run":
            assert {event["name"] for event in events} == {step.task}
            assert len(events) == max(1, len(step.on))
            assert all(event["args"].get("drop", []) == list(step.drop) for event in events)
        else:
            (event,) = events
            assert event["name"] == f"{step.value}: {step.source}->{step.target}"
            assert event["cat"] == "copy"
            assert event["args"]["drop"] == step.drop
        for event in events:
            assert event["ts"] == pytest.approx(step.start * scale)
    assert not by_step


def test_phases_are_categories(tmp_path):
    result = chain_result()
    trace = traced(result, tmp_path / "trace.json")
    phases = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            phases[event["cat"]].append(event["name"])
    assert set(phases) == {"forward", "saving forward", "recomputation", "loss", "backward"}
    assert sorted(phases["backward"]) == ["B1", "B2", "B3"]
    assert phases["loss"] == ["loss"]
    # Each stage forward once, the rest is recomputation.
    once = [name.lstrip("Fe") for name in phases["forward"] + phases["saving forward"]]
    assert sorted(once) == ["1", "2", "3"]
    assert all(name.startswith("F") for name in phases["recomputation"])


def test_names_and_heads(tmp_path):
    result = offload_result()
    trace = traced(result, tmp_path / "trace.json")
    assert tracks(trace) == {1: "gpu0", 2: "gpu1", 3: "channel bus"}
    (process,) = [event for event in trace["traceEvents"] if event["name"] == "process_name"]
    assert process["args"]["name"] == f"{result.instance_name} (by hand)"
    head = trace["otherData"]
    assert head["time_unit"] == "1 unit is shown as 1 us"
    assert head["makespan"] == result.makespan
    assert head["peak_memory"] == result.peak_memory
    part = next(e for e in trace["traceEvents"] if e["ph"] == "X" and e["args"].get("size") == 1)
    assert part["name"] == "u: host->device"
    assert all({"ph", "pid", "name"} <= event.keys() for event in trace["traceEvents"])


@pytest.mark.parametrize("unit", MICROSECONDS)
def test_times_are_microseconds(unit, tmp_path):
    document = CHAIN | {"units": {"time": unit}}
    steps = [{"run": "Fe1"}, {"run": "Fe2"}, {"run": "Fe3"}, {"run": "loss"}, *({"run": f"B{i}"} for i in (3, 2, 1))]
    trace = traced(result_of(document, steps), tmp_path / "trace.json")
    last = [event for event in trace["traceEvents"] if event["ph"] == "X"][-1]
    assert last["ts"] == pytest.approx(13 * MICROSECONDS[unit])
    assert last["dur"] == pytest.approx(3 * MICROSECONDS[unit])


def test_compressed_and_deterministic(tmp_path):
    result = chain_result()
    write_trace(result, tmp_path / "trace.json")
    write_trace(result, tmp_path / "trace.json.gz")
    packed = (tmp_path / "trace.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "trace.json").read_bytes()
    write_trace(result, tmp_path / "trace.json.gz")
    assert (tmp_path / "trace.json.gz").read_bytes() == packed


def test_without_a_schedule(tmp_path):
    with pytest.raises(OptionError, match="no schedule to trace"):
        write_trace(replace(chain_result(), report=None), tmp_path / "trace.json")


def test_what_cannot_be_written(tmp_path):
    with pytest.raises(RematError, match="cannot write"):
        write_trace(chain_result(), tmp_path / "nowhere" / "trace.json")


# ------------------------------------------------------------------------------------------- the format

CHANNELS = {
    "memories": [{"name": "core"}, {"name": "disk"}],
    "processors": [{"name": "cpu", "memory": "core"}],
    "links": [
        {"source": "core", "target": "disk", "bandwidth": 3, "latency": 1, "channel": "out"},
        {"source": "disk", "target": "core", "bandwidth": 2, "channel": "in"},
    ],
}
OVERLAPPED_CHAIN = CHAIN | {
    "units": {"time": "ms", "memory": "unit"},
    "machine": CHANNELS,
    "input_size": 4,
    "stages": [{"forward_time": 3, "backward_time": 5, "output_size": 4, "saved_size": 6}] * 6,
}


def overlapped_chain():
    """Saved values leave while the next stages run, and come back before their backwards."""
    steps = []
    for k in range(1, 7):
        steps += [{"run": f"Fe{k}"}, {"copy": f"s{k}", "from": "core", "to": "disk", "drop": True}]
    steps += [{"copy": f"s{k}", "from": "disk", "to": "core", "drop": True} for k in (6, 5)]
    steps.append({"run": "loss"})
    for k in range(6, 0, -1):
        if k > 2:
            steps.append({"copy": f"s{k - 2}", "from": "disk", "to": "core", "drop": True})
        steps.append({"run": f"B{k}", "drop": [f"s{k}", f"x{k}", f"y{k}"]})
    return result_of(OVERLAPPED_CHAIN, steps)


def solved(name, **how):
    return lambda: remat.solve(remat.example(name), **how)


ASYNCHRONOUS = {
    "schema": "remat.instance/1",
    "kind": "adjoint",
    "units": {"time": "unit", "memory": "unit"},
    "steps": 60,
    "forward_time": 1,
    "backward_time": 2,
    "state_size": 1,
    "storage": [
        {"name": "ram", "slots": 4},
        {"name": "disk", "write_time": 8, "read_time": 8, "channel": "dma"},
    ],
}


INSTANCES = {
    "chain": solved("resnet50", budget="1.4GB", algorithm="rotor"),
    "chain in units": solved("random_l30", budget=30_000, algorithm="rotor"),
    "chain, channels": overlapped_chain,
    "adjoint": solved("lecture_l5"),
    "adjoint, synchronous disk": solved("seismic", algorithm="disk-revolve"),
    "adjoint, levels": solved("three_levels", algorithm="h-revolve"),
    "adjoint, channels": lambda: remat.solve(ASYNCHRONOUS, algorithm="two-level-async"),
    "dag": solved("unet_b8", algorithm="dtr", budget="5GB"),
    "dag, two processors and a bus": offload_result,
    "dag, long": lambda: long_result(6000),
    "tree": solved("random_n200"),
    "tree, channels": solved("random_n200", machine=CHANNELS, budget={"core": 4_000}, algorithm="postorder-min-io"),
}


def overlap(result, trace):
    """Time in which a channel and a processor are busy at once."""
    names = tracks(trace)
    busy = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            busy[names[event["tid"]].startswith("channel ")].append((event["ts"], event["ts"] + event["dur"]))
    pairs = ((max(a, c), min(b, d)) for a, b in busy[True] for c, d in busy[False])
    return sum(max(0.0, end - start) for start, end in pairs)


@pytest.mark.parametrize("name", INSTANCES)
def test_traces_follow_the_format_and_count_the_verified_peak(name, tmp_path):
    result = INSTANCES[name]()
    assert result.report is not None
    trace = traced(result, tmp_path / "trace.json")
    assert problems(trace) == []
    highest, steps = defaultdict(int), set()
    for event in trace["traceEvents"]:
        if event["ph"] == "C":
            (size,) = event["args"].values()
            highest[event["name"]] = max(highest[event["name"]], size)
        elif event["ph"] == "X":
            steps.add(event["args"]["step"])
    assert highest == {f"memory {memory}": size for memory, size in result.report.peak_memory.items()}
    assert len(steps) == sum(step.__class__.__name__ != "Drop" for step in result.steps)
    last = max(event["ts"] + event["dur"] for event in trace["traceEvents"] if event["ph"] == "X")
    assert last == pytest.approx(float(result.makespan) * MICROSECONDS[result.units.time])
    assert set(tracks(trace).values()) == {
        name if name in result.machine.processor_index else f"channel {name}" for name in result.machine.resources
    }
    if name.endswith("channels"):
        assert overlap(result, trace) > 0


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda e: e["X"].pop("dur"), r"lacks \['dur'\]"),
        (lambda e: e["X"].update(ts=-1), "ts is no number"),
        (lambda e: e["X"].update(ts="3"), "ts is no number"),
        (lambda e: e["X"].update(dur=float("nan")), "dur is no number"),
        (lambda e: e["X"].update(tid=1.0), "tid is no integer"),
        (lambda e: e["X"].update(tid=99), "track 99 has no thread_name"),
        (lambda e: e["X"].update(ph="Q"), "unknown phase"),
        (lambda e: e["X"].update(dur=1.5 * e["X"]["dur"]), "overlaps another one in part"),
        (lambda e: e["C"].update(args={}), "a counter has numbers"),
        (lambda e: e["C"].update(args={"bytes": "1"}), "a counter has numbers"),
        (lambda e: e["C"].update(ts=1e12), "goes back in time"),
        (lambda e: e["M"].update(args={"title": "x"}), "metadata"),
        (lambda e: e["M"].pop("pid"), r"lacks \['pid'\]"),
    ],
)
def test_the_format_is_checked(spoil, complaint, tmp_path):
    """The format check accepts valid traces and rejects spoiled ones."""
    trace = traced(chain_result(), tmp_path / "trace.json")
    assert problems(trace) == []
    first = {}
    for event in trace["traceEvents"]:
        first.setdefault(event["ph"], event)
    spoil(first)
    assert re.search(complaint, "\n".join(problems(trace)))


def test_exchanges_between_ranks_are_on_the_track_of_their_link(tmp_path):
    network = {"source": "device", "target": "device", "bandwidth": 2, "channel": "network"}
    document = chain(stage(), stage()) | {"schema": "remat.instance/3", "optimizer_memory": "device"}
    document["machine"] = document["machine"] | {"links": [*document["machine"]["links"], network]}
    result = remat.solve(document | {"sharding": {"data": 2, "zero": 3}}, algorithm="weight-offload")
    trace = traced(result, tmp_path / "trace.json")
    named = tracks(trace)
    exchanges = [event for event in trace["traceEvents"] if event["ph"] == "X" and event["name"][:1] in ("P", "A")]
    assert {event["cat"] for event in exchanges} == {"exchange"}
    assert {named[event["tid"]] for event in exchanges} == {"channel network"}
    assert sum(event["dur"] for event in exchanges) == pytest.approx(result.report.busy["network"])
