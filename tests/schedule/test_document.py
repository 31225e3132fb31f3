"""Test the schedule format: round trips, and refusal of invalid documents."""

import io
import json
import random

import numpy as np
import pytest

import remat
from remat.documents import read_document
from remat.errors import InstanceError
from remat.graph.taskgraph import Ragged
from remat.placement import place
from remat.schedule.document import SCHEMA, Copy, Drop, Run, StepView, parse_steps
from remat.schedule.steps import StepBuilder, Steps, concatenate
from remat.schedule.writing import document_chunks, step_lines
from remat.units import Units
from tests.placement.step_lists import world_of
from tests.verifier.judges import Case

DOCUMENT = {
    "schema": "remat.instance/1",
    "kind": "dag",
    "units": {"time": "ms", "memory": "B"},
    "machine": {
        "memories": [{"name": "device"}, {"name": 'a "host"'}],
        "processors": [{"name": "gpu", "memory": "device", "count": 2}],
        "links": [{"source": "device", "target": 'a "host"'}],
    },
    "values": [{"id": "v", "size": 5000}, {"id": "wé", "size": 2}],
    "tasks": [
        {"id": "t", "time": 1, "writes": ["v"], "parallel": {"max": 2}},
        {"id": "back\\slash", "time": 2, "reads": ["v"], "writes": ["wé"]},
    ],
}
CASE = Case(DOCUMENT)

STEPS = [
    {"run": "t", "on": ["gpu0", "gpu1"], "start": 0},
    {"run": "back\\slash", "after": [0], "start": 0.5, "drop": ["wé", "v"]},
    {"copy": "v", "from": "device", "to": 'a "host"', "start": 2.5},
    {"copy": "v", "from": "device", "to": 'a "host"', "start": 0.1 + 0.2, "bytes": 7, "drop": True},
    {"drop": ["v", "wé"], "memory": 'a "host"', "start": 1e-300},
    {"drop": [], "memory": "device", "start": 7},
]


def same(one, other):
    """Whether two `Steps` are equal, column by column."""

    def columns(steps):
        ragged = [steps.drop, steps.on, steps.after]
        lists = [[[] for _ in range(len(steps))] if column is None else column.to_lists() for column in ragged]
        plain = [steps.kind, steps.item, steps.source, steps.target, steps.amount]
        start = None if steps.start is None else (steps.start.dtype, steps.start.tolist())
        return [column.tolist() for column in plain], lists, start, dict(steps.unknown)

    return columns(one) == columns(other)


def read_back(steps, case=CASE):
    text = "".join(document_chunks({"schema": SCHEMA, "seed": 0}, steps, case.graph, case.machine))
    return parse_steps(read_document(io.StringIO(text)), case.graph, case.machine, case.units)


def test_every_kind_of_step_is_read_back():
    columns = CASE.columns(STEPS)
    assert same(read_back(columns), columns)
    assert [json.loads(line) for line in step_lines(columns, CASE.graph, CASE.machine)] == STEPS


def test_steps_without_times_are_read_back():
    bare = [{key: value for key, value in step.items() if key != "start"} for step in STEPS]
    columns = CASE.columns(bare)
    assert columns.start is None
    assert same(read_back(columns), columns)


def test_random_lists_are_read_back():
    for seed in range(40):
        world = world_of(("schedule", seed), lists=3)
        case = Case(world.document)
        for steps in world.lists:
            columns = case.columns(steps)
            assert same(read_back(columns, case), columns)
            unbounded = case.machine.with_capacities({memory.name: None for memory in case.machine.memories})
            placed = columns.placed(place(case.graph, unbounded, columns).start)
            again = read_back(placed, case)
            assert again.start.tolist() == placed.start.tolist()
            if len(steps):
                assert same(again.placed(placed.start), placed)


