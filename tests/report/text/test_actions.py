from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import remat
from remat.report.text.actions import actions
from remat.schedule.document import parse_steps
from remat.solving.result import Result

UNIT = {"schema": "remat.instance/1", "units": {"time": "unit", "memory": "unit"}}


def adjoint(steps: int, **more: Any) -> dict[str, Any]:
    return {**UNIT, "kind": "adjoint", "steps": steps, **more}


def chain(length: int, **more: Any) -> dict[str, Any]:
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 2, "saved_size": 3, "repeat": length}
    return {**UNIT, "kind": "chain", "input_size": 2, "stages": [stage], **more}


def told(instance: dict[str, Any], steps: list[dict[str, Any]]) -> list[str]:
    """Verify a schedule written by hand, and return its actions."""
    base = remat.solve(instance, algorithm="keep-all", budget={"": 10**6})
    columns = parse_steps({"schema": "remat.schedule/1", "steps": steps}, base.graph, base.machine, base.units)
    outcome = remat.verify(
        instance, {"schema": "remat.schedule/1", "steps": steps, "machine": base.machine.to_document()}
    )
    assert outcome.ok, outcome.violations
    return list(actions(replace(base, columns=columns)))


def replay(lines: Iterable[str], length: int, *, taped: bool, stored: bool) -> int:
    """Follow the grammar: every line must be possible at its position. Return the number of forwards."""
    current: int | None = 0
    kept: set[tuple[int, str]] = set()
    saved: set[int] = set()
    backward = length + 1
    forwards = 0
    for line in lines:
        word, *rest = line.split()
        numbers = [int(number) for number in re.findall(r"\d+", " ".join(rest[:1]))]
        place = rest[2] if len(rest) > 2 and rest[1] in ("to", "from") else ""
        if word == "advance":
            first, last = int(rest[0]), int(rest[2])
            assert rest[1] == "->"
            assert current == first < last
            forwards += last - first
            current = last
        elif word == "save":
            assert current == numbers[0] - 1
            saved.add(numbers[0])
            forwards += 1
            current = numbers[0]
        elif word == "loss":
            assert (current, backward) == (length, length + 1)
            backward = length
        elif word == "backward":
            assert backward == numbers[0]
            assert numbers[0] in saved if taped else current == numbers[0] - 1
            backward -= 1
        elif word == "checkpoint":
            assert bool(place) == stored
            assert current == numbers[0]
            assert (numbers[0], place) not in kept
            kept.add((numbers[0], place))
        elif word == "restore":
            assert (numbers[0], place) in kept or (taped and not place)
            current = numbers[0]
        else:
            assert word == "discard"
            kept.remove((numbers[0], place))
    assert backward == 0
    return forwards


def forwards_of(result: Result) -> int:
    assert result.columns is not None
    names = [result.graph.tasks[task] for task in result.columns.runs.tolist()]
    return sum(name.startswith("F") for name in names)


@pytest.mark.parametrize("storage", [None, 1, 2, 5])
@pytest.mark.parametrize("algorithm", ["revolve", "store-all", "recompute-all"])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20])
def test_actions_of_adjoints_replay_to_the_same_runs(algorithm: str, steps: int, storage: int | None) -> None:
    slots = 100 if algorithm == "store-all" else storage
    levels = [{"name": "disk", "slots": slots}]
    instance = adjoint(steps) if storage is None else adjoint(steps, storage=levels)
    budget = 6 if storage is None and algorithm == "revolve" else None
    result = remat.solve(instance, algorithm=algorithm, budget=budget)
    assert result.report is not None, result
    lines = list(actions(result))
    stored = storage is not None
    assert replay(lines, steps - 1, taped=False, stored=stored) == forwards_of(result) or steps == 1
    if steps == 1:
        assert [line for line in lines if not line.startswith(("checkpoint", "restore", "discard"))] == ["loss"]


