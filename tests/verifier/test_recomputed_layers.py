"""Stages that recompute: by hand, drawn ones with both verifiers, and refusals."""

import copy
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.errors import InstanceError
from remat.testing.strategies import pipelines
from tests.verifier.judges import rules, same_figures
from tests.verifier.plans import both, draw_plan, examine, has_instants, open_ended, placed, same_verdict

SEEDS = st.integers(0, 2**32 - 1)
UNITS = {"time": "unit", "memory": "unit"}

ONE = {
    "schema": "remat.instance/3",
    "kind": "pipeline",
    "units": UNITS,
    "micro_batches": 2,
    "backward_reads": ["saved"],
    "layers": [{"forward_time": 1, "backward_time": 2, "output_size": 1, "saved_size": 10, "repeat": 2}],
    "cluster": {"devices": [{"name": "gpu", "count": 1}]},
}
ORDER = ["F0.0", "F0.1", "B0.0", "B0.1"]


def plan(recompute=None, order=ORDER):
    stage = {"layers": {"from": 1, "to": 2}, "device": "gpu"} | ({} if recompute is None else {"recompute": recompute})
    return {"schema": "remat.schedule/2", "stages": [stage], "orders": {"gpu": list(order)}}


@pytest.mark.parametrize(
    ("recompute", "order", "makespan", "peak"),
    [
        # Both micro-batches: 2 layers of 10; while F2.1 runs its input and output are there, too; no B reads x.
        (None, ORDER, 12, 42),
        # Recompute layer 1, which has no input to keep: at Fe2.1 10 of either micro-batch, and x1, x2 of one.
        ([{"layers": [1]}], ORDER, 14, 22),
        # Recompute layer 2: x1 of both stay. At the rerun of Fe2.0: 2 x 10 of layer 1, 2 x1, its own 10 and its output.
        ([{"layers": [2]}], ORDER, 14, 33),
        # Recompute both as one segment: no value stays. At F1.1, or its rerun: 10 + 10, x1 and x2.
        ([{"layers": {"from": 1, "to": 2}}], ORDER, 16, 22),
        # Of micro-batch 1 only.
        ([{"layers": {"from": 1, "to": 2}, "micro_batches": [1]}], ORDER, 14, 32),
        # All of micro-batch 0 ahead, while nothing else waits: no time less on one device.
        ([{"layers": {"from": 1, "to": 2}}], ["F0.0", "F0.1", "R0.0", "B0.0", "B0.1"], 16, 22),
    ],
)
def test_recomputed_layers_have_figures_as_by_hand(recompute, order, makespan, peak):
    report, verdict = both(ONE, plan(recompute, order))
    same_figures(report, verdict)
    assert (report.makespan, report.peaks["gpu"].size) == (makespan, peak)


def test_ahead_while_the_gradient_is_not_there():
    """The first device recomputes while the second one runs its backward."""
    document = copy.deepcopy(ONE) | {"micro_batches": 1}
    document["cluster"] = {"devices": [{"name": "gpu", "count": 2}]}
    stages = [{"layers": [1], "device": "gpu0", "recompute": [{"layers": [1]}]}, {"layers": [2], "device": "gpu1"}]
    orders = {"gpu0": ["F0.0", "B0.0"], "gpu1": ["F1.0", "B1.0"]}
    found = {"schema": "remat.schedule/2", "stages": stages, "orders": orders}
    assert remat.verify(document, found).makespan == 1 + 1 + 2 + 1 + 2
    orders["gpu0"] = ["F0.0", "R0.0", "B0.0"]
    assert remat.verify(document, found).makespan == 1 + 1 + 2 + 2


def _recomputing(chance, document, drawn):
    """Let stages of a drawn plan recompute some of their layers, within backwards or ahead."""
    drawn = copy.deepcopy(drawn)
    for number, stage in enumerate(drawn["stages"]):
        own = stage["layers"]
        layers = list(range(own["from"], own["to"] + 1)) if isinstance(own, dict) else own
        listed = {text for texts in drawn["orders"].values() for text in texts}
        every = range(document["micro_batches"])
        batches = [  # a stage recomputes layers that it has run
            batch
            for batch in every
            if f"F{number}.{batch}" in listed and {f"B{number}.{batch}", f"BW{number}.{batch}"} & listed
        ]
        segments, first = [], 0 if batches else len(layers)
        while first < len(layers):
            end = chance.randint(first + 1, len(layers))
            if chance.random() < 0.6:
                some = sorted(chance.sample(batches, chance.randint(1, len(batches))))
                choices = [{"micro_batches": some}, *([{}] if batches == list(every) else [])]
                segments.append({"layers": layers[first:end]} | chance.choice(choices))
            first = end
        if not segments:
            continue
        stage["recompute"] = segments
        for listed in drawn["orders"].values():
            for place in range(len(listed) - 1, -1, -1):
                phase, _, rest = listed[place].partition(f"{number}.")
                again = any(int(rest) in one.get("micro_batches", batches) for one in segments) if rest else False
                if phase in ("B", "BW") and again and f"F{number}.{rest}" in listed and chance.random() < 0.4:
                    after = listed.index(f"F{number}.{rest}") + 1
                    listed.insert(chance.randint(after, place), f"R{number}.{rest}")
    return drawn


