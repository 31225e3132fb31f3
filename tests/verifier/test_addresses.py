"""Test addresses in schedule documents: written ones are valid, and each corruption is detected."""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.errors import InstanceError, OptionError
from remat.solving.verifying import examine
from remat.testing import strategies
from remat.verifier.residencies import residencies_of
from tests.oracles import layouts

SEEDS = st.integers(0, 2**32)
HOST = {
    "memories": [{"name": "gpu"}, {"name": "host"}],
    "processors": [{"name": "p", "memory": "gpu"}],
    "links": [{"source": one, "target": other, "bandwidth": 8} for one, other in (("gpu", "host"), ("host", "gpu"))],
}


def chain(**more):
    stage = {"forward_time": 1, "backward_time": 2, "output_size": 4, "saved_size": 9, "forward_workspace": 3}
    return {"schema": "remat.instance/1", "kind": "chain", "input_size": 4, "stages": [stage] * 5} | more


def laid_out(instance, *, memories=(None,), algorithm="keep-all", budget=None, **options):
    result = remat.solve(instance, algorithm=algorithm, budget=budget)
    for memory in memories:
        result = result.with_addresses(remat.layout(result, memory=memory, **options))
    return result


def rules(instance, document):
    return {violation.rule for violation in remat.verify(instance, document).violations}


def test_a_schedule_keeps_its_addresses(tmp_path):
    result = laid_out(chain(), align=16)
    result.save(tmp_path / "schedule.json.gz")
    report = remat.verify(chain(), tmp_path / "schedule.json.gz")
    assert report.ok
    assert report.arenas == {"memory": result.addresses.arenas[0].size}
    document = result.to_dict()
    assert document["schema"] == "remat.schedule/2"
    assert document["arenas"] == [{"memory": "memory", "size": report.arenas["memory"], "alignment": 16}]
    assert {row["offset"] % 16 for row in document["addresses"]} == {0}
    assert sum("workspace" in row for row in document["addresses"]) == 5


def test_without_addresses_the_schema_is_the_first_one():
    result = remat.solve(chain(), algorithm="keep-all")
    document = result.to_dict()
    assert document["schema"] == "remat.schedule/1"
    assert "addresses" not in document
    assert remat.verify(chain(), document).arenas == {}


def test_the_first_schema_has_no_addresses():
    document = laid_out(chain()).to_dict() | {"schema": "remat.schedule/1"}
    with pytest.raises(InstanceError, match="unknown key 'addresses'"):
        remat.verify(chain(), document)


def test_memories_are_laid_out_one_by_one():
    instance = chain(machine=HOST)
    result = laid_out(instance, memories=("gpu", "host", "gpu"), algorithm="pofo", budget="45B")
    report = remat.verify(instance, result.to_dict())
    assert report.ok
    assert report.arenas == result.peak_memory
    only = remat.solve(instance, algorithm="pofo", budget="45B")
    only = only.with_addresses(remat.layout(only, memory="host"))
    assert set(remat.verify(instance, only.to_dict()).arenas) == {"host"}


def test_static_bytes_occupy_the_beginning():
    instance = chain(static_memory=100)
    document = laid_out(instance).to_dict()
    assert min(row["offset"] for row in document["addresses"]) == 100
    assert rules(instance, document) == set()
    document["addresses"][0]["offset"] = 0
    assert "address-range" in rules(instance, document)


def corruptions(document, draw):
    """Yield copies with one corruption that is wrong in any layout, each with the rules that it may break."""

    def changed(change):
        spoilt = copy.deepcopy(document)
        change(spoilt, draw.choice(spoilt["addresses"]))
        return spoilt

    known = {"address-missing", "address-unknown", "address-range", "address-overlap", None}
    yield changed(lambda whole, row: whole["addresses"].remove(row)), {"address-missing"}
    yield changed(lambda whole, row: whole["addresses"].append(dict(row))), {"address-unknown"}
    yield changed(lambda whole, row: row.update(size=row["size"] + draw.choice((-1, 1)))), {"address-range"}
    yield changed(lambda whole, row: row.update(offset=whole["arenas"][0]["size"])), {"address-range"}
    yield changed(lambda whole, row: row.update(first=row.get("first", -1) + 1)), known
    yield changed(lambda whole, row: row.pop("last", None) is None and row.update(last=0)), known
    yield changed(lambda whole, row: row.update(value="no such value")), {None}
    yield changed(lambda whole, row: row.update(memory="tape")), {None}
    yield changed(lambda whole, row: row.pop("offset")), {None}
    yield changed(lambda whole, row: whole["arenas"][0].update(size=whole["arenas"][0]["size"] - 1)), {"address-range"}
    yield changed(lambda whole, row: whole["arenas"].clear()), {None}
    yield (
        changed(lambda whole, row: whole["arenas"][0].update(reserved=[[row["offset"], row["offset"] + 1]])),
        {"address-range"},
    )
    name = next((row["value"] for row in document["addresses"] if "value" in row), None)
    if name is not None:
        at = next(row["offset"] for row in document["addresses"] if row.get("value") == name)
        yield changed(lambda whole, row: whole["arenas"][0].update(fixed={name: at + 1})), {"address-range"}


