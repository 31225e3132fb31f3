"""Test `remat.layout`: it assigns addresses to resident values, and the verifier checks them."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.errors import OptionError
from remat.plugin.layouts import Buffers
from remat.solving.questions import layout
from remat.testing import strategies
from remat.verifier.residencies import residencies_of
from tests.oracles import layouts

WORK = {"work": 20_000_000}


def chain(**more):
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 4, "saved_size": 9, "forward_workspace": 3}
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 4, "stages": [stage] * 6} | more


def dag(tasks, **more):
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks} | more


@pytest.mark.parametrize("align", [1, 8, 64])
def test_fragmentation_is_never_negative(align):
    """The highest residency needs no padding, and the arena may thus be below the peak of the rounded sizes."""
    draw, below = np.random.default_rng(align), 0
    for _ in range(20):
        start, size = draw.integers(0, 9, 12), draw.integers(1, 100, 12)
        found = remat.layout(Buffers.of(start, start + draw.integers(1, 4, 12), size), align=align, options=WORK)
        assert found.fragmentation >= 0
        below += found.arena < found.rounded_peak
    assert below > 0 or align == 1


def in_place(size):
    """A task that writes over what it reads: b takes what a leaves."""
    return dag(
        [
            {"id": "A", "time": 1, "reads": [], "writes": ["a"]},
            {"id": "B", "time": 1, "reads": ["a"], "writes": ["b"], "in_place": True},
            {"id": "C", "time": 1, "reads": ["b"], "writes": ["c"], "required": True},
        ],
        values=[{"id": name, "size": held} for name, held in (("a", 8), ("b", size), ("c", 1))],
    )


@settings(max_examples=15, derandomize=True, database=None, deadline=None)
@given(strategies.dags(largest=8, exact=True) | strategies.chains(largest=5, exact=True))
def test_layouts_of_drawn_schedules(document):
    try:
        result = remat.solve(document, algorithm="keep-all")
    except OptionError:  # an input is in a memory that the algorithm does not use
        return
    if result.report is None:
        return
    for memory in result.peak_memory:
        found = remat.layout(result, memory=memory, options=WORK)
        held = found.residencies
        load = loads(held.first, held.last, held.size)
        static = result.graph.static_bytes(result.machine, result.machine.memory_index[memory])
        # What overlaps in place is counted once by the verifier, and twice here.
        assert load + static >= result.peak_memory[memory] or not len(held)
        if not len(held.hosts):
            assert max(load + static, static) == result.peak_memory[memory]
        if found.offset is not None and not len(held.hosts):
            columns = (column.tolist() for column in (held.first, held.last, held.size, found.offset))
            assert layouts.problems(*columns) == []
            assert found.arena >= found.bound


def loads(first, last, size):
    times = sorted({*first.tolist()})
    return max((int(size[(first <= time) & (time < last)].sum()) for time in times), default=0)


@pytest.mark.parametrize("size", [8, 5, 11])
def test_an_output_in_place_lies_where_its_input_lay(size):
    result = remat.solve(in_place(size), algorithm="keep-all")
    found = remat.layout(result)
    assert len(found.residencies.hosts) == 1
    guest, host = found.residencies.hosts[0]
    assert found.offset[guest] == found.offset[host]
    assert found.arena == max(8, size, size + 1) == result.peak_memory["memory"]


def over_several_inputs(sizes, output):
    """A task that writes in place over all that it reads."""
    inputs = [f"a{k}" for k in range(len(sizes))]
    tasks = [{"id": f"A{k}", "time": 1, "reads": [], "writes": [name]} for k, name in enumerate(inputs)]
    tasks.append({"id": "B", "time": 1, "reads": inputs, "writes": ["b"], "in_place": True})
    tasks.append({"id": "C", "time": 1, "reads": ["b"], "writes": ["c"], "required": True})
    values = {**dict(zip(inputs, sizes, strict=True)), "b": output, "c": 1}
    return dag(tasks, values=[{"id": name, "size": size} for name, size in values.items()])


@pytest.mark.parametrize(
    ("sizes", "output"), [((5, 5), 10), ((5, 5), 12), ((5, 7), 8), ((4, 4, 4), 12), ((3, 9, 1), 12), ((6, 2), 6)]
)
def test_an_output_in_place_lies_on_several_inputs(sizes, output):
    result = remat.solve(over_several_inputs(sizes, output), algorithm="keep-all")
    found = remat.layout(result)
    assert found.arena == result.peak_memory["memory"] == max(sum(sizes), output + 1)
    report = remat.verify(result.instance, result.with_addresses(found).to_dict())
    assert report.ok
    assert report.arenas["memory"] == found.arena


def test_the_caching_allocator_stacks_no_inputs(monkeypatch):
    """It takes over the block of one input, even where the capacity is exceeded."""
    monkeypatch.setattr(layout, "stacked", None)
    result = remat.solve(over_several_inputs((5, 5), 12), algorithm="keep-all")
    assert remat.layout(result, algorithm="caching").offset is not None
    assert remat.layout(result, algorithm="caching", capacity=16).offset is None


def test_two_outputs_in_place_lie_on_one_input():
    tasks = [
        {"id": "A", "time": 1, "reads": [], "writes": ["a"]},
        {"id": "B", "time": 1, "reads": ["a"], "writes": ["b", "c"], "in_place": True},
        {"id": "C", "time": 1, "reads": ["b", "c"], "writes": ["d"], "required": True},
    ]
    sizes = {"a": 10, "b": 5, "c": 5, "d": 1}
    instance = dag(tasks, values=[{"id": name, "size": size} for name, size in sizes.items()])
    result = remat.solve(instance, algorithm="keep-all")
    found = remat.layout(result)
    assert found.arena == result.peak_memory["memory"] == 11
    assert remat.verify(instance, result.with_addresses(found).to_dict()).ok


def test_outputs_in_place_on_several_inputs_are_aligned():
    result = remat.solve(over_several_inputs((5, 5), 12), algorithm="keep-all")
    found = remat.layout(result, align=4)
    assert (found.offset % 4 == 0).all()
    assert remat.verify(result.instance, result.with_addresses(found).to_dict()).ok


def draw_in_place(seed):
    """Return a graph whose tasks mostly write in place over one to three inputs, and a schedule of it."""
    draw = random.Random(seed)
    tasks, size, free = [], {}, []
    for k in range(draw.randint(4, 9)):
        reads = [free.pop(draw.randrange(len(free))) for _ in range(min(len(free), draw.randrange(4)))]
        kept = [name for name in reads if draw.random() < 0.2]
        writes = [f"v{k}{letter}" for letter in "ab"[: draw.choice((1, 1, 2))]]
        size.update({name: draw.randint(1, 9) for name in writes})
        place = {"in_place": True} if draw.random() < 0.8 else {}
        tasks.append({"id": f"T{k}", "time": 1, "reads": reads, "writes": writes, "required": True} | place)
        free += [*kept, *writes]
    return remat.solve(dag(tasks, values=[{"id": name, "size": held} for name, held in size.items()]))


def test_drawn_outputs_in_place_are_valid(monkeypatch):
    """The verifier accepts each layout; stacks of inputs are smaller in some draws, and never larger."""
    results = [draw_in_place(seed) for seed in range(40)]
    found = [remat.layout(result, options={"work": 3_000_000}) for result in results]
    for result, one in zip(results, found, strict=True):
        assert remat.verify(result.instance, result.with_addresses(one).to_dict()).ok
    monkeypatch.setattr(layout, "stacked", lambda *held: None)
    single = [remat.layout(result, options={"work": 3_000_000}).arena for result in results]
    assert all(one.arena <= arena for one, arena in zip(found, single, strict=True))
    assert sum(one.arena < arena for one, arena in zip(found, single, strict=True)) >= 3


@pytest.mark.parametrize("algorithm", ["best-fit", "online-best-fit", "caching"])
def test_static_bytes_and_outputs_in_place_are_laid_out_by_every_allocator(algorithm):
    result = remat.solve(in_place(5) | {"static_memory": 100}, algorithm="keep-all")
    found = remat.layout(result, algorithm=algorithm)
    assert found.peak == result.peak_memory["memory"] == 108
    assert found.offset.min() >= 100
    assert remat.verify(result.instance, result.with_addresses(found).to_dict()).ok
    assert (found.reserved is not None) == (algorithm == "caching")


def test_caching_keeps_an_input_until_a_larger_output_in_place_is_written():
    instance = in_place(1100)
    instance["values"][0]["size"] = instance["tasks"][1]["workspace"] = 600
    result = remat.solve(instance, algorithm="keep-all")
    found = remat.layout(result, algorithm="caching")
    at = dict(zip(found.names, found.offset.tolist(), strict=True))
    assert len({at["a"], at["b"], at["workspace of B"]}) == 3
    assert remat.verify(instance, result.with_addresses(found).to_dict()).ok


def test_every_allocator_answers():
    result = remat.solve(chain(), algorithm="rotor", budget="60B")
    for algorithm in remat.algorithms(kind="layout"):
        found = remat.layout(result, algorithm=algorithm.name)
        assert found.arena >= found.bound == found.peak


def test_alignment_fixed_and_reserved_addresses():
    result = remat.solve(chain(), algorithm="keep-all")
    value = result.graph.values[0]
    found = remat.layout(result, align=16, fixed={value: 64}, reserved=((0, 16),))
    at = found.names.index(value)
    assert found.offset[at] == 64
    assert (found.offset % 16 == 0).all()
    assert found.offset.min() >= 16
    assert found.rounded_peak > found.peak


def test_capacity_below_the_peak():
    result = remat.solve(chain(), algorithm="keep-all")
    peak = result.peak_memory["memory"]
    found = remat.layout(result, capacity=peak - 1)
    assert (found.offset, found.infeasible_within) == (None, "this schedule")
    assert remat.layout(result, capacity=peak).arena == peak


def test_values_of_two_memories():
    machine = {
        "memories": [{"name": "gpu"}, {"name": "host"}],
        "processors": [{"name": "p", "memory": "gpu"}],
        "links": [
            {"source": one, "target": other, "bandwidth": 8} for one, other in (("gpu", "host"), ("host", "gpu"))
        ],
    }
    result = remat.solve(chain(machine=machine), algorithm="pofo", budget="45B")
    held = residencies_of(result.graph, result.machine, result.columns)
    assert set(held.memory.tolist()) == {0, 1}
    for memory in ("gpu", "host"):
        assert remat.layout(result, memory=memory).arena == result.peak_memory[memory]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"align": 3}, "align: 3 is not a power of two"),
        ({"memory": "tape"}, "memory: unknown memory 'tape'; this machine has 'memory'"),
        ({"fixed": {"nothing": 0}}, "fixed: 'nothing' is not one of the buffers"),
        ({"algorithm": "rotor"}, "'rotor' solves chain"),
    ],
)
def test_what_cannot_be_used_is_named(more, message):
    result = remat.solve(chain(), algorithm="keep-all")
    with pytest.raises(OptionError, match=message):
        remat.layout(result, **more)


def test_buffers_without_a_schedule():
    found = remat.layout(Buffers.of([0, 1, 2], [2, 3, 4], [100, 80, 60]), align=16)
    assert (found.arena, found.bound, found.peak, found.rounded_peak) == (180, 180, 180, 192)
    assert found.residencies is None
    assert found.fragmentation == 0  # the last 12 bytes of the highest block are not needed


@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(st.integers(0, 2**32))
def test_the_answer_does_not_depend_on_the_run(seed):
    draw = np.random.default_rng(seed)
    start = draw.integers(0, 30, 40)
    buffers = Buffers.of(start, start + draw.integers(1, 9, 40), draw.integers(1, 50, 40))
    one, other = (remat.layout(buffers, options=WORK) for _ in range(2))
    assert (one.offset == other.offset).all()