def judge(document, number):
    chance = random.Random(number)
    for key in ("copies", "exchange", "parts", "samples", "tokens", "sharding"):
        document.pop(key, None)
    layers = [
        {key: value for key, value in layer.items() if key not in ("paired_time", "update_time")}
        for layer in document["layers"]
    ]
    document = open_ended(document) | {"layers": layers, "cluster": document["cluster"] | {"transfers": "overlap"}}
    drawn = _recomputing(chance, document, draw_plan(chance, document, pairs=False))
    report, verdict = both(document, drawn)
    same_verdict(report, verdict, peaks=not has_instants(document, drawn))
    steps = placed(document, drawn)
    again, judged = both(document, steps)
    assert again.ok
    same_figures(again, judged)
    assert again.makespan == report.makespan
    assert {name: peak.size for name, peak in again.peaks.items()} == {
        name: peak.size for name, peak in report.peaks.items()
    }


def judge_anywhere(document, number):
    """Put a drawn plan before both judges: copies of layers, ends of steps, and transfers that hold up."""
    chance = random.Random(number)
    for key in ("exchange", "parts", "samples", "tokens"):
        document.pop(key, None)
    mode = chance.choice(["overlap", "overlap", "blocking", "rendezvous", "grouped"])
    layers = [{key: value for key, value in layer.items() if key != "paired_time"} for layer in document["layers"]]
    document["cluster"] = document["cluster"] | {"transfers": mode}
    if mode != "overlap":
        document = open_ended(document)
        layers = [{key: value for key, value in layer.items() if key != "update_time"} for layer in layers]
        document["cluster"].pop("host", None)
    document = document | {"layers": layers}
    drawn = _recomputing(chance, document, draw_plan(chance, document, pairs=False))
    report, verdict = both(document, drawn)
    if report.ok:
        same_verdict(report, verdict, peaks=not has_instants(document, drawn))
    else:
        assert mode != "overlap"
        assert verdict.rules == {violation.rule for violation in report.violations}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(largest=3, streams=False), SEEDS)
def test_drawn_plans_anywhere(document, number):
    judge_anywhere(document, number)


@pytest.mark.slow
@settings(deadline=None, max_examples=800, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(streams=False), SEEDS)
def test_many_drawn_plans_anywhere(document, number):
    judge_anywhere(document, number)