def test_many_steps_are_written_in_pieces():
    rng = random.Random(0)
    builder = StepBuilder()
    for _ in range(25_000):
        builder.run(rng.randrange(2), drop=[0] if rng.random() < 0.5 else [])
    columns = builder.build(start=np.arange(25_000))
    chunks = list(document_chunks({"schema": SCHEMA}, columns, CASE.graph, CASE.machine))
    assert len(chunks) == 7  # head, opening, three batches, end of the list, end
    assert same(read_back(columns), columns)


def test_a_document_without_steps():
    text = "".join(document_chunks({"schema": SCHEMA, "status": "infeasible"}, None, CASE.graph, CASE.machine))
    assert json.loads(text) == {"schema": SCHEMA, "status": "infeasible"}
    empty = StepBuilder().build()
    text = "".join(document_chunks({"schema": SCHEMA}, empty, CASE.graph, CASE.machine))
    assert json.loads(text)["steps"] == []


def test_steps_with_names():
    view = StepView(CASE.columns(STEPS), CASE.graph, CASE.machine)
    assert len(view) == 6
    assert view[0] == Run("t", 0.0, ("gpu0", "gpu1"))
    assert view[1] == Run("back\\slash", 0.5, (), ("wé", "v"), (0,))
    assert view[2] == Copy("v", "device", 'a "host"', 2.5)
    assert view[3] == Copy("v", "device", 'a "host"', 0.1 + 0.2, True, 7)
    assert view[-2] == Drop(("v", "wé"), 'a "host"', 1e-300)
    assert view[4:] == [view[4], view[5]]
    assert list(view) == [view[i] for i in range(6)]
    for index in (6, -7):
        with pytest.raises(IndexError):
            view[index]
    bare = StepView(CASE.columns([{"run": "t"}]), CASE.graph, CASE.machine)
    assert bare[0] == Run("t")


def test_times_and_sizes_may_have_units():
    steps = CASE.columns(
        [
            {"run": "t", "start": "2s"},
            {"copy": "v", "from": "device", "to": 'a "host"', "bytes": "1kB", "drop": True, "start": "2500us"},
        ]
    )
    assert steps.start.tolist() == [2000, 2.5]
    assert steps.amount.tolist() == [-1, 1000]


def test_integers_stay_integers():
    whole = CASE.columns([{"run": "t", "start": 0}, {"run": "t", "start": 2**60}])
    assert whole.start.dtype == np.int64
    mixed = CASE.columns([{"run": "t", "start": 0}, {"run": "t", "start": 1.0}])
    assert mixed.start.dtype == np.float64


def test_a_drop_is_in_the_first_memory_by_default():
    assert CASE.columns([{"drop": ["v"]}]).source.tolist() == [0]


@pytest.mark.parametrize("start", [-1, -0.5, -1e-12, -1.5e300])
def test_negative_starts_are_left_to_the_verifier(start):
    assert CASE.columns([{"run": "t", "start": start}]).start.tolist() == [start]
    text = io.StringIO(json.dumps({"schema": SCHEMA, "steps": [{"run": "t", "start": start}]}))
    steps = parse_steps(read_document(text), CASE.graph, CASE.machine, CASE.units)
    assert steps.start.tolist() == [start]


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ({"run": "nobody", "drop": ["v"]}, "unknown-task"),
        ({"run": "t", "drop": ["nothing"]}, "unknown-value"),
        ({"run": "t", "on": ["gpu"]}, "unknown-processor"),
        ({"copy": "nothing", "from": "device", "to": 'a "host"'}, "unknown-value"),
        ({"copy": "v", "from": "moon", "to": "device", "drop": True}, "unknown-memory"),
        ({"copy": "v", "from": "device", "to": "moon"}, "unknown-memory"),
        ({"drop": ["nothing"], "memory": "device"}, "unknown-value"),
        ({"drop": ["v"], "memory": "moon"}, "unknown-memory"),
    ],
)
def test_unknown_names_are_noted_not_refused(step, rule):
    steps = CASE.columns([{"run": "t"}, step])
    assert [found for found, _ in steps.unknown.values()] == [rule]
    assert list(steps.unknown) == [1]