def found(instance, document):
    try:
        return rules(instance, document)
    except InstanceError:
        return {None}


def drawn(document):
    try:
        return laid_out(document)
    except OptionError:  # an input is in a memory that the algorithm does not use; or no buffer exists
        return None


@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(strategies.dags(largest=7, exact=True) | strategies.chains(largest=4, exact=True), SEEDS)
def test_each_single_corruption_is_caught(instance, seed):
    result = drawn(instance)
    if result is None or not len(result.addresses.offset):
        return
    document = result.to_dict()
    assert rules(instance, document) == set()
    for spoilt, allowed in corruptions(document, random.Random(seed)):
        broken = found(instance, spoilt)
        assert broken
        assert broken & allowed


@settings(max_examples=20, derandomize=True, database=None, deadline=None)
@given(strategies.dags(largest=7, exact=True) | strategies.chains(largest=4, exact=True), SEEDS)
def test_a_moved_residency_is_judged_as_by_the_oracle(instance, seed):
    result = drawn(instance)
    if result is None or not len(result.addresses.offset):
        return
    held = residencies_of(result.graph, result.machine, result.columns)
    held = held.at(held.of_memory(0))
    if len(held.hosts) or result.graph.static_bytes(result.machine, 0):
        return
    document, draw = result.to_dict(), random.Random(seed)
    row = draw.randrange(len(held))
    document["addresses"][row]["offset"] = draw.randrange(document["arenas"][0]["size"] + 1)
    offset = [one["offset"] for one in document["addresses"]]
    wrong = layouts.problems(
        held.first.tolist(), held.last.tolist(), held.size.tolist(), offset, 1, document["arenas"][0]["size"]
    )
    assert bool(rules(instance, document)) == bool(wrong)


def in_place(size):
    tasks = [
        {"id": "A", "time": 1, "reads": [], "writes": ["a"]},
        {"id": "B", "time": 1, "reads": ["a"], "writes": ["b"], "in_place": True},
        {"id": "C", "time": 1, "reads": ["b"], "writes": ["c"], "required": True},
    ]
    values = [{"id": name, "size": held} for name, held in (("a", 8), ("b", size), ("c", 1))]
    return {"schema": "remat.instance/1", "kind": "dag", "tasks": tasks, "values": values}


def test_an_output_in_place_overlaps_its_input_and_nothing_else():
    instance = in_place(5)
    document = laid_out(instance).to_dict()
    row = {one["value"]: one for one in document["addresses"]}
    assert row["a"]["offset"] == row["b"]["offset"]
    assert rules(instance, document) == set()
    row["b"]["offset"], row["c"]["offset"] = 3, 0  # anywhere in the input
    assert rules(instance, document) == set()
    row["c"]["offset"] = row["b"]["offset"]
    assert rules(instance, document) == {"address-overlap"}
    # The same addresses without the permission.
    del instance["tasks"][1]["in_place"]
    row["c"]["offset"] = 0
    document["instance"].pop("digest")
    assert "address-overlap" in rules(instance, document)


