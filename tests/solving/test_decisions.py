"""Decisions agree with the steps of the schedule, counted again here."""

import random
import re
from collections import Counter, defaultdict

import networkx
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.solving.decisions.groups import groups_of
from remat.testing import strategies
from tests.instance import documents
from tests.oracles import deciding
from tests.seeds import examples

HOST = remat.device(None, link=3)
CHAIN = remat.chain(
    forward_time=[3, 1, 2, 4], backward_time=2, output_size=[40, 30, 20, 10], saved_size=5, input_size=20
)


def counted(result):
    """Runs of each value's makers, the tasks that read it, and its copies, by names alone."""
    runs, readers, copies, makers = Counter(), defaultdict(list), Counter(), result.graph
    for step in result.steps:
        if hasattr(step, "task"):
            task = makers.tasks.find(step.task)
            for value in makers.writes[task].tolist():
                runs[makers.values[value]] += 1
            for value in makers.reads[task].tolist():
                if step.task not in readers[makers.values[value]]:
                    readers[makers.values[value]].append(step.task)
        elif hasattr(step, "value"):
            copies[step.value] += 1
    return runs, readers, copies


def check(result):
    runs, readers, copies = counted(result)
    again, moved = deciding.timed(result)
    assert [row.value for row in result.decisions] == list(result.graph.values)
    for row in result.decisions:
        assert row.runs == runs[row.value]
        assert list(row.readers) == readers[row.value]
        assert (row.decision == "recomputed") == (row.runs > 1)
        if row.offloaded:
            assert all(0 <= stay.start <= stay.end <= result.report.makespan for stay in row.offloaded)
        assert not row.transfer_time or copies[row.value]
        assert [(run.task, run.start, run.end) for run in row.recomputations] == again[row.value]
        assert [(one.source, one.target, one.start, one.end) for one in row.transfers] == moved[row.value]
        assert all(0 < one.size <= max(row.size, 1) for one in row.transfers if row.size)
        assert row.recompute_time == pytest.approx(sum(end - start for _, start, end in again[row.value]))
        assert row.transfer_time == pytest.approx(sum(end - start for *_, start, end in moved[row.value]))
    assert len(result.order) == sum(hasattr(step, "task") for step in result.steps)


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(strategies.chains())
def test_decisions_of_chains_match_their_steps(instance):
    plain = remat.solve(instance, algorithm="keep-all")
    check(plain)
    less = remat.solve(instance, algorithm="rotor", budget=max(plain.peak_memory.values()) * 3 // 4)
    if less.columns is not None:
        check(less)


def test_recomputed_stages_are_named():
    loop = remat.adjoint(8, storage=[{"name": "ram", "slots": 2}])
    result = remat.solve(loop, algorithm="revolve")
    check(result)
    assert result.decisions.of("recomputed")
    assert sum(row.runs for row in result.decisions if row.decision == "recomputed") > 8


def test_what_waits_in_the_host_is_offloaded():
    result = remat.solve(CHAIN, algorithm="offload-greedy", machine=HOST, budget={"device": 150})
    check(result)
    waiting = [row for row in result.decisions if row.decision == "offloaded"]
    assert waiting
    assert {stay.memory for row in waiting for stay in row.offloaded} == {"host"}
    assert all(row.transfer_time > 0 for row in waiting)
    plain = remat.solve(CHAIN, algorithm="keep-all")
    assert not plain.decisions.of("offloaded") + plain.decisions.of("recomputed")


def test_without_a_schedule_there_is_nothing():
    result = remat.solve(CHAIN, budget=1)
    assert (len(result.decisions), result.order) == (0, ())
    assert {len(column) for column in result.timeline().values()} == {0}


def test_what_is_not_there_is_named():
    none, found = remat.solve(CHAIN, budget=1), remat.solve(CHAIN, algorithm="keep-all")
    assert not none.decisions
    with pytest.raises(KeyError, match="there is no schedule"):
        none.decisions["x1"]
    for rows in (none.decisions, none.stage_decisions):
        with pytest.raises(IndexError, match="there is no schedule"):
            rows[0]
    with pytest.raises(KeyError, match=r"there is no value 'x11'; did you mean 'x1'\?"):
        found.decisions["x11"]
    with pytest.raises(IndexError):
        found.decisions[99]
    assert found.decisions[np.int64(1)] == found.decisions[1]
    with pytest.raises(remat.OptionError, match="memory: unknown memory 'hots'"):
        found.peak_of("hots")


def test_the_timeline_and_the_graph_have_the_verified_times():
    result = remat.solve(CHAIN, algorithm="offload-greedy", machine=HOST, budget={"device": 150})
    steps = result.timeline()
    assert np.array_equal(steps["end"], result.report.end)
    runs = steps["kind"] == "run"
    assert tuple(steps["name"][runs]) == result.order
    assert set(steps["on"][runs]) == {"gpu"}
    assert set(steps["target"][steps["kind"] == "copy"]) == {"host", "device"}
    graph = result.to_networkx()
    for name, start in zip(steps["name"][runs], steps["start"][runs], strict=True):
        assert start in graph.nodes[name]["start"]
    assert all(graph.nodes[one]["end"][0] <= graph.nodes[two]["start"][-1] for one, two in graph.edges if
               graph.nodes[one]["end"] and graph.nodes[two]["start"])  # fmt: skip


def test_a_misspelt_decision_is_refused():
    decisions = remat.solve(CHAIN, algorithm="keep-all").decisions
    with pytest.raises(remat.OptionError, match="decision: 'recompute' is not a decision; did you mean 'recomputed'"):
        decisions.of("recompute")


def test_rows_are_found_by_value_and_as_records():
    pytest.importorskip("pandas")
    decisions = remat.solve(CHAIN, algorithm="keep-all").decisions
    assert decisions["x1"].value == "x1" == decisions[1].value
    assert [row["value"] for row in decisions.to_dicts()] == list(decisions.to_frame()["value"])


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(strategies.chains())
def test_stages_of_chains(instance):
    whole = remat.solve(instance, algorithm="keep-all")
    for result in (whole, remat.solve(instance, algorithm="rotor", budget=max(whole.peak_memory.values()) * 3 // 4)):
        if result.columns is None:
            assert len(result.stage_decisions) == 0
            continue
        forwards = [name for name in result.order if name.startswith("F")]
        own = defaultdict(list)
        for name in forwards:
            own[int(name.strip("Fe").partition(".")[0]) - 1].append(name)
        rows = {row.stage: row for row in result.stage_decisions}
        assert {stage: row.runs for stage, row in rows.items()} == {stage: len(names) for stage, names in own.items()}
        for stage, row in rows.items():
            assert (row.decision == "recomputed") == (len(own[stage]) > 1) == (row.recomputed == (stage,))
            assert row.variant == (int(own[stage][-1].partition(".")[2]) - 1 if "." in own[stage][-1] else None)
        steps = result.timeline()
        times = defaultdict(list)
        for name, start, end in zip(steps["name"], steps["start"], steps["end"], strict=True):
            if name.startswith("F"):
                times[int(name.strip("Fe").partition(".")[0]) - 1].append(end - start)
        for stage, row in rows.items():
            assert row.recompute_time == pytest.approx(sum(times[stage][:-1]))


def test_stages_and_micro_batches_of_pipelines():
    layers = [
        {"name": f"layer{k}", "forward_time": 2, "backward_time": 4, "output_size": 1, "saved_size": 4}
        for k in range(4)
    ]
    document = {
        "schema": "remat.instance/3", "kind": "pipeline", "layers": layers, "micro_batches": 3,
        "cluster": {"devices": [{"name": "gpu", "count": 2, "memory": 40}], "levels": [{"bandwidth": 10}]},
    }  # fmt: skip
    for budget, again in ((None, 0), (18, 1)):
        result = remat.solve(document, algorithm="pipe-plan", budget=budget, options={"moves": 100})
        rows = result.stage_decisions
        assert sorted((row.layers, row.micro_batch) for row in rows) == sorted(
            (stage.layers, batch) for stage in result.orders.stages for batch in range(3)
        )
        assert {row.device for row in rows} == {"gpu0", "gpu1"}
        assert rows[0].name.startswith("layer0")
        assert sum(row.recompute_time for row in rows) == result.report.recompute_time
        assert any(row.decision == "recomputed" for row in rows) == bool(again)
        for row in rows:
            segments = result.orders.stages[row.stage].recompute
            mine = [one.layers for one in segments if one.batches is None or row.micro_batch in one.batches]
            assert set(row.recomputed) == {layer for own in mine for layer in own}


@examples(4, 15, st.data(), phases=[Phase.explicit, Phase.generate])
def test_stages_of_joins(data):
    """A join has a row for each stage of each chain, with the runs and times of its forwards."""
    join = remat.load(data.draw(documents.joins()))
    whole = remat.solve(join, algorithm="keep-all")
    most = max(whole.peak_memory.values(), default=10)
    for result in (whole, remat.solve(join, budget=most * 4 // 5, algorithm="join-dp")):
        if result.columns is None:
            assert len(result.stage_decisions) == 0
            continue
        rows = {(row.chain, row.stage): row for row in result.stage_decisions}
        assert list(rows) == [(j, i) for j, chain in enumerate(join.chains) for i in range(chain.length)]
        steps, times = result.timeline(), defaultdict(list)
        for name, start, end in zip(steps["name"], steps["start"], steps["end"], strict=True):
            if name.startswith("F"):
                chain, stage = (int(number) - 1 for number in name.strip("Fe").split(".")[:2])
                times[chain, stage].append(end - start)
        assert {place: row.runs for place, row in rows.items()} == {place: len(own) for place, own in times.items()}
        for place, row in rows.items():
            assert row.recompute_time == pytest.approx(sum(times[place][:-1]))
            assert row.layers == (row.stage,)
            own = re.compile(rf"Fe?{place[0] + 1}\.{place[1] + 1}(\.\d+)?")
            last = [name for name in result.order if own.fullmatch(name)][-1]
            assert row.variant == (int(last.split(".")[2]) - 1 if last.count(".") == 2 else None)


def test_other_kinds_have_no_stages():
    tree = remat.solve(remat.tree([-1, 0, 0], output_size=1), algorithm="liu")
    assert len(tree.stage_decisions) == 0
    assert repr(tree.stage_decisions) == "StageDecisions()"


def test_decisions_are_found_by_the_nodes_of_a_graph():
    graph = networkx.DiGraph([(("load", 0), ("use", 1))])
    result = remat.solve(remat.dag(graph, time=1, size=2, outputs=[("use", 1)]))
    assert result.decisions[("load", 0)] == result.decisions["('load', 0)"] == result.decisions[0]


def test_transfers_say_how_much_of_a_value_moves():
    tree = remat.tree([-1, 0, 0, 1, 1, 2, 2], output_size=[5, 10, 10, 8, 8, 8, 8], machine=remat.device(link=5))
    result = remat.solve(tree, budget={"device": 30})
    moved = [one.size for row in result.decisions for one in row.transfers]
    assert moved == [copy.bytes for copy in result.steps if hasattr(copy, "target")]


def test_integer_nodes_are_names_and_other_integers_are_positions():
    graph = networkx.DiGraph()
    for node in (3, 1, 0, 2):
        graph.add_node(node, time=1, size=node + 1)
    graph.add_edges_from([(3, 1), (1, 0), (0, 2)])
    found = remat.solve(remat.dag(graph, time="time", size="size"), algorithm="keep-all").decisions
    assert [found[node].value for node in (3, 1, 0, 2)] == ["3", "1", "0", "2"]
    assert [found[node].size for node in range(4)] == [1, 2, 3, 4]
    assert found[-1] == list(found)[-1]
    with pytest.raises(IndexError):
        found[4]


def test_stages_of_a_pipeline_say_when_forwards_and_backwards_run():
    document = generate("pipeline", "uniform", devices=2, layers=4, micro_batches=3)
    found = remat.solve(document, algorithm="1f1b")
    line = found.timeline()
    times = {name: span for name, *span in zip(line["name"], line["start"], line["end"], strict=True)}
    for row in found.stage_decisions:
        first, last = row.layers[0] + 1, row.layers[-1] + 1
        assert row.forward == (times[f"Fe{first}.{row.micro_batch}"][0], times[f"Fe{last}.{row.micro_batch}"][1])
        assert row.backward == (times[f"B{last}.{row.micro_batch}"][0], times[f"B{first}.{row.micro_batch}"][1])
        assert (row.start, row.end) == (row.forward[0], row.backward[1])


def test_a_part_of_a_value_counts_as_its_bytes():
    """Values of 1 to 9 leave a tree in parts; the sentence of a memory names its verified peak."""
    rng = random.Random(5)
    parent = [(node - 1) // 2 if node else -1 for node in range(63)]
    tree = remat.tree(parent, output_size=[rng.randint(1, 9) for _ in parent], machine=HOST)
    found = remat.solve(tree, budget="60%")
    parts = [part for row in found.decisions for part in row.transfers if part.size < row.size]
    assert parts, "the draw moves parts"
    [group] = [group for group in groups_of(found) if group.decision == "offloaded"]
    assert group.bytes_at_once == found.peak_memory[group.memory]
    assert group.size <= sum(part.size for row in found.decisions for part in row.transfers)
