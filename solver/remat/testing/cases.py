"""Named instance documents: degenerate edge cases, and one instance of moderate size per kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]

HUGE = 2**50


def degenerate(kind: str) -> Mapping[str, Document]:
    """Return the degenerate instances of a kind, by name."""
    of_kinds = {"chain": _CHAINS, "adjoint": _ADJOINTS, "dag": _DAGS, "tree": _TREES, "pipeline": _PIPELINES}
    return (of_kinds | {"join": _JOINS})[kind]


def moderate(kind: str) -> Document:
    """Return an instance of a kind that is large enough for a search to be interrupted."""
    match kind:
        case "chain":
            stages = [_stage(3 + i * 7 % 5, 4 + i * 5 % 7, 2 + i * 11 % 9, saved_size=i * 3 % 8) for i in range(24)]
            return _chain(*stages)
        case "adjoint":
            return _adjoint(40, storage=[{"name": "disk", "slots": 3, "write_time": 1, "read_time": 1}])
        case "dag":
            tasks = [
                _task(
                    f"t{i}",
                    reads=sorted({f"t{max(0, i - 1)}", f"t{i * i % i}", f"t{i // 2}"}) if i else (),
                    size=1 + i * 5 % 7,
                )
                for i in range(30)
            ]
            return _dag(tasks, outputs=["t29"])
        case "tree":
            parent = [-1, *((node - 1) // (1 + node % 3) for node in range(1, 60))]
            return _tree(
                parent, [1 + node * 7 % 11 for node in range(60)], workspace=[node * 5 % 6 for node in range(60)]
            )
        case "pipeline":
            layers = [_layer(2 + i * 5 % 3, 3 + i * 7 % 4, 1 + i * 3 % 4) for i in range(8)]
            return _pipeline(layers, 4, 8, levels=[{"delay": 1}], copies=2)
        case "join":
            stages = [_stage(2 + i * 5 % 4, 3 + i * 7 % 5, 1 + i * 3 % 5, saved_size=i * 2 % 4) for i in range(9)]
            return _join((2, stages[:5]), (1, stages[5:]), backward_reads=["input", "saved"])
    raise ValueError(f"there is no kind {kind!r}")


def _document(kind: str, content: Document) -> Document:
    return {"schema": "remat.instance/1", "kind": kind, **content}


# --- chains -----------------------------------------------------------------------------------------------------------


def _stage(forward: float, backward: float, size: int, **more: Any) -> Document:
    return {"forward_time": forward, "backward_time": backward, "output_size": size, **more}


def _chain(*stages: Document, input_size: int = 1, **more: Any) -> Document:
    return _document("chain", {"input_size": input_size, "stages": list(stages), **more})


_CHAINS: Mapping[str, Document] = {
    "one-stage": _chain(_stage(2, 3, 4, saved_size=5)),
    "one-empty-stage": _chain(_stage(0, 0, 0), input_size=0),
    "zero-sizes": _chain(*[_stage(1 + i, 2, 0) for i in range(4)], input_size=0),
    "zero-times": _chain(*[_stage(0, 0, 1 + i, saved_size=i) for i in range(4)]),
    "equal-stages": _chain(_stage(1, 2, 3, saved_size=2, repeat=6)),
    "fractional-times": _chain(*[_stage(0.1, 0.2, 2, saved_size=1) for _ in range(5)]),
    "huge-workspaces": _chain(
        _stage(1, 1, 1, forward_workspace=HUGE, backward_workspace=1),
        _stage(1, 1, 2, forward_workspace=1, backward_workspace=HUGE),
        _stage(1, 1, 1, saving_workspace=HUGE),
    ),
    "huge-sizes": _chain(*[_stage(1, 2, HUGE + i, saved_size=HUGE - i) for i in range(4)], input_size=HUGE),
    "totals-near-the-limit": _chain(*[_stage(1, 1, 2**59, saved_size=2**57) for _ in range(3)], input_size=2**58),
    "no-input-gradient": _chain(_stage(1, 1, 2), _stage(1, 1, 3), input_size=9, input_gradient=False),
    "mostly-static": _chain(_stage(1, 1, 2), _stage(1, 1, 3), static_memory=1000),
    "heavy-loss": _chain(_stage(1, 1, 2), _stage(1, 1, 3), loss={"time": 50, "workspace": 40}),
    "saving-costs-more": _chain(*[_stage(1, 1, 1, saved_size=3, saving_forward_time=9) for _ in range(4)]),
    "cheap-to-save": _chain(*[_stage(5, 1, 1, saving_forward_time=1) for _ in range(4)]),
}


# --- adjoints ---------------------------------------------------------------------------------------------------------


def _adjoint(steps: int | list[Document], **more: Any) -> Document:
    return _document("adjoint", {"steps": steps, **more})


def _level(**more: Any) -> list[Document]:
    return [{"name": "disk", **more}]


_RAM: Document = {"name": "ram"}

_ADJOINTS: Mapping[str, Document] = {
    "one-step": _adjoint(1),
    "one-step-stored": _adjoint(1, storage=_level(slots=1)),
    "two-steps": _adjoint(2, forward_time=3, backward_time=5),
    "zero-states": _adjoint(5, state_size=0, storage=_level(slots=2)),
    "zero-times": _adjoint(5, forward_time=0, backward_time=0, storage=_level(slots=2)),
    "no-slots": _adjoint(4, storage=_level(slots=0)),
    "more-slots-than-steps": _adjoint(4, storage=_level(slots=9)),
    "unbounded-storage": _adjoint(6, storage=_level()),
    "no-room-for-a-state": _adjoint(4, state_size=8, storage=_level(capacity=7)),
    "initial-state-stored": _adjoint(5, initial_state="disk", storage=_level(slots=2, write_time=2, read_time=1)),
    "initial-state-does-not-fit": _adjoint(3, initial_state="disk", storage=_level(slots=0)),
    "slow-storage": _adjoint(6, storage=_level(slots=3, write_time=100, read_time=50)),
    "two-levels": _adjoint(7, storage=[_RAM | {"slots": 2}, *_level(write_time=3, read_time=2)]),
    "two-bounded-levels": _adjoint(7, storage=[_RAM | {"slots": 1}, *_level(slots=2, write_time=1, read_time=1)]),
    "three-levels": _adjoint(
        6,
        storage=[
            _RAM | {"slots": 1},
            *_level(slots=1, write_time=1),
            {"name": "tape", "write_time": 5, "read_time": 5},
        ],
    ),
    "channel-of-its-own": _adjoint(6, storage=_level(slots=3, bandwidth=1, channel="bus")),
    "small-adjoints": _adjoint(6, state_size=5, adjoint_size=0),
    "large-adjoints": _adjoint(6, state_size=2, adjoint_size=HUGE),
    "fractional-times": _adjoint(7, forward_time=0.1, backward_time=0.3, storage=_level(slots=2)),
    "steps-of-their-own": _adjoint([{"forward_time": i, "state_size": 1 + i % 2} for i in range(5)]),
    "tapes": _adjoint(4, tape_size=2, storage=_level(slots=3)),
}


# --- task graphs ------------------------------------------------------------------------------------------------------


def _task(name: str, *, time: float = 1, **more: Any) -> Document:
    return {"id": name, "time": time, **more}


def _dag(tasks: list[Document], **more: Any) -> Document:
    return _document("dag", {"tasks": tasks, **more})


_DIAMOND = [
    _task("a", size=4),
    _task("b", reads=["a"], size=2),
    _task("c", reads=["a"], size=3),
    _task("d", reads=["b", "c"], size=1),
]

_DAGS: Mapping[str, Document] = {
    "one-task": _dag([_task("a", size=3)], outputs=["a"]),
    "nothing-read-or-written": _dag([_task("a", writes=[]), _task("b", writes=[], workspace=5)]),
    "nothing-to-do": _dag([_task("a", size=1, required=False)]),
    "disconnected": _dag([_task("a", size=2), _task("b", size=3), _task("c", reads=["a"], size=1)], outputs=["b", "c"]),
    "zero-sizes": _dag([task | {"size": 0} for task in _DIAMOND], outputs=["d"]),
    "zero-times": _dag([task | {"time": 0} for task in _DIAMOND], outputs=["d"]),
    "fractional-times": _dag([task | {"time": 0.1} for task in _DIAMOND], outputs=["d"]),
    "listed-backwards": _dag(_DIAMOND[::-1], outputs=["d"]),
    "nothing-twice": _dag([task | {"recomputable": False} for task in _DIAMOND], outputs=["d", "a"]),
    "everything-once": _dag([task | {"once": True} for task in _DIAMOND]),
    "in-place": _dag([task | {"in_place": True} for task in _DIAMOND], outputs=["d"]),
    "huge-workspaces": _dag([task | {"workspace": HUGE + i} for i, task in enumerate(_DIAMOND)], outputs=["d"]),
    "huge-sizes": _dag([task | {"size": HUGE * (1 + i)} for i, task in enumerate(_DIAMOND)], outputs=["d"]),
    "pinned-input": _dag(
        [_task("a", reads=["x"], size=1), _task("b", reads=["x", "a"], size=2)],
        values=[{"id": "x", "size": 7}],
        inputs=["x"],
        pinned_inputs=["x"],
        outputs=["b"],
    ),
    "input-is-output": _dag(
        [_task("a", reads=["x"], size=1)], values=[{"id": "x", "size": 7}], inputs=["x"], outputs=["x"]
    ),
    "unread-input": _dag([_task("a", size=1)], values=[{"id": "x", "size": 7}], inputs=["x"]),
    "update": _dag(
        [_task("a", writes=["x"]), _task("b", reads=["x"], writes=["x"]), _task("c", reads=["x"], size=1)],
        values=[{"id": "x", "size": 3}],
        outputs=["c"],
    ),
    "alternatives": _dag(
        [
            _task("dear", time=5, writes=["x"], required=False),
            _task("cheap", time=2, writes=["x", "y"], required=False),
            _task("last", reads=["x"], size=1),
        ],
        values=[{"id": "x", "size": 2}, {"id": "y", "size": 4}],
        outputs=["last"],
    ),
    "several-outputs-of-a-task": _dag(
        [
            _task("a", writes=["big", "tiny"]),
            _task("b", reads=["tiny"], size=1),
            _task("c", reads=["b", "tiny"], size=1),
        ],
        values=[{"id": "big", "size": 100}, {"id": "tiny", "size": 1}],
        outputs=["c"],
    ),
    "wide": _dag(
        [*(_task(f"l{i}", size=1 + i) for i in range(6)), _task("sum", reads=[f"l{i}" for i in range(6)], size=1)]
    ),
}


# --- trees ------------------------------------------------------------------------------------------------------------


def _tree(parent: list[int], output_size: list[int], **more: Any) -> Document:
    return _document("tree", {"parent": parent, "output_size": output_size, **more})


_TREES: Mapping[str, Document] = {
    "single-node": _tree([-1], [3]),
    "single-node-outward": _tree([-1], [3], orientation="out", workspace=[2]),
    "single-empty-node": _tree([-1], [0], time=[0]),
    "chain": _tree([-1, 0, 1, 2, 3], [1, 5, 2, 4, 3]),
    "chain-from-the-leaf": _tree([1, 2, 3, -1], [1, 5, 2, 4]),
    "star": _tree([-1, 0, 0, 0, 0], [1, 5, 2, 4, 3], workspace=[0, 1, 9, 1, 0]),
    "star-outward": _tree([-1, 0, 0, 0, 0], [1, 5, 2, 4, 3], orientation="out", workspace=[0, 1, 9, 1, 0]),
    "zero-sizes": _tree([-1, 0, 0, 1, 1], [0] * 5),
    "zero-times": _tree([-1, 0, 0, 1, 1], [2] * 5, time=[0] * 5),
    "fractional-times": _tree([-1, 0, 0, 1, 1], [2] * 5, time=[0.1] * 5),
    "equal-nodes": _tree([-1, 0, 0, 1, 1, 2, 2], [2] * 7, workspace=[1] * 7),
    "huge-workspaces": _tree([-1, 0, 0], [1, 2, 3], workspace=[1, HUGE, HUGE + 1]),
    "huge-sizes": _tree([-1, 0, 0, 1], [HUGE, HUGE + 1, HUGE + 2, 2 * HUGE]),
    "needs-no-postorder": _tree([-1, 0, 0, 1, 2, 3, 4], [0, 6, 6, 1, 1, 12, 12]),
}


# --- pipelines --------------------------------------------------------------------------------------------------------


def _layer(forward: float, backward: float, saved: int, **more: Any) -> Document:
    return {"forward_time": forward, "backward_time": backward, "saved_size": saved, **more}


def _pipeline(layers: list[Document], devices: int | list[Document], batches: int, **more: Any) -> Document:
    listed = [{"name": "gpu", "count": devices}] if isinstance(devices, int) else devices
    levels = {"levels": more.pop("levels")} if "levels" in more else {}
    body = {"layers": layers, "micro_batches": batches, "cluster": {"devices": listed, **levels}, **more}
    return _document("pipeline", body) | {"schema": "remat.instance/3"}


def _tokens(length: int, **more: Any) -> Document:
    """Return all slices of a sequence; later ones take longer."""
    spans = [(end - first, first) for first in range(length) for end in range(first + 1, length + 1)]
    rows = [
        {"tokens": n, "before": k, "layers": [_layer(n + n * k, 2 * (n + n * k), n, cache_gradient_size=n)]}
        for n, k in spans
    ]
    return {"length": length, "slices": rows, **more}


def _size(samples: int) -> Document:
    return {"samples": samples, "layers": [_layer(samples + 0.5, 2 * samples, 3 * samples)]}


_FULL = {
    "output_size": 2,
    "gradient_size": 3,
    "parameter_size": 5,
    "parameter_gradient_size": 4,
    "optimizer_size": 10,
    "forward_workspace": 1,
    "backward_workspace": 2,
}
_PIPELINES: Mapping[str, Document] = {
    "one-device": _pipeline([_layer(1, 2, 3)], 1, 1),
    "one-micro-batch": _pipeline([_layer(1, 2, 3, repeat=4)], 2, 1),
    "more-devices-than-micro-batches": _pipeline([_layer(1, 2, 1, repeat=4)], 4, 2),
    "more-layers-than-devices": _pipeline([_layer(1 + i % 3, 2, i, output_size=1) for i in range(7)], 2, 4),
    "fewer-layers-than-devices": _pipeline([_layer(1, 2, 1)], 2, 2),
    "everything-has-a-size": _pipeline([_layer(2, 3, 4, weight_time=1, weight_saved_size=2, **_FULL)] * 4, 2, 4),
    "halves": _pipeline([_layer(1, 1, 2, weight_time=1, weight_saved_size=1, repeat=4)], 4, 8),
    "a-half-that-keeps-more": _pipeline([_layer(1, 1, 1, weight_time=1, weight_saved_size=4, repeat=4)], 2, 4),
    "some-layers-in-halves": _pipeline([_layer(1, 2, 1), _layer(1, 1, 1, weight_time=1)] * 2, 2, 4, copies=2),
    "two-at-once": _pipeline(
        [_layer(1, 1, 1, weight_time=1, paired_time=2), _layer(2, 1, 1, paired_time=2)] * 2, 2, 4, copies=2
    ),
    "zero-times": _pipeline([_layer(0, 0, 1, output_size=1, repeat=4)], 2, 4, levels=[{"bandwidth": 1}]),
    "zero-sizes": _pipeline([_layer(1, 2, 0, repeat=4)], 2, 4, levels=[{"bandwidth": 1}]),
    "fractional-times": _pipeline([_layer(0.1, 0.2, 1, output_size=1, repeat=4)], 4, 4, levels=[{"bandwidth": 3}]),
    "slow-links": _pipeline([_layer(1, 2, 1, output_size=7, repeat=4)], 4, 4, levels=[{"bandwidth": 1, "latency": 2}]),
    "two-levels": _pipeline(
        [_layer(1, 2, 1, output_size=4, repeat=4)],
        4,
        4,
        levels=[{"devices": 2, "bandwidth": 4}, {"bandwidth": 1, "delay": 3}],
        copies=2,
    ),
    "two-types": _pipeline(
        [_layer({"fast": 1, "slow": 3}, {"fast": 2, "slow": 6}, 1)] * 4,  # type: ignore[arg-type]
        [{"name": "a", "type": "fast", "count": 2}, {"name": "b", "type": "slow"}],
        4,
    ),
    "a-type-that-cannot-run-all": _pipeline(
        [_layer(1, 2, 1), _layer({"fast": 1}, 2, 1), _layer(1, 2, 1)],  # type: ignore[arg-type]
        [{"name": "a", "type": "slow"}, {"name": "b", "type": "fast"}, {"name": "c", "type": "slow"}],
        3,
    ),
    "huge-sizes": _pipeline([_layer(1, 2, HUGE + 1, parameter_size=HUGE, repeat=4)], 4, 4, copies=2),
    "predicted-parameters": _pipeline(
        [_layer(1, 2, 3, parameter_size=5, discrepancy_size=2)] * 3, 3, 6, weights="predicted"
    ),
    "a-version-each": _pipeline([_layer(1, 2, 3, parameter_size=5, repeat=4)], 4, 6, weights="stash"),
    "two-versions": _pipeline(
        [_layer(1 + i % 2, 2, 3, parameter_size=5, output_size=1) for i in range(5)],
        3,
        5,
        levels=[{"bandwidth": 2, "delay": 1}],
        weights="double",
        update_every=2,
    ),
    "one-version": _pipeline(
        [_layer(0.5, 1, 3, parameter_size=5, discrepancy_size=2, weight_time=0.25)] * 3, 3, 4, weights="single"
    ),
    "slices-of-sequences": _pipeline([_layer(3, 6, 4, repeat=2)], 2, 4, tokens=_tokens(3, cut=[2, 1])),
    "slices-that-may-be": _pipeline([_layer(3, 6, 4, repeat=2)], 2, 2, tokens=_tokens(4)),
    "sizes-of-micro-batches": _pipeline([_layer(1, 2, 3, repeat=4)], 2, 4, samples=1, sizes=[_size(2), _size(4)]),
    "a-stream-that-takes-no-time": _pipeline([_layer(0, 0, 1, repeat=2)], 2, 3, weights="stash"),
}


# --- joins ------------------------------------------------------------------------------------------------------------


def _join(*chains: tuple[int, list[Document]], **more: Any) -> Document:
    listed = [{"input_size": size, "stages": stages} for size, stages in chains]
    return _document("join", {"chains": listed, **more}) | {"schema": "remat.instance/3"}


_UNIT = _stage(1, 1, 1)
_JOINS: Mapping[str, Document] = {
    "one-chain-of-one-stage": _join((1, [_stage(2, 3, 4, saved_size=5)])),
    "three-equal-chains": _join(*[(1, [_UNIT])] * 3, backward_reads=["input"]),
    "chains-of-unlike-lengths": _join((1, [_UNIT] * 3), (3, [_stage(2, 1, 5)])),
    "zero-sizes": _join((0, [_stage(1, 2, 0)] * 2), (0, [_stage(2, 2, 0)])),
    "zero-times": _join((1, [_stage(0, 0, 2)] * 2), (1, [_stage(0, 0, 1, saved_size=2)])),
    "fractional-times": _join((1, [_stage(0.1, 0.2, 2)] * 2), (1, [_stage(0.3, 0.1, 1)])),
    "huge-sizes": _join((HUGE, [_stage(1, 2, HUGE + 1)] * 2), (1, [_stage(1, 1, HUGE - 1, saved_size=HUGE)])),
    "no-input-gradients": _join((9, [_UNIT, _stage(1, 1, 2)]), (5, [_UNIT] * 2), input_gradient=False),
    "nothing-read": _join((1, [_UNIT] * 2), (2, [_UNIT]), backward_reads=[]),
    "outputs-read": _join((4, [_UNIT, _stage(1, 2, 3)]), (2, [_stage(1, 1, 4)]), backward_reads=["output"]),
    "in-place": _join((4, [_UNIT, _stage(1, 2, 3)]), (2, [_stage(1, 1, 4)]), in_place=True),
    "variants": _join((1, [_stage(3, 6, 2, variants=[{"saved_size": 9}, {"saved_size": 2, "backward_time": 8}])] * 2)),
    "heavy-loss": _join((1, [_stage(1, 1, 2)] * 2), (1, [_stage(1, 1, 3)]), loss={"time": 50, "workspace": 40}),
    "mostly-static": _join((1, [_stage(1, 1, 2)]), (1, [_stage(1, 1, 3)]), static_memory=1000),
}