def test_a_wider_output_over_two_inputs_is_bounded_by_the_peak():
    """The solver chooses the input that hosts the output, so no bound depends on it."""
    instance = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [
            {"id": "A", "time": 1, "reads": [], "writes": ["a", "b"]},
            {"id": "B", "time": 1, "reads": ["a", "b"], "writes": ["c"], "in_place": True, "required": True},
        ],
        "values": [{"id": "a", "size": 4}, {"id": "b", "size": 4}, {"id": "c", "size": 8}],
    }
    result = remat.solve(instance, algorithm="keep-all")
    layout = remat.layout(result)
    assert result.peak_memory["memory"] == layout.bound == 8
    assert layout.arena >= 8
    assert remat.layout(result, capacity=8).infeasible_within is None
    document = result.with_addresses(layout).to_dict()
    for row, offset in zip(document["addresses"], (0, 4, 0), strict=True):
        row["offset"] = offset
    assert rules(instance, document) == set()


def test_addresses_of_a_schedule_that_breaks_other_rules_are_not_judged():
    document = laid_out(chain()).to_dict()
    document["addresses"][0]["offset"] += 1
    document["steps"][0]["drop"] = ["x1"]
    report = remat.verify(chain(), document)
    assert not any(violation.rule.startswith("address") for violation in report.violations)
    assert any("addresses are checked once" in note for note in report.notes)


def test_an_arena_that_is_larger_than_needed_is_remarked():
    document = laid_out(chain()).to_dict()
    document["arenas"][0]["size"] += 5
    report = remat.verify(chain(), document)
    assert report.ok
    assert any("states an arena of" in note for note in report.notes)


def test_an_arena_above_the_capacity():
    result = remat.solve(chain(), algorithm="keep-all", budget="1000B")
    result = result.with_addresses(remat.layout(result, fixed={"x0": 996}))
    assert remat.verify(chain(), result.to_dict()).arenas == {"memory": 1000}
    document = result.to_dict()
    document["machine"]["memories"][0]["capacity"] = 999
    assert rules(chain(), document) == {"address-range"}
    tight = remat.solve(chain(), algorithm="keep-all", budget="999B")
    with pytest.raises(OptionError, match="takes 1000 bytes of memory, and its capacity is 999"):
        tight.with_addresses(remat.layout(tight, fixed={"x0": 996}))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("arenas", 0, "alignment"), 3, r"\$\.arenas\[0\]\.alignment: 3 is not a power of two"),
        (("arenas", 0, "size"), "8", r"\$\.arenas\[0\]\.size: expected a whole number"),
        (("arenas", 0, "reserved"), [[4, 4]], r"not a range \[from, to\]"),
        (("arenas", 0, "memory"), "tape", "unknown memory 'tape'"),
        (("arenas", 0, "colour"), 1, "unknown key 'colour'"),
        (("addresses", 0, "last"), 99, r"\$\.addresses\[0\]\.last: expected the index of one of"),
        (("addresses", 0, "offset"), -1, r"\$\.addresses\[0\]\.offset: expected a whole number"),
        (("addresses", 0, "workspace"), "F1", "one of the keys value and workspace"),
        (("addresses", 0, "hue"), 1, "unknown key 'hue'"),
        (("addresses",), {}, r"\$\.addresses: expected a list"),
        (("arenas",), None, r"\$\.arenas: expected a list"),
    ],
)
def test_malformed_addresses_are_named(path, value, message):
    document = laid_out(chain()).to_dict()
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InstanceError, match=message):
        remat.verify(chain(), document)


def test_an_address_whose_end_is_beyond_the_largest_integer():
    instance = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "tasks": [{"id": "A", "time": 1, "reads": [], "writes": ["a"], "required": True}],
        "values": [{"id": "a", "size": 2**62}],
    }
    document = laid_out(instance).to_dict()
    assert rules(instance, document) == set()
    document["addresses"][0]["offset"] = 2**62
    assert rules(instance, document) == {"address-range"}


def moved_in_parts():
    """A value that leaves in two parts and returns in two, beside an output in place; laid out in both memories."""
    instance = {
        "schema": "remat.instance/1",
        "kind": "dag",
        "machine": HOST,
        "tasks": [
            {"id": "A", "time": 1, "reads": [], "writes": ["a"]},
            {"id": "B", "time": 4, "reads": [], "writes": ["b"]},
            {"id": "C", "time": 1, "reads": ["a", "b"], "writes": ["c"], "in_place": True},
            {"id": "D", "time": 1, "reads": ["a", "c"], "writes": ["d"], "workspace": 3, "required": True},
        ],
        "values": [{"id": name, "size": size} for name, size in (("a", 8), ("b", 4), ("c", 2), ("d", 1))],
    }
    moves = (("gpu", "host"), ("host", "gpu"))
    away, back = ({"copy": "a", "from": one, "to": other, "bytes": 4, "drop": True} for one, other in moves)
    last = {"run": "D", "drop": ["a", "c"]}
    steps = [{"run": "A"}, away, away, {"run": "B"}, back, back, {"run": "C", "drop": ["b"]}, last]
    examined = examine(instance, steps)
    assert examined.report.ok
    for memory in ("gpu", "host"):
        examined = examined.with_addresses(remat.layout(examined, memory=memory))
    document = examined.as_result().to_dict()
    assert rules(instance, document) == set()
    return instance, document