@pytest.mark.parametrize(
    ("step", "path", "why"),
    [
        ("F1", "", "a step is a JSON object"),
        ({}, "", "one of the keys run, copy, drop"),
        ({"walk": "t"}, "", "one of the keys run, copy, drop"),
        ({"run": "t", "memory": "device"}, "", "unknown key 'memory' in a run step"),
        ({"run": "t", "copy": "v"}, "", "unknown key 'copy' in a run step"),
        ({"copy": "v", "from": "device", "to": "device", "on": []}, "", "unknown key 'on'"),
        ({"drop": ["v"], "bytes": 1}, "", "unknown key 'bytes'"),
        ({"run": 1}, ".run", "name of a task"),
        ({"run": "t", "on": "gpu0"}, ".on", "list of names"),
        ({"run": "t", "on": [0]}, ".on", "list of names"),
        ({"run": "t", "drop": "v"}, ".drop", "list of names"),
        ({"run": "t", "after": 0}, ".after", "indices of earlier steps"),
        ({"run": "t", "after": [1]}, ".after", "indices of earlier steps"),
        ({"run": "t", "after": [-1]}, ".after", "indices of earlier steps"),
        ({"run": "t", "after": [True]}, ".after", "indices of earlier steps"),
        ({"copy": 1, "from": "device", "to": "device"}, ".copy", "name of a value"),
        ({"copy": "v", "to": "device"}, ".from", "name of a memory"),
        ({"copy": "v", "from": "device"}, ".to", "name of a memory"),
        ({"copy": "v", "from": "device", "to": "device", "drop": ["v"]}, ".drop", "true or false"),
        ({"copy": "v", "from": "device", "to": "device", "bytes": -1, "drop": True}, ".bytes", "negative"),
        ({"copy": "v", "from": "device", "to": "device", "bytes": 1.5, "drop": True}, ".bytes", "whole number"),
        ({"drop": "v"}, ".drop", "list of names"),
        ({"drop": ["v"], "memory": None}, ".memory", "name of a memory"),
        ({"run": "t", "start": "soon"}, ".start", "is not a time"),
        ({"run": "t", "start": None}, ".start", "is not a time"),
        ({"run": "t", "start": True}, ".start", "is not a time"),
        ({"run": "t", "start": 1.5e308}, ".start", "larger than the largest time, 1e308"),
        ({"run": "t", "start": float("nan")}, ".start", "not a finite time"),
        ({"run": "t", "start": float("-inf")}, ".start", "not a finite time"),
        ({"run": "t", "start": -(10**30)}, ".start", "out of range"),
    ],
)
def test_what_is_no_step(step, path, why):
    first = {"run": "t"} | ({"start": 0} if "start" in step else {})
    with pytest.raises(InstanceError, match=why) as caught:
        CASE.columns([first, step])
    assert caught.value.path == f"$.steps[1]{path}"


@pytest.mark.parametrize("starts", [(0, None), (None, 0), (0, None, 1), (None, None, 1)])
def test_either_every_step_has_a_start_or_none_has(starts):
    steps = [{"run": "t"} | ({} if start is None else {"start": start}) for start in starts]
    with pytest.raises(InstanceError, match="either every step has a start, or none has"):
        CASE.columns(steps)