def judge_shared(document, number):
    """Put a drawn plan before both judges on a machine where devices have memories in common; return the verdict."""
    chance = random.Random(number)
    for key in ("copies", "exchange", "parts", "samples", "tokens", "sharding"):
        document.pop(key, None)
    dropped = ("paired_time", "update_time")
    layers = [{key: value for key, value in layer.items() if key not in dropped} for layer in document["layers"]]
    document = open_ended(document) | {"layers": layers}
    document["cluster"] = {"devices": document["cluster"]["devices"]}
    drawn = _recomputing(chance, document, draw_plan(chance, document, pairs=False))
    processors = examine(document, drawn).machine.processors
    devices = [(processor.name, processor.type) for processor in processors]
    names = [name for name, _ in devices]
    homes = [chance.choice(names[: max(1, len(names) // 2)]) for _ in names]
    links = [
        {"source": one, "target": other, "latency": chance.randint(0, 2)}
        for one in sorted(set(homes))
        for other in sorted(set(homes))
        if one != other
    ]
    drawn["machine"] = {
        "memories": [{"name": name} for name in sorted(set(homes))],
        "processors": [
            {"name": name, "memory": home, "type": kind} for (name, kind), home in zip(devices, homes, strict=True)
        ],
        "links": links,
    }
    report, verdict = both(document, drawn)
    if report.ok:
        same_verdict(report, verdict, peaks=not has_instants(document, drawn))
        again, judged = both(document, placed(document, drawn) | {"machine": drawn["machine"]})
        assert again.ok, again.violations
        same_figures(again, judged)
    else:
        assert {violation.rule for violation in report.violations} == verdict.rules == {"deadlock"}
    return report


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(largest=3, streams=False), SEEDS)
def test_drawn_plans_in_shared_memories(document, number):
    judge_shared(document, number)


def test_a_recomputation_waits_for_other_readers_in_its_memory():
    """The second device reads x1 for 2, and until then the first one may not write it again."""
    document = copy.deepcopy(ONE) | {"micro_batches": 1}
    document["layers"] = [ONE["layers"][0] | {"repeat": 1}, ONE["layers"][0] | {"repeat": 1, "forward_time": 2}]
    document["cluster"] = {"devices": [{"name": "gpu", "count": 2}]}
    stages = [{"layers": [1], "device": "gpu0", "recompute": [{"layers": [1]}]}, {"layers": [2], "device": "gpu1"}]
    orders = {"gpu0": ["F0.0", "R0.0", "B0.0"], "gpu1": ["F1.0", "B1.0"]}
    found = {"schema": "remat.schedule/2", "stages": stages, "orders": orders}
    machine = {
        "memories": [{"name": "gpu0"}],
        "processors": [{"name": name, "memory": "gpu0", "type": "gpu"} for name in ("gpu0", "gpu1")],
    }
    starts = {}
    for own in ({}, {"machine": machine}):
        report, verdict = both(document, found | own)
        assert report.ok
        assert verdict.ok
        assert report.makespan == verdict.makespan == 1 + 2 + 2 + 2
        steps = placed(document, found | own)["steps"]
        starts[bool(own)] = [step["start"] for step in steps if step.get("run") == "Fe1.0"]
    assert starts == {False: [0, 1], True: [0, 3]}


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(largest=3, streams=False), SEEDS)
def test_drawn_plans_are_judged_like_the_referee(document, number):
    judge(document, number)


@pytest.mark.slow
@settings(deadline=None, max_examples=800, suppress_health_check=[HealthCheck.too_slow])
@given(pipelines(streams=False), SEEDS)
def test_many_drawn_plans(document, number):
    judge(document, number)


@pytest.mark.parametrize(
    ("order", "rule", "message"),
    [
        (["F0.0", "F0.1", "R0.0", "R0.0", "B0.0", "B0.1"], "bad-step", "R0.0 is listed twice"),
        (["R0.0", "F0.0", "F0.1", "B0.0", "B0.1"], "bad-step", "R0.0 must be between F0.0 and its backward"),
        (["F0.0", "F0.1", "B0.0", "R0.0", "B0.1"], "bad-step", "R0.0 must be between F0.0 and its backward"),
        (["F0.0", "F0.1", "R0.1", "B0.0", "B0.1"], "bad-step", "stage 0 does not recompute micro-batch 1"),
    ],
)
def test_what_breaks_a_rule(order, rule, message):
    report, verdict = both(ONE, plan([{"layers": [1], "micro_batches": [0]}], order))
    assert rules(report) == set(verdict.violations)
    assert [violation.rule for violation in report.violations] == [rule]
    assert message in report.violations[0].message


@pytest.mark.parametrize(
    ("recompute", "path", "message"),
    [
        ([], "$.stages[0].recompute", "expected a list of segments"),
        ([{"micro_batches": [0]}], "$.stages[0].recompute[0]", "the key layers"),
        ([{"layers": [3]}], "$.stages[0].recompute[0].layers", "layers of its stage that follow each other"),
        ([{"layers": [2, 1]}], "$.stages[0].recompute[0].layers", "a list of numbers from 1 on, in order"),
        ([{"layers": [1]}, {"layers": {"from": 1, "to": 2}}], "$.stages[0].recompute[1]", "hold the same layer"),
        ([{"layers": [1], "micro_batches": [-1]}], "$.stages[0].recompute[0].micro_batches", "numbers from 0 on"),
    ],
)
def test_what_is_no_recomputation(recompute, path, message):
    with pytest.raises(InstanceError) as error:
        remat.verify(ONE, plan(recompute))
    assert path in str(error.value)
    assert message in str(error.value)


def test_documents_keep_it():
    """Recomputed layers survive reading and writing of a document."""
    from remat.schedule.orders import read_orders

    given = plan([{"layers": [1]}, {"layers": [2], "micro_batches": [1]}], ["F0.0", "F0.1", "R0.1", "B0.0", "B0.1"])
    read = read_orders(given, ["gpu"], 2, 2)
    assert read.to_document(["gpu"]) == {key: given[key] for key in ("stages", "orders")}


RANKS = ONE | {
    "layers": [ONE["layers"][0] | {"parameter_size": 4, "optimizer_size": 8, "update_time": 3}],
    "cluster": {"devices": [{"name": "gpu", "count": 2}], "levels": [{"bandwidth": 4}]},
}


@pytest.mark.parametrize("sharding", [{"data": 2}, {"data": 2, "zero": 1}, {"data": 2, "zero": 3, "keep": True}])
def test_ranks_that_recompute(sharding):
    """Recomputation adds time and frees bytes; exchanges and updates stay the same."""
    document = RANKS | {"sharding": sharding}
    found = plan([{"layers": {"from": 1, "to": 2}}])
    found["stages"][0]["device"], found["orders"] = "gpu0", {"gpu0": ORDER}
    again, verdict = both(document, found)
    same_verdict(again, verdict)
    del found["stages"][0]["recompute"]
    once, verdict = both(document, found)
    same_verdict(once, verdict)
    assert again.recompute_time == 4
    assert again.makespan >= once.makespan
    assert again.peaks["gpu0"].size < once.peaks["gpu0"].size


def test_what_is_gathered_for_each_micro_batch_recomputes_nothing():
    document = RANKS | {"sharding": {"data": 2, "zero": 3}}
    found = plan([{"layers": [1]}])
    found["stages"][0]["device"], found["orders"] = "gpu0", {"gpu0": ORDER}
    report, verdict = both(document, found)
    assert rules(report) == set(verdict.violations)
    assert "level 3 of ZeRO gathers" in report.violations[0].message
