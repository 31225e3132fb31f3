"""Instances, and schedules, from CSV schedules; and back."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pytest

import remat
from remat.bridges.pipelining.actions import csv_lines, read_csv
from remat.bridges.pipelining.exporting import export_csv
from remat.bridges.pipelining.importing import Imported, import_csv
from remat.errors import InstanceError, OptionError
from remat.instance import instance_document
from remat.solving.verifying import examine
from tests.bridges.pipelining.cases import RULES, csv_of, instance_of, named, pipeline

WHOLE: dict[str, Any] = {"F": 1, "B": 2, "saved_size": 1}
HALVES: dict[str, Any] = {"F": 1, "I": 1, "W": 1, "saved_size": 2, "weight_saved_size": 1, "output_size": 1}
UNITS = {"time": "unit", "memory": "unit"}


def imported(text: str, times: Any) -> Imported:
    return import_csv(io.BytesIO(text.encode()), times, name="x")


@pytest.mark.parametrize("rule", RULES)
def test_export_and_import_keep_figures_and_cells(rule: str) -> None:
    """Export, import, verify, export: the same figures, the same cells."""
    orders = named(rule, 4, 8)
    text = csv_of(orders)
    times = {"stages": HALVES if rule.startswith(("zb", "v-")) else WHOLE, "hop": {"delay": 1}, "units": UNITS}
    made = imported(text, times)
    assert made.notes == ()
    examined = examine(made.instance, made.schedule)
    assert examined.report.ok, examined.report.violations
    original = remat.verify(
        made.instance, {"schema": "remat.schedule/2", **orders.to_document(["gpu0", "gpu1", "gpu2", "gpu3"])}
    )
    assert examined.report.makespan == original.makespan
    assert [peak.size for peak in examined.report.peaks.values()] == [peak.size for peak in original.peaks.values()]
    assert "".join(csv_lines(export_csv(examined).rows)) == text
    assert remat.load(instance_document(made.instance)) == made.instance


def test_copies_of_the_model() -> None:
    """In two directions on three devices, the layers in the middle lie on one of them, the others on two."""
    made = imported(csv_of(named("gems", 3, 4)), {"stages": WHOLE})
    assert made.instance.copies == 2
    assert made.instance.length == 3
    assert remat.verify(made.instance, made.schedule).ok
    with pytest.raises(InstanceError, match="copies of the model are cut into 1 and 2 stages"):
        imported("0F0,0B0,1F0,1B0,2F1,2B1\n", {"stages": WHOLE})


def test_named_orders_have_published_makespans() -> None:
    """The figures of the papers: (m + p - 1)(F + B), and p - s activations under 1F1B."""
    for rule, peaks in (("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1])):
        made = imported(csv_of(named(rule, 4, 8)), {"stages": WHOLE, "units": UNITS})
        report = remat.verify(made.instance, made.schedule)
        assert report.makespan == 33
        assert [peak.size for peak in report.peaks.values()] == peaks


def test_times_become_layers_and_links() -> None:
    times = {
        "stages": [
            {"F": "1ms", "B": Decimal("2.5"), "output_size": "1MB"},
            {"F": 1, "I": 2, "W": 3, "parameter_size": 7},
        ],
        "hop": {"bandwidth": "1GB/s", "latency": "1us", "delay": "2us"},
        "units": {"time": "ms"},
    }
    made = imported("0F0,0B0\n1F0,1I0,,1W0\n", times)
    first, second = made.instance.layers
    assert (first.forward_time, first.backward_time, first.output_size) == (1, 2.5, 10**6)
    assert (second.backward_time, second.weight_time, second.parameter_size) == (2, 3, 7)
    assert made.instance.cluster.names == ["gpu0", "gpu1"]
    assert made.instance.cluster.levels[0].delay == 0.002
    assert made.schedule["orders"] == {"gpu0": ["F0.0", "B0.0"], "gpu1": ["F1.0", "B1.0", "W1.0"]}
    assert made.schedule["instance"]["name"] == "x"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({}, "times: $.stages: expected the times of the stages"),
        ({"stages": [WHOLE]}, "times: $.stages: 1 stages, and the CSV has 2"),
        ({"stages": [WHOLE, 1]}, "times: $.stages[1]: expected an object with the keys F and B"),
        ({"stages": {"F": 1}}, "times: $.stages: the time B is missing"),
        ({"stages": {"F": 1, "W": 1}}, "times: $.stages: the time I is missing"),
        ({"stages": {"B": 1}}, "times: $.stages: the time F is missing"),
        ({"stages": {"F": 1, "B": 1, "I": 1, "W": 1}}, "times: $.stages: B is the time of a whole backward"),
        ({"stages": {**WHOLE, "repeat": 3}}, "times: $.stages: unknown key 'repeat'"),
        ({"stages": {**WHOLE, "F": -1}}, "times: $.stages.F: -1 is out of range"),
        ({"stages": [WHOLE, {**WHOLE, "B": "x"}]}, "times: $.stages[1].B: 'x' is not a time"),
        ({"stages": {**HALVES, "I": "x"}}, "times: $.stages.I: 'x' is not a time"),
        ({"stages": WHOLE, "hop": 3}, "times: $.hop: expected an object"),
        ({"stages": WHOLE, "hop": {"lag": 3}}, "times: $.hop: unknown key 'lag'"),
        ({"stages": WHOLE, "hop": {"latency": -3}}, "times: $.hop.latency: -3 is out of range"),
        ({"stages": WHOLE, "units": {"time": "h"}}, "times: $.units.time: 'h' is not one of"),
        ({"stages": WHOLE, "steps": 3}, "times: $: unknown key 'steps'"),
        ({"stages": WHOLE}, "row 2, cell 2: 1I0 is half a backward, but the times of stage 1 know no halves"),
        ({"stages": HALVES | {"W": 0, "weight_saved_size": 0}}, "row 2, cell 2: 1I0 is half a backward"),
    ],
)
def test_bad_times_are_refused(times: Any, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        imported("0F0,0B0\n1F0,1I0,1W0\n", times)
    assert message in str(caught.value)


def test_several_layers_a_stage_are_one() -> None:
    instance = instance_of(pipeline(layers=[{"forward_time": 1, "backward_time": 2, "repeat": 10}]))
    examined = examine(instance, remat.solve(instance, algorithm="1f1b").to_dict())
    made = export_csv(examined)
    assert "".join(csv_lines(made.rows)) == csv_of(named("1f1b", 4, 8))
    assert read_csv(io.BytesIO("".join(csv_lines(made.rows)).encode())) == made.rows
    skewed = instance_of(pipeline(layers=[{"forward_time": time, "backward_time": 2, "repeat": 5} for time in (1, 9)]))
    (note,) = export_csv(examine(skewed, remat.solve(skewed, algorithm="1f1b").to_dict())).notes
    assert "these stages are not equal parts (stage 0 on gpu0 has 4 of them, not 3)" in note


@pytest.mark.parametrize(
    ("rule", "single", "grouped"), [("gpipe", True, True), ("1f1b", False, True), ("interleaved", False, False)]
)
def test_transfers_that_hang_are_refused(rule: str, single: bool, grouped: bool) -> None:
    made = imported(csv_of(named(rule, 4, 8)), {"stages": WHOLE})
    examined = examine(made.instance, made.schedule)
    for how, runs in (("single", single), ("grouped", grouped)):
        if runs:
            assert any("SEND_F" in str(cell) for cell in export_csv(examined, transfers=how).rows[0])  # type: ignore[arg-type]
            continue
        would_do = "none or grouped" if grouped else "none"
        with pytest.raises(OptionError, match=rf"on gpu\d waits for .* posted beforehand \({would_do} would do\)"):
            export_csv(examined, transfers=how)  # type: ignore[arg-type]


def test_what_cannot_be_exported() -> None:
    made = imported("0F0,0B0\n1F0,1B0\n", {"stages": WHOLE})
    broken = made.schedule | {"orders": {"gpu0": ["F0.0", "B0.0"], "gpu1": ["F1.0"]}}
    with pytest.raises(OptionError, match=r"breaks rules \(required-missing\)"):
        export_csv(examine(made.instance, broken))
    tree = {"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}
    with pytest.raises(OptionError, match="lists steps"):
        export_csv(examine(tree, remat.solve(tree).to_dict()))