def row_of(document, value, memory="gpu", place=0):
    return [row for row in document["addresses"] if row.get("value") == value and row["memory"] == memory][place]


def test_a_value_moved_in_parts_keeps_one_range():
    _, document = moved_in_parts()
    rows = [row for row in document["addresses"] if row.get("value") == "a"]
    assert sorted(row["memory"] for row in rows) == ["gpu", "gpu", "host"]
    assert {row["size"] for row in rows} == {8}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        # A residency that is shortened or prolonged by a step.
        (lambda d: row_of(d, "a").update(last=row_of(d, "a")["last"] - 1), {"address-unknown", "address-missing"}),
        (lambda d: row_of(d, "a").update(last=row_of(d, "a")["last"] + 1), {"address-unknown", "address-missing"}),
        (lambda d: row_of(d, "b").update(first=row_of(d, "b")["first"] + 1), {"address-unknown", "address-missing"}),
        # A second range for the other half, at the same place and beyond; the first one cut to its half.
        (lambda d: d["addresses"].append(row_of(d, "a", "host") | {"size": 4}), {"address-unknown"}),
        (lambda d: d["addresses"].append(row_of(d, "a", "host") | {"offset": 8}), {"address-unknown"}),
        (lambda d: row_of(d, "a", "host").update(size=4), {"address-range"}),
        # A residency under the name of another memory, or of another value.
        (lambda d: row_of(d, "a").update(memory="host"), {"address-unknown", "address-missing"}),
        (lambda d: row_of(d, "a", "host").update(memory="gpu"), {"address-unknown", "address-missing"}),
        (lambda d: row_of(d, "b").update(value="c"), {"address-unknown", "address-missing"}),
        # Beyond the arena, and beyond the capacity, of the other memory.
        (lambda d: row_of(d, "a", "host").update(offset=1), {"address-range"}),
        (lambda d: (row_of(d, "a", "host").update(offset=5), d["arenas"][1].update(size=13)), {"address-range"}),
        # The output of C in place over an input that C does not free.
        (lambda d: row_of(d, "c").update(offset=row_of(d, "a", place=1)["offset"]), {"address-overlap"}),
        # A workspace over what its run reads, and over what it writes.
        (lambda d: workspace(d).update(offset=row_of(d, "a", place=1)["offset"]), {"address-overlap"}),
        (lambda d: row_of(d, "d").update(offset=workspace(d)["offset"]), {"address-overlap"}),
        (lambda d: workspace(d).update(workspace="C"), {"address-unknown", "address-missing"}),
        # The memory is not laid out, with and without its rows.
        (lambda d: d["arenas"].pop(), {None}),
        (lambda d: d["addresses"].clear(), {"address-missing"}),
    ],
)
def test_further_corruptions_are_caught(change, expected):
    instance, document = moved_in_parts()
    document["machine"]["memories"][1]["capacity"] = 12
    change(document)
    assert found(instance, document) == expected


def workspace(document):
    return next(row for row in document["addresses"] if "workspace" in row)


@pytest.mark.parametrize("key", ["offset", "size", "first", "last"])
@pytest.mark.parametrize(
    "value", [-1, 2**62 + 1, 2**64, 10**40, True, False, 1.0, 0.5, float("nan"), float("inf"), "0", None, [], {}]
)
def test_numbers_of_addresses_are_whole(key, value):
    instance, document = moved_in_parts()
    row_of(document, "b")[key] = value
    with pytest.raises(InstanceError, match=rf"\$\.addresses\[\d+\]\.{key}: expected ") as caught:
        remat.verify(instance, document)
    assert len(str(caught.value)) <= 300
