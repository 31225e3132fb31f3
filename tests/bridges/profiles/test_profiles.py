"""Profiles: timelines by brute force, the three formats, hostile files, memory that does not grow with the file."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import remat
from remat.bridges.allocations.streaming import stream_objects
from remat.bridges.allocations.timeline import Allocations, Recorder, explain
from remat.bridges.chakra.importing import import_trace
from remat.bridges.chrome_trace.reading import read_chrome_trace
from remat.bridges.memory_snapshot.reading import read_snapshot
from remat.errors import InstanceError, OptionError
from tests.cli.helpers import Run

# --- timelines --------------------------------------------------------------------------------------------------------


def drawn(seed: int) -> Allocations:
    draw = random.Random(seed)
    recorder, live = Recorder(), []
    for now in range(60):
        if live and draw.random() < 0.45:
            address = live.pop(draw.randrange(len(live)))
            recorder.free(float(now), address, 0)
        else:
            recorder.allocate(float(now), now, draw.randint(1, 100), now % 3, float(draw.randint(1, 5)))
            live.append(now)
    return recorder.allocations(["a", "b", "c"], draw.randint(0, 50))


@pytest.mark.parametrize("seed", range(8))
def test_the_peak_and_its_holders_are_those_of_brute_force(seed: int) -> None:
    given = drawn(seed)
    found = explain(given, 1e9)
    rows = list(zip(given.begin, given.end, given.size, given.label, strict=True))
    sums = [sum(int(s) for b, e, s, _ in rows if b <= now < e) for now in range(61)]
    assert found.peak == given.base + max(sums)
    now = sums.index(max(sums))
    assert found.at == now
    live = [(int(s), given.labels[k]) for b, e, s, k in rows if b <= now < e]
    by_label = {label: sum(s for s, other in live if other == label) for label in given.labels}
    assert {label: size for label, size, _ in found.holders} == {k: v for k, v in by_label.items() if v}
    assert [size for _, size, _ in found.holders] == sorted((v for v in by_label.values() if v), reverse=True)
    assert found.kept == sum(int(s) for _, e, s, _ in rows if e == np.inf)
    assert found.least <= found.peak
    assert found.recompute <= found.peak - given.base


def test_what_spans_the_peak_is_a_candidate() -> None:
    recorder = Recorder()
    recorder.allocate(0.0, 1, 100, 0, 5.0)  # forward: kept over the peak, its making was timed
    recorder.allocate(10.0, 2, 50, 1)  # not timed; long enough to be sent
    recorder.allocate(400.0, 3, 500, 2, 7.0)  # the peak itself: as short as the work that needs it
    recorder.free(405.0, 3, 500)
    recorder.free(990.0, 2, 50)
    recorder.free(1000.0, 1, 100)
    found = explain(recorder.allocations(["f", "g", "h"], 10), 1e6)  # a byte in a microsecond
    assert (found.peak, found.at, found.base) == (660, 400, 10)
    assert found.holders == (("h", 500, 1), ("f", 100, 1), ("g", 50, 1))
    assert (found.recompute, found.recompute_time) == (100, 5.0)
    assert found.offload == 150
    assert found.least == 510
    lines = dict(found.lines())
    assert list(lines) == ["peak", "held by", "recompute", "offload", "at best"]
    assert "15 %" in lines["recompute"]


def test_equal_steps_all_become_smaller() -> None:
    """Without what spans the first peak only, the peak of the second step would be as high."""
    recorder = Recorder()
    for step in (0.0, 1000.0):
        recorder.allocate(step, 1, 100, 0, 5.0)
        recorder.allocate(step + 400, 3, 500, 1)
        recorder.free(step + 405, 3, 500)
        recorder.free(step + 900, 1, 100)
    found = explain(recorder.allocations(["kept", "large"], 0), 1e6)
    assert (found.peak, found.at, found.recompute) == (600, 400, 100)
    assert found.least == 500
    steps = [(b, e, s) for b, e, s in ((0, 900, 100), (1000, 1900, 100))]
    shown = max(
        500 * (t % 1000 in range(400, 405)) + sum(s for b, e, s in steps if b <= t < b + 19 or e - 19 <= t < e)
        for t in range(1900)
    )
    assert found.least == shown


# --- streaming JSON ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 2**20])
def test_objects_are_streamed_whatever_is_beside_them(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    from remat.bridges.allocations import streaming

    monkeypatch.setattr(streaming, "_CHUNK", size)
    items = [{"a": k, "b": ["x]},{", {"c": '"\\'}], "n": -1.5e3} for k in range(20)]
    for text in (
        json.dumps({"first": [1, {"items": 2}], "items": items, "last": None}),
        json.dumps(items, indent=1),
        json.dumps({"items": items})[:-1] + ' , "z": 12 }',
    ):
        path = tmp_path / "x.json"
        path.write_text(text)
        assert list(stream_objects(str(path), "items")) == items
    packed = tmp_path / "x.json.gz"
    packed.write_bytes(gzip.compress(json.dumps({"items": items}).encode()))
    assert list(stream_objects(str(packed), "items")) == items


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "expected a JSON object with 'items', not 'an empty file'"),
        (b"3", "expected a JSON object"),
        (b"{}", "$.items: there is no list of objects"),
        (b'{"items": 3}', "malformed JSON: expected ["),
        (b'{"items": [3]}', "object 0: expected an object, not 3"),
        (b'{"items": [{}, {"a" 1}]}', "object 1: malformed JSON"),
        (b'{"items": [{} {}]}', "expected a comma or ]"),
        (b'{"items": [{}', "malformed JSON"),
        (b'{"items": [' + b"[" * 10**5, "object 0: "),
        (b'{"items": [{"a": ' + b"9" * 5000 + b"}]}", "too many digits"),
        (b"\xff\xfe{", "not UTF-8"),
        (b"\x1f\x8b\x00broken", "cannot read"),
        (b"{3: 1}", "expected a key, not 3"),
    ],
)
def test_broken_json_gets_one_line(tmp_path: Any, data: bytes, said: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(InstanceError) as caught:
        list(stream_objects(str(path), "items"))
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300
    assert "\n" not in str(caught.value)


def test_an_object_without_end_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from remat.bridges.allocations import streaming

    monkeypatch.setattr(streaming, "MOST_OF_VALUE", 1000)
    monkeypatch.setattr(streaming, "_CHUNK", 100)
    path = tmp_path / "x.json"
    path.write_text('{"items": [{"a": "' + "x" * 5000)
    with pytest.raises(InstanceError, match=r"object 0: more than 1,000 characters"):
        list(stream_objects(str(path), "items"))
    with pytest.raises(InstanceError, match=r"cannot read .*none.json"):
        list(stream_objects(str(tmp_path / "none.json"), "items"))


# --- Chrome traces ----------------------------------------------------------------------------------------------------


def operator(name: str, begin: float, length: float, thread: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": thread, "ts": begin, "dur": length, "args": {}}


def memory(at: float, address: int, size: int, total: int, *, thread: int = 1, kind: int = 0) -> dict[str, Any]:
    given = {"Total Reserved": 0, "Total Allocated": total, "Bytes": size, "Addr": address}
    given |= {"Device Id": -1 if kind == 0 else 0, "Device Type": kind, "Ev Idx": 3}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 7, "tid": thread, "ts": at, "args": given}


def trace() -> dict[str, Any]:
    events = [
        operator("aten::linear", 0, 10),
        operator("aten::addmm", 2, 6),
        memory(3, 100, 64, 1064),
        memory(9, 200, 16, 1080),
        operator("aten::relu", 20, 5),
        memory(21, 300, 256, 1336),
        memory(24, 300, -256, 1080),
        memory(30, 200, -16, 1064),
        operator("autograd", 40, 50, thread=2),
        memory(50, 100, -64, 1000, thread=2),
        memory(60, 400, 8, 1008, thread=2),
        memory(61, 900, -500, 508, thread=2),
        memory(5, 1, 10**6, 10**6, kind=1),
    ]
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": events, "traceName": "x"}


def save(tmp_path: Any, content: Any) -> str:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(content))
    return str(path)


def test_allocations_belong_to_the_innermost_operator(tmp_path: Any) -> None:
    found = read_chrome_trace(save(tmp_path, trace()), "cpu")
    labels = [found.labels[k] for k in found.label]
    assert labels == ["aten::addmm", "aten::linear", "aten::relu", "autograd"]
    assert found.size.tolist() == [64, 16, 256, 8]
    assert found.end.tolist() == [50, 30, 24, np.inf]
    assert found.base == 1000
    assert found.time.tolist() == [6, 10, 5, 50]
    told = explain(found, 25e9)
    assert told.peak == 1336
    assert told.holders[0] == ("aten::relu", 256, 1)
    assert read_chrome_trace(save(tmp_path, trace())).size.tolist() == [10**6]
    with pytest.raises(OptionError, match=r"device: the trace has cpu, cuda:0, not 'cuda:1'"):
        read_chrome_trace(save(tmp_path, trace()), "cuda:1")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (None, "the trace has no [memory] events; record it with profile_memory=True"),
        (memory(1, 1, 1, 1) | {"args": {}}, "event 1: '[memory]' is malformed: KeyError('Device Type')"),
        (memory(1, 1, 1, 1) | {"ts": "soon"}, "event 1: '[memory]' is malformed"),
        (memory(1, 1, 1, 1) | {"ts": 1e300}, "a time out of range"),
        (memory(1, 1, 10**30, 1), "event 1: '[memory]' is malformed: OverflowError"),
        (operator("x", float("nan"), 1), "event 1: 'x' is malformed"),
    ],
)
def test_broken_traces_have_their_event(tmp_path: Any, event: Any, said: str) -> None:
    events = [operator("aten::add", 0, 1), *([] if event is None else [event])]
    with pytest.raises(InstanceError) as caught:
        read_chrome_trace(save(tmp_path, {"traceEvents": events}))
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


@pytest.mark.slow
def test_a_trace_of_100_mb_takes_little_memory(tmp_path: Any) -> None:
    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write('{"traceEvents": [\n')
        now = 0
        while file.tell() < 100 * 2**20:
            now += 10
            rows = [operator(f"aten::op{now % 97}", now, 8), memory(now + 1, now, 1000, 0)]
            rows += [memory(now + 2, now - 500, -1000, 0)] if now > 500 else []
            file.write("".join(json.dumps(row | {"pad": "x" * 300}) + ",\n" for row in rows))
        file.write("{}]}")
    program = (
        "import resource, sys\n"
        "from remat.bridges.chrome_trace.reading import read_chrome_trace\n"
        "from remat.bridges.allocations.timeline import explain\n"
        "import numpy\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "assert explain(read_chrome_trace(sys.argv[1]), 25e9).peak == 51000\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 150 * 1024


# --- snapshots --------------------------------------------------------------------------------------------------------


def snapshot() -> dict[str, Any]:
    model = [
        {"filename": "??", "line": 0, "name": "malloc"},
        {"filename": "/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
        {"filename": "/home/me/model.py", "line": 42, "name": "forward"},
    ]
    other = [{"filename": "alloc.cpp", "line": 1, "name": "raw"}]
    events = [
        {"action": "segment_alloc", "addr": 0, "size": 4096, "stream": 0, "frames": other},
        {"action": "alloc", "addr": 10, "size": 100, "stream": 0, "frames": model, "time_us": 1},
        {"action": "alloc", "addr": 20, "size": 50, "stream": 0, "frames": other, "time_us": 2},
        {"action": "free_requested", "addr": 10, "size": 100, "stream": 0, "frames": model, "time_us": 3},
        {"action": "free_completed", "addr": 10, "size": 100, "stream": 0, "frames": model, "time_us": 4},
        {"action": "free_completed", "addr": 77, "size": 7, "stream": 0, "frames": [], "time_us": 5},
        {"action": "alloc", "addr": 30, "size": 60, "stream": 0, "frames": model, "time_us": 6},
        {"action": "snapshot", "time_us": 7},
    ]
    blocks = [
        {"size": 5, "state": "active_allocated", "address": 1},
        {"size": 50, "state": "active_allocated", "address": 20},
    ]
    blocks += [{"size": 9, "state": "inactive", "address": 99}]
    return {"segments": [{"device": 0, "address": 0, "blocks": blocks}], "device_traces": [events, []]}


def dump(tmp_path: Any, content: Any) -> str:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    return str(path)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_snapshots_name_the_line_of_the_program(tmp_path: Any, protocol: int) -> None:
    found = read_snapshot(dump(tmp_path, pickle.dumps(snapshot(), protocol)))
    assert [found.labels[k] for k in found.label] == ["model.py:42 forward", "alloc.cpp:1 raw", "model.py:42 forward"]
    assert found.end.tolist() == [4, np.inf, np.inf]
    assert found.base == 7 + 5  # freed without an allocation, and there at the end
    assert explain(found, 1e9).peak == 12 + 150
    with pytest.raises(OptionError, match=r"device: the snapshot has 2 devices"):
        read_snapshot(dump(tmp_path, snapshot()), 2)


class _Hostile:
    """A pickle of it would run a command."""

    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/remat-was-here",)


def hostile() -> Iterator[tuple[Any, str]]:
    yield b"", "no plain pickle"
    yield b"not a pickle", "no plain pickle"
    yield _Hostile(), "no plain pickle: it asks for posix.system"
    yield b"cos\nsystem\n(S'true'\ntR.", "it asks for os.system"
    yield b"\x80\x04P1\n.", "no plain pickle"
    yield 3, "device_traces is missing"
    yield {"device_traces": 3}, "device_traces is missing"
    yield {"device_traces": [[]]}, "the snapshot has no history; call torch.cuda.memory._record_memory_history()"
    yield {"device_traces": [[{"action": "alloc"}]]}, "event 0 is malformed: KeyError('addr')"
    yield {"device_traces": [[{"action": "alloc", "addr": 1, "size": 10**30}]]}, "event 0 is malformed"
    yield {"device_traces": [[{"action": "alloc", "addr": [], "size": 1}]]}, "event 0 is malformed"
    yield {"device_traces": [[3]]}, "event 0 is malformed"
    yield b"\x80\x04" + b"]" * 10**6 + b".", "no plain pickle|device_traces is missing"
    yield b"\x80\x04\x8d" + b"\xff" * 8 + b".", "no plain pickle"


@pytest.mark.parametrize(("content", "said"), list(hostile()))
def test_hostile_pickles_get_one_line(tmp_path: Any, content: Any, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        read_snapshot(dump(tmp_path, content))
    assert any(part in str(caught.value) for part in said.split("|"))
    assert len(str(caught.value)) <= 300
    assert not os.path.exists("/tmp/remat-was-here")


def test_pickles_that_would_take_too_much_memory_are_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from remat.bridges.memory_snapshot import reading

    monkeypatch.setattr(reading, "MOST_MEMORY", 10**6)
    with pytest.raises(InstanceError, match=r"it may take [0-9,]+ bytes of memory; at most 1,000,000 are allowed"):
        read_snapshot(dump(tmp_path, b"\x80\x04" + b"}" * 10**5 + b"."))


# --- Chakra -----------------------------------------------------------------------------------------------------------


def tensor(storage: int, count: int = 4, offset: int = 0, device: str = "cuda:0") -> list[Any]:
    return [storage + 1000, storage, offset, count, 4, device]


def node(
    key: int, name: str, reads: list[Any], writes: list[Any], *, schema: str = "", parent: int = 0, **more: Any
) -> dict[str, Any]:
    def side(values: list[Any]) -> dict[str, Any]:
        return {"values": values, "shapes": [[]] * len(values), "types": ["Tensor(float)"] * len(values)}

    attributes = [{"name": "op_schema", "type": "string", "value": schema}]
    return {
        "id": key,
        "name": name,
        "ctrl_deps": parent,
        "inputs": side(reads),
        "outputs": side(writes),
        "attrs": attributes,
    } | more


def chakra() -> dict[str, Any]:
    nodes = [
        {"id": 1, "name": "process", "ctrl_deps": 0, "inputs": {}, "outputs": {}, "attrs": []},
        node(2, "aten::linear", [tensor(5), tensor(6)], [tensor(7)]),
        node(3, "aten::addmm", [tensor(5), tensor(6)], [tensor(7)], parent=2, duration_micros=3),
        node(4, "aten::view", [tensor(7)], [tensor(7, 2, 2)], duration_micros=1),
        node(5, "aten::relu_", [tensor(7)], [tensor(7)], schema="relu_(Tensor(a!) self)", duration_micros=2),
        node(6, "aten::mm", [tensor(7)], [tensor(5)], duration_micros=4),
        node(7, "aten::cpu", [tensor(9, device="cpu")], [], duration_micros=4),
    ]
    return {"schema": "1.1.0-chakra.0.0.4", "pid": 3, "nodes": nodes, "finish_ts": 9}


def test_operators_of_an_execution_trace_become_tasks(tmp_path: Any) -> None:
    made = import_trace(save(tmp_path, chakra()))
    tasks = {task["id"]: task for task in made["tasks"]}
    assert list(tasks) == ["3:aten::addmm", "4:aten::view", "5:aten::relu_", "6:aten::mm"]
    assert made["inputs"] == ["s5", "s6"]
    assert tasks["4:aten::view"]["writes"] == []
    assert (tasks["5:aten::relu_"]["writes"], tasks["5:aten::relu_"]["in_place"]) == (["s7.2"], True)
    assert tasks["6:aten::mm"]["writes"] == ["s5.2"]  # the storage is used again
    assert made["outputs"] == ["s5.2"]
    assert {value["id"]: value["size"] for value in made["values"]} == {
        "s5": 16,
        "s6": 16,
        "s7": 16,
        "s7.2": 16,
        "s5.2": 16,
    }
    assert remat.solve(remat.load(made)).makespan == 10


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"nodes": []}, "no operator has tensors"),
        ([], "expected a JSON object with 'nodes'"),
        ({"nodes": [{"name": "x"}]}, "node 0: 'x' is malformed: KeyError('id')"),
        ({"nodes": [node(1, "x", [tensor(1)], [])]}, "node 1 ('x') has no duration; give a default time"),
        ({"nodes": [node(1, "x", [[1, 2, 3, "many", 4, "cpu"]], [])]}, "node 0: 'x' is malformed"),
        ({"nodes": [node(1, "x", [tensor(1, 2**62)], [])]}, "a tensor of more than 2^62 bytes"),
        ({"nodes": [node(1, "x", [tensor(1)], [], duration_micros=-1)]}, "a duration out of range"),
    ],
)
def test_broken_execution_traces_have_their_node(tmp_path: Any, content: Any, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        import_trace(save(tmp_path, content))
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


# --- commands ---------------------------------------------------------------------------------------------------------


def test_the_commands_explain_in_five_lines(run: Run, tmp_path: Any) -> None:
    path, csv = save(tmp_path, trace()), tmp_path / "buffers.csv"
    outcome = run("import", "chrome-trace", path, "--device", "cpu", "--buffers", csv)
    labels = ("peak", "held by", "recompute", "offload", "at best")
    assert [line.split("  ")[0] for line in outcome.out.splitlines() if not line.startswith(" ")] == list(labels)
    assert run("layout", csv).code == 0
    outcome = run("import", "memory-snapshot", dump(tmp_path, snapshot()), "--format", "json")
    assert outcome.document["schema"] == "remat.profile/1"
    assert outcome.document["peak"] == 162
    run("import", "chrome-trace", path, "--link", "fast").assert_refused("--link")
    run("import", "chrome-trace", path, "--device", "xpu").assert_refused("--device")
    run("import", "memory-snapshot", path).assert_refused("no plain pickle")
    made = run(
        "import", "chakra", save(tmp_path, {"nodes": [node(1, "x", [tensor(1)], [tensor(2)])]}), "--default-time", "2ms"
    )
    assert made.document["tasks"][0]["time"] == 2000
    run("import", "chakra", path, "--default-time", "soon").assert_refused("--default-time")