@pytest.mark.parametrize("budget", [None, 60, 40, 30, 25])
@pytest.mark.parametrize("algorithm", ["rotor", "store-all", "recompute-all"])
def test_actions_of_chains_replay_to_the_same_runs(algorithm: str, budget: int | None) -> None:
    result = remat.solve(chain(8), algorithm=algorithm, budget=budget)
    if result.report is None:
        assert list(actions(result)) == []
        return
    assert replay(actions(result), 8, taped=True, stored=False) == forwards_of(result)


def test_actions_of_the_lecture_are_as_by_hand() -> None:
    result = remat.solve(adjoint(6), algorithm="fixed", options={"checkpoints": "0,2"}, budget=4)
    assert list(actions(result)) == [
        "checkpoint x0",
        "advance 0 -> 2",
        "checkpoint x2",
        "advance 2 -> 5",
        "loss",
        "restore x2",
        "advance 2 -> 4",
        "backward 5",
        "restore x2",
        "advance 2 -> 3",
        "backward 4",
        "restore x2",
        "discard x2",
        "backward 3",
        "restore x0",
        "advance 0 -> 1",
        "backward 2",
        "restore x0",
        "discard x0",
        "backward 1",
    ]


def test_a_chain_that_keeps_everything() -> None:
    result = remat.solve(chain(3), algorithm="store-all")
    assert list(actions(result)) == ["save 1", "save 2", "save 3", "loss", "backward 3", "backward 2", "backward 1"]


def test_variants_are_named() -> None:
    variants = [{"name": "all"}, {"name": "some", "saved_size": 1, "backward_time": 3}]
    stage = chain(1)["stages"][0]
    lines = told(
        chain(1, stages=[stage | {"variants": variants}, stage]),
        [
            {"run": "Fe1.2"},
            {"run": "Fe2"},
            {"run": "loss"},
            {"run": "B2", "drop": ["y2", "s2", "x2"]},
            {"run": "B1.2", "drop": ["y1", "s1.2", "x1"]},
            {"drop": ["x0"]},
        ],
    )
    assert lines == ["save 1.2", "save 2", "loss", "backward 2", "backward 1.2"]


def test_a_chain_that_recomputes() -> None:
    lines = told(
        chain(3),
        [
            {"run": "F1"},
            {"run": "F2", "drop": ["x1"]},
            {"run": "Fe3"},
            {"run": "loss"},
            {"run": "B3", "drop": ["y3", "s3", "x3", "x2"]},
            {"run": "F1"},
            {"run": "Fe2"},
            {"run": "B2", "drop": ["y2", "s2", "x2"]},
            {"drop": ["x1"]},
            {"run": "Fe1"},
            {"run": "B1", "drop": ["y1", "s1", "x1"]},
            {"drop": ["x0"]},
        ],
    )
    assert lines == [
        "checkpoint x0",
        "advance 0 -> 2",
        "save 3",
        "loss",
        "backward 3",
        "restore x0",
        "advance 0 -> 1",
        "save 2",
        "backward 2",
        "restore x0",
        "save 1",
        "backward 1",
        "discard x0",
    ]


def test_actions_name_storage_levels() -> None:
    instance = adjoint(
        3,
        machine={
            "memories": [{"name": "working"}, {"name": "ram"}, {"name": "disk"}],
            "processors": [{"name": "cpu", "memory": "working"}],
            "links": [
                {"source": source, "target": target}
                for source in ("working", "ram", "disk")
                for target in ("working", "ram", "disk")
                if source != target
            ],
        },
        state_size=4,
    )
    lines = told(
        instance,
        [
            {"copy": "x0", "from": "working", "to": "ram"},
            {"run": "F1", "drop": ["x0"]},
            {"copy": "x1", "from": "working", "to": "disk"},
            {"run": "F2", "drop": ["x1"]},
            {"run": "loss", "drop": ["x2"]},
            {"copy": "x0", "from": "ram", "to": "disk", "drop": True},
            {"copy": "x1", "from": "disk", "to": "working", "drop": True},
            {"run": "B2", "drop": ["x1", "y2"]},
            {"copy": "x0", "from": "disk", "to": "working"},
            {"drop": ["x0"], "memory": "disk"},
            {"run": "B1", "drop": ["x0", "y1"]},
            {"copy": "y0", "from": "working", "to": "disk"},
        ],
    )
    assert lines == [
        "checkpoint x0 to ram",
        "advance 0 -> 1",
        "checkpoint x1 to disk",
        "advance 1 -> 2",
        "loss",
        "move x0 from ram to disk",
        "discard x0 from ram",
        "restore x1 from disk",
        "discard x1 from disk",
        "backward 2",
        "restore x0 from disk",
        "discard x0 from disk",
        "backward 1",
        "checkpoint y0 to disk",
    ]


