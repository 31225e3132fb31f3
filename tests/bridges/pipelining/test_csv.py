"""Reading and checking CSV schedules, and judging them against an instance."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest

import remat
from remat.bridges.pipelining import actions
from remat.bridges.pipelining.actions import Action, Kind, Overlap, Rows, csv_lines, read_csv
from remat.bridges.pipelining.exporting import export_csv
from remat.bridges.pipelining.layout import Layout, check_layout
from remat.bridges.pipelining.orders import even_cuts, first_uneven, orders_of, rows_of
from remat.bridges.pipelining.rendezvous import with_transfers
from remat.bridges.pipelining.verifying import examine_csv
from remat.errors import InstanceError, OptionError
from remat.generate.pipeline import uniform
from remat.schedule.orders import Orders, Pass, Phase, Stage
from remat.solving.verifying import examine
from tests.bridges.pipelining.cases import RULES, csv_of, instance_of, named, pipeline

TWO = "0F0,0F1,,0B0,0B1\n1F0,1B0,1F1,1B1\n"
SENT = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"


def read(text: str | bytes) -> Rows:
    return read_csv(io.BytesIO(text if isinstance(text, bytes) else text.encode()))


def checked(text: str) -> Layout:
    return check_layout(read(text), "x.csv")


def test_cells_are_read_as_actions() -> None:
    rows = read('0F0, 3I2 ,,1SEND_F0\r\n\n(0F1;1B0)OVERLAP_F_B,"0UNSHARD"\n,,\n\n')
    assert rows == (
        (Action(Kind.FORWARD, 0, 0), Action(Kind.INPUT, 3, 2), None, Action(Kind.SEND_F, 1, 0)),
        (),
        (Overlap(Action(Kind.FORWARD, 0, 1), Action(Kind.BACKWARD, 1, 0)), Action(Kind.UNSHARD, 0)),
    )
    assert "".join(csv_lines(rows)) == "0F0,3I2,,1SEND_F0\n\n(0F1;1B0)OVERLAP_F_B,0UNSHARD\n"
    assert read(gzip.compress(TWO.encode())) == read(TWO)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row has an operation"),
        (",,\n,\n", "no row has an operation"),
        ("0F0\n1F0,x\n", "row 2, cell 2: 'x' is not an action such as 0F0"),
        ("0F0,,,,0X0\n", "row 1, cell 5: '0X0' is not an action"),
        ("0F\n", "row 1, cell 1: '0F': the micro-batch is missing"),
        ("0UNSHARD0\n", "'0UNSHARD0': UNSHARD is of a stage"),
        ("00F0\n", "'00F0' is not an action"),
        ("-1F0\n", "'-1F0' is not an action"),
        ("99999999F0\n", "'99999999F0' is not an action"),
        ("0F99999999\n", "'0F99999999' is not an action"),
        ("\N{ARABIC-INDIC DIGIT ONE}F0\n", "is not an action"),
        ("(0F1)OVERLAP_F_B\n", "is not an action"),
        ("(0F1;0SEND_F0)OVERLAP_F_B\n", "only a forward and a backward can overlap"),
        ("(0F1;(0F1;1B0)OVERLAP_F_B)OVERLAP_F_B\n", "is not an action"),
        ("0F0\n" * 257, "row 257: a cluster has at most 256 devices"),
        ('"' + "0" * 200_000 + '"\n', "malformed CSV: field larger than field limit"),
        (b"\xff\xfe", "not UTF-8"),
        (gzip.compress(TWO.encode(), mtime=0)[:20], "damaged gzip file"),
    ],
)
def test_what_is_no_schedule(text: str | bytes, message: str) -> None:
    with pytest.raises(InstanceError, match=r"^[^\n]*$") as caught:
        read(text)
    assert message in str(caught.value)


def test_reading_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MOST_CELLS", 100)
    with pytest.raises(InstanceError, match="more than 100 cells"):
        read("," * 100)
    monkeypatch.setattr(actions, "LARGEST_FILE", 2**20)
    with pytest.raises(InstanceError, match="more than 1 MiB"):
        read(gzip.compress(b"," * 2**21))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,1B0,0F1,0B1\n1F1,1B1\n", "row 2, cell 3: 0F1: stage 0 is in row 1, too"),
        ("0F0,0F0,0B0\n", "row 1, cell 2: 0F0 is there already, in cell 1"),
        ("0F0,0B0,0B0\n", "row 1, cell 3: 0B0 is there already, in cell 2"),
        ("0F0,0B0,0W0,0I0\n", "row 1, cell 2: 0B0 is a whole backward, but the CSV also has 0I0 or 0W0"),
        ("0F0,0I0\n", "row 1, cell 2: 0I0 is half a backward without 0W0"),
        ("0F0,0W0\n", "row 1, cell 1: 0F0 has no backward: 0B0, or 0I0 and 0W0"),
        ("0F0\n", "row 1, cell 1: 0F0 has no backward"),
        ("0B0\n", "row 1, cell 1: 0B0 has no forward, 0F0"),
        ("0F0,0B0\n2F0,2B0\n", "stage 1 has no operations, but stage 2 has"),
        ("0F0,0B0,9999999UNSHARD\n", "stage 1 has no operations, but stage 9999999 has"),
        ("0F0,0B0,1UNSHARD\n", "stage 1 has no operations"),
        ("0F0,0B0,0F9999999,0B9999999\n", "micro-batch 1 has no operations, but micro-batch 9999999 has"),
        ("0F0,0B0,0F1,0B1\n1F0,1B0\n", "row 2: 1F1 is missing; stage 0 runs micro-batch 1"),
        ("0F0,0B0\n1F0,1B0,1F1,1B1\n", "row 1: 0F1 is missing; stage 1 runs micro-batch 1"),
        ("0F0,0B0\n1F1,1B1\n2F0,2B0\n", "stage 2 runs the micro-batches of stage 0, and does not follow it"),
        (SENT.replace(",0SEND_F1", ""), "row 1, cell 3: 0F1 needs 0SEND_F1, which is missing; others are listed"),
        (SENT.replace("1RECV_F1,1F1", "1F1,1RECV_F1"), "row 2, cell 6: 1RECV_F1 belongs before 1F1"),
        (SENT.replace("0F1,0SEND_F1", "0SEND_F1,0F1"), "row 1, cell 3: 0SEND_F1 belongs after 0F1"),
        (SENT.replace("0B1", "0B1,0RECV_F0"), "row 1, cell 9: 0RECV_F0: stage 0 is the first one"),
        (SENT.replace("1B1", "1B1,1SEND_F0"), "1SEND_F0: stage 1 is the last one"),
        (SENT.replace("0B1", "0B1,0SEND_F7"), "0SEND_F7: stage 0 does not run micro-batch 7"),
        (SENT.replace("0B1", "0B1,0SEND_F1"), "0SEND_F1 is there already, in cell 4"),
        ("0F0,1F0,1B0,0B0,0SEND_F0\n", "stages 0 and 1 are in the same row, so no transfer is needed"),
    ],
)
def test_what_does_not_fit_together(text: str, message: str) -> None:
    with pytest.raises(InstanceError) as caught:
        checked(text)
    assert str(caught.value).startswith("x.csv: ")
    assert message in str(caught.value)


def test_layers_are_cut_evenly() -> None:
    assert even_cuts(10, 4) == [0, 3, 6, 8, 10]
    instance = instance_of(pipeline(micro_batches=2, layers=[{"forward_time": 1, "backward_time": 1, "repeat": 5}]))
    orders = orders_of(checked(TWO), instance, 4)
    assert [stage.layers for stage in orders.stages] == [(0, 1, 2), (3, 4)]
    assert [stage.device for stage in orders.stages] == [0, 1]
    assert orders.lists[1:] == (
        (Pass(Phase.F, 1, 0), Pass(Phase.B, 1, 0), Pass(Phase.F, 1, 1), Pass(Phase.B, 1, 1)),
        (),
        (),
    )
    assert first_uneven(orders) is None
    moved = Orders((Stage((0, 1), 0), Stage((2, 3, 4), 1)), orders.lists)
    uneven = first_uneven(moved)
    assert uneven is not None
    assert (uneven.stage, uneven.has, uneven.even) == (0, 2, 3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "the CSV runs 2 micro-batches, and the instance has 8"),
        ({"micro_batches": 2, "cluster": {"devices": [{"name": "gpu"}]}}, "2 rows, one a device, and the instance 1"),
        ({"micro_batches": 2, "layers": [{"forward_time": 1, "backward_time": 1}]}, "2 stages one after the other"),
    ],
)
def test_what_does_not_suit_the_instance(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InstanceError, match=message):
        orders_of(checked(TWO), instance_of(pipeline(**changes)), len(instance_of(pipeline(**changes)).cluster.names))


def test_orders_that_no_csv_says() -> None:
    lists = ((Pass(Phase.F, 0, 0), Pass(Phase.B, 0, 0)), (Pass(Phase.F, 1, 0), Pass(Phase.B, 1, 0)))
    with pytest.raises(OptionError, match="stages 0, 1, which micro-batch 0 passes"):
        rows_of(Orders((Stage((0, 2), 0), Stage((1,), 1)), lists))
    shuffled = rows_of(Orders((Stage((2,), 0), Stage((0, 1), 1)), lists))
    assert [str(cells[0]) for cells in shuffled] == ["1F0", "0F0"]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("transfers", [False, True])
def test_named_orders_survive_a_round_trip(rule: str, transfers: bool) -> None:
    """A named order has the same makespan and peaks after export to CSV and import."""
    orders = named(rule, 4, 8)
    halves = rule.startswith(("zb", "v-"))
    layer = {"forward_time": 2, "backward_time": 3, "saved_size": 4, "output_size": 1, "parameter_size": 2}
    if halves:
        layer |= {"weight_time": 2, "weight_saved_size": 2}
    depth = 1 + max(layer for stage in orders.stages for layer in stage.layers)
    instance = instance_of(pipeline(layers=[layer | {"repeat": depth}], copies=2 if rule in ("chimera", "gems") else 1))
    devices = instance.cluster.names
    document = {"schema": "remat.schedule/2", **orders.to_document(devices)}
    rows = rows_of(orders)
    if transfers:
        rows = with_transfers(check_layout(rows), grouped=True).rows
    text = "".join(csv_lines(rows))
    before = remat.verify(instance, document)
    found = examine_csv(instance, io.BytesIO(text.encode()))
    assert before.ok
    if transfers and rule in ("interleaved", "zb-v", "v-half"):
        assert [violation.rule for violation in found.report.violations] == ["deadlock"]
        return
    assert found.report.ok, found.report.violations
    assert found.report.makespan == before.makespan
    assert {name: peak.size for name, peak in found.report.peaks.items()} == {
        name: peak.size for name, peak in before.peaks.items()
    }


def test_whole_backwards_of_layers_in_halves() -> None:
    layer = {"forward_time": 1, "backward_time": 1, "weight_time": 1, "repeat": 4}
    instance = instance_of(pipeline(layers=[layer]))
    found = examine_csv(instance, io.BytesIO(csv_of(named("1f1b", 4, 8)).encode()))
    assert found.report.ok
    assert found.orders is not None
    assert {one.phase for listed in found.orders.lists for one in listed} == {Phase.F, Phase.BW}
    plain = instance_of(pipeline())
    halved = examine_csv(plain, io.BytesIO(csv_of(named("zb-h1", 4, 8)).encode()))
    assert {violation.rule for violation in halved.report.violations} == {"bad-step"}


def test_two_operations_at_once_are_read_one_after_the_other() -> None:
    text = TWO.replace("1B0,1F1", "(1F1;1B0)OVERLAP_F_B")
    found = examine_csv(instance_of(pipeline(micro_batches=2)), io.BytesIO(text.encode()))
    assert found.report.ok
    assert any("1 cell of two operations at once" in note for note in found.report.notes)


def test_deadlock_of_transfers_is_told() -> None:
    instance = instance_of(pipeline(micro_batches=2))
    assert examine_csv(instance, io.BytesIO(SENT.encode())).report.ok
    alone = SENT.replace("0SEND_F1,0RECV_B0", "0SEND_F1,,0RECV_B0").replace("1SEND_B0,1RECV_F1", "1SEND_B0,,1RECV_F1")
    (violation,) = examine_csv(instance, io.BytesIO(alone.encode())).report.violations
    assert violation.rule == "deadlock"
    assert "0SEND_F1 on gpu0 waits for 1SEND_B0 on gpu1 waits for 0SEND_F1 on gpu0" in violation.message


def test_deadlock_of_the_order_is_told() -> None:
    text = TWO.replace("0F0,0F1,,0B0,0B1", "0F0,0B0,0B1,0F1")
    (violation,) = examine_csv(instance_of(pipeline(micro_batches=2)), io.BytesIO(text.encode())).report.violations
    assert violation.rule == "deadlock"
    assert "waits for" in violation.message
    with pytest.raises(InstanceError, match="CSV schedules are for pipelines"):
        examine_csv(remat.load({"schema": "remat.instance/1", "kind": "tree", "parent": [-1], "output_size": [1]}), "x")


def test_skip_connections_have_no_transfers_in_a_csv() -> None:
    document = uniform(skips=True)
    result = remat.solve(document, algorithm="1f1b")
    examined = examine(document, result.to_dict())
    assert export_csv(examined).rows
    with pytest.raises(remat.OptionError, match="neighbouring stages only"):
        export_csv(examined, transfers="grouped")