@pytest.mark.parametrize(
    ("document", "path", "why"),
    [
        ([], "$", "a schedule is a JSON object"),
        ({}, "$.schema", "the key is missing"),
        ({"schema": "remat.schedule/9"}, "$.schema", "found 'remat.schedule/9'"),
        ({"schema": "remat.schedule/2"}, "$.steps", "no list of steps"),
        ({"schema": SCHEMA, "steps": [], "initial": {}}, "$", "unknown key 'initial'"),
        ({"schema": SCHEMA, "steps": [], "period": 3}, "$", "unknown key 'period'"),
        ({"schema": SCHEMA}, "$.steps", "no list of steps"),
        ({"schema": SCHEMA, "steps": {}}, "$.steps", "no list of steps"),
    ],
)
def test_what_is_no_schedule(document, path, why):
    with pytest.raises(InstanceError, match=why) as caught:
        parse_steps(document, CASE.graph, CASE.machine, Units())
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("change", "path", "why"),
    [
        ({"period": 3}, "$", "unknown key 'period' in a schedule; known are algorithm, answer"),
        ({"make_span": 3}, "$", "unknown key 'make_span' in a schedule; did you mean 'makespan'"),
        ({"instance": {"digests": ""}}, "$.instance", "unknown key 'digests' in the schedule's instance; did you mean"),
        ({"bounds": [{"value": 1}, {"valve": 1}]}, r"$.bounds[1]", "unknown key 'valve' .* did you mean 'value'"),
        ({"least_budget": {"bytes": 1}}, "$.least_budget", "unknown key 'bytes'"),
        ({"answer": {"budget": 1}}, "$.answer", "unknown key 'budget'"),
        (
            {"steps": [{"run": "t", "strat": 3}]},
            "$.steps[0]",
            "unknown key 'strat' in a run step; .* 'start'",
        ),
        (
            {"steps": [{"copy": "v", "form": "m"}]},
            "$.steps[0]",
            "unknown key 'form' in a copy step; .* 'from'",
        ),
        ({"schema": "remat.instance/2"}, "$.schema", "found 'remat.instance/2', an instance"),
    ],
)
def test_unknown_keys_are_refused_at_every_level(change, path, why):
    with pytest.raises(InstanceError, match=why) as caught:
        parse_steps({"schema": SCHEMA, "steps": []} | change, CASE.graph, CASE.machine, Units())
    assert caught.value.path == path


def test_whatever_a_result_writes_is_known():
    chain = {"schema": "remat.instance/1", "kind": "chain", "units": {"time": "unit", "memory": "unit"}}
    chain["input_size"] = 1
    chain["stages"] = [{"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4, "repeat": 4}]
    results = [
        remat.solve(chain, algorithm="rotor", budget=20),
        remat.solve(chain, algorithm="rotor", budget=1),
        remat.least_budget(chain, algorithm="rotor", max_overhead=0.5),
        remat.largest_batch(chain, algorithm="keep-all", budget=80),
    ]
    for result in results:
        parse_steps(result.head() | {"steps": []}, CASE.graph, CASE.machine, Units())


def test_columns_can_be_joined():
    first, second = CASE.columns([{"run": "t", "on": ["gpu1"]}]), CASE.columns([{"run": "t"}, {"drop": ["v"]}])
    joined = concatenate([first, second, Steps.of_runs(np.array([1]), Ragged.from_lists([[0, 1]]))])
    assert same(
        joined,
        CASE.columns(
            [
                {"run": "t", "on": ["gpu1"]},
                {"run": "t"},
                {"drop": ["v"]},
                {"run": "back\\slash", "drop": ["v", "wé"]},
            ]
        ),
    )
    assert joined.runs.tolist() == [0, 0, 1]
    assert concatenate([second, second]).on is None


def test_joined_steps_wait_for_the_same_steps_and_keep_their_starts() -> None:
    head = StepBuilder()
    head.drop([0], 1)
    tail = StepBuilder()
    first = tail.run(0)
    tail.run(1, after=(first,))
    joined = concatenate([head.build(np.array([0])), tail.build(np.array([2, 5]))])
    assert joined.after is not None
    assert joined.after.to_lists() == [[], [], [1]]
    assert joined.start is not None
    assert joined.start.tolist() == [0, 2, 5]
    assert concatenate([head.build(), tail.build(np.array([2, 5]))]).start is None
    assert concatenate([head.build(), head.build()]).after is None