def test_parts_and_states_that_leave() -> None:
    instance = adjoint(
        2,
        state_size=4,
        machine={
            "memories": [{"name": "working"}, {"name": "ram"}],
            "processors": [{"name": "cpu", "memory": "working"}],
            "links": [{"source": "working", "target": "ram"}, {"source": "ram", "target": "working"}],
        },
    )
    lines = told(
        instance,
        [
            {"copy": "x0", "from": "working", "to": "ram"},
            {"run": "F1"},
            {"copy": "x1", "from": "working", "to": "ram", "bytes": 1, "drop": True},
            {"copy": "x1", "from": "ram", "to": "working", "bytes": 1, "drop": True},
            {"run": "loss", "drop": ["x1"]},
            {"drop": ["x0"]},
            {"copy": "x0", "from": "ram", "to": "working", "drop": True},
            {"run": "B1", "drop": ["x0", "y1"]},
        ],
    )
    assert lines == [
        "checkpoint x0 to ram",
        "checkpoint x0",
        "advance 0 -> 1",
        "checkpoint x1 to ram (1 bytes)",
        "restore x1 from ram (1 bytes)",
        "loss",
        "discard x0",
        "restore x0 from ram",
        "discard x0 from ram",
        "backward 1",
    ]


def test_other_kinds_have_none() -> None:
    tree = {**UNIT, "kind": "tree", "parent": [-1, 0], "output_size": [1, 1]}
    dag = {**UNIT, "kind": "dag", "tasks": [{"id": "loss", "time": 1, "writes": []}]}
    for instance in (tree, dag):
        with pytest.raises(remat.OptionError, match="chains and adjoints"):
            actions(remat.solve(instance, algorithm="keep-all"))


def test_no_schedule_no_actions() -> None:
    assert list(actions(remat.solve(chain(3), algorithm="keep-all", budget=1))) == []


def test_frees_of_other_values_are_not_listed() -> None:
    lines = told(
        adjoint(2), [{"run": "F1"}, {"run": "loss", "drop": ["x1"]}, {"run": "B1", "drop": ["y1"]}, {"drop": ["x0"]}]
    )
    assert lines == ["checkpoint x0", "advance 0 -> 1", "loss", "restore x0", "backward 1", "discard x0"]


def test_restarts_from_a_checkpoint_in_memory() -> None:
    lines = told(
        adjoint(3),
        [
            {"run": "F1"},
            {"run": "F2", "drop": ["x1"]},
            {"run": "loss", "drop": ["x2"]},
            {"run": "F1"},
            {"run": "B2", "drop": ["x1", "y2"]},
            {"run": "B1", "drop": ["x0", "y1"]},
        ],
    )
    assert lines == [
        "checkpoint x0",
        "advance 0 -> 2",
        "loss",
        "restore x0",
        "advance 0 -> 1",
        "backward 2",
        "restore x0",
        "discard x0",
        "backward 1",
    ]


def test_states_that_are_freed_at_once() -> None:
    lines = told(
        adjoint(3),
        [
            {"run": "F1"},
            {"run": "F2"},
            {"run": "loss", "drop": ["x2"]},
            {"run": "F1", "drop": ["x1"]},
            {"run": "F1"},
            {"run": "B2", "drop": ["x1", "y2"]},
            {"run": "B1", "drop": ["x0", "y1"]},
        ],
    )
    assert lines[4:] == [
        "loss",
        "restore x0",
        "advance 0 -> 1",
        "discard x1",
        "restore x0",
        "advance 0 -> 1",
        "backward 2",
        "restore x0",
        "discard x0",
        "backward 1",
    ]
