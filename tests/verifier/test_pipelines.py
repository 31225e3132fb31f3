"""Pipelines before both judges: drawn plans as orders and as steps, what spoils them, and two textbook schedules."""

import copy
import random
from functools import cache

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import remat
from remat.errors import InstanceError
from remat.instance import load
from remat.instance.lowering import machine_of
from remat.solving.verifying import examine
from remat.testing.strategies import pipelines
from tests.oracles import lowering, referee
from tests.verifier.judges import rules, same_figures
from tests.verifier.plans import (
    SCHEMA,
    both,
    closes,
    draw_plan,
    has_instants,
    limited,
    open_ended,
    placed,
    played,
    same_starts,
    same_verdict,
    spread,
)
from tests.verifier.spoilt_plans import AS_ORDERS, AS_STEPS, Plan

SEEDS = st.integers(0, 2**32 - 1)
DRAWN = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def judge(document, number):
    """Put one drawn plan before both judges: the orders, and either one's steps of them."""
    chance = random.Random(number)
    document = limited(chance, document)
    plan = draw_plan(chance, document)
    report, verdict = both(document, plan)
    peaks = not has_instants(document, plan)
    same_verdict(report, verdict, peaks=peaks)
    if closes(document) or any("part" in stage for stage in plan["stages"]):
        same_starts(document, plan)
        return
    for steps in (played(document, plan), placed(document, plan)):
        again, judged = both(document, steps)
        same_figures(again, judged)
        same_verdict(again, verdict, peaks=peaks)


@settings(DRAWN, max_examples=20)
@given(pipelines(largest=3, streams=False, cuts=True, tensor=True), SEEDS)
def test_drawn_plans_are_judged_like_the_referee(document, number):
    judge(document, number)


def judge_end(document, number):
    """Put a drawn plan of a step that ends with an exchange, updates or both before both judges."""
    chance = random.Random(number)
    document = spread(chance, open_ended(document))
    layers = [layer | chance.choice([{}, {"update_time": chance.randint(0, 5)}]) for layer in document["layers"]]
    layers[0] |= {"parameter_size": chance.randint(1, 30), "update_time": chance.randint(0, 5)}
    judge(document | {"copies": chance.randint(2, 3), "exchange": "ring", "layers": layers}, number)


@settings(DRAWN, max_examples=20)
@given(pipelines(largest=3, streams=False, tensor=True), SEEDS)
def test_how_a_step_ends(document, number):
    judge_end(document, number)


def judge_ranks(document, number):
    """Put a drawn plan of a step of one of several ranks before both judges."""
    chance = random.Random(number)
    document = spread(chance, open_ended(document))
    ranks = chance.randint(2, 4)
    for entry in document["cluster"]["devices"]:
        entry["count"] = ranks * chance.randint(1, 2)
    sharding = {"data": ranks, "zero": chance.randint(0, 3)}
    if sharding["zero"] > 1 and chance.random() < 0.3:
        sharding["keep"] = True
    layers = []
    for layer in document["layers"]:
        more = {"parameter_size": chance.randint(0, 30), "update_time": chance.randint(0, 5)}
        more |= chance.choice([{}, {"bucket_size": chance.randint(0, 9)}])
        layers.append({key: value for key, value in layer.items() if key != "parameter_gradient_size"} | more)
    for key in ("copies", "exchange", "parts", "samples", "tokens"):
        document.pop(key, None)
    cluster = document["cluster"] | {"transfers": "overlap"}
    if chance.random() < 0.5:
        levels = [{"devices": ranks * chance.randint(1, 2), "bandwidth": chance.randint(1, 9)}, *cluster["levels"]]
        cluster["levels"] = levels
    judge(document | {"sharding": sharding, "layers": layers, "cluster": cluster}, number)


@settings(DRAWN, max_examples=20)
@given(pipelines(largest=3, streams=False), SEEDS)
def test_what_ranks_share_out(document, number):
    judge_ranks(document, number)


@pytest.mark.slow
@settings(DRAWN, max_examples=1000)
@given(pipelines(streams=False), SEEDS)
def test_what_many_ranks_share_out(document, number):
    judge_ranks(document, number)


@pytest.mark.slow
@settings(DRAWN, max_examples=1000)
@given(pipelines(streams=False, tensor=True), SEEDS)
def test_how_many_steps_end(document, number):
    judge_end(document, number)


@pytest.mark.slow
@settings(DRAWN, max_examples=1000)
@given(pipelines(streams=False, cuts=True, tensor=True).filter(lambda document: not has_fractions(document)), SEEDS)
def test_many_drawn_plans(document, number):
    judge(document, number)


def has_fractions(part):
    """Whether a document has any number that is not whole."""
    if isinstance(part, dict | list):
        return any(has_fractions(one) for one in (part.values() if isinstance(part, dict) else part))
    return isinstance(part, float)


@pytest.mark.slow
@settings(DRAWN, max_examples=800)
@given(pipelines(streams=False).filter(has_fractions), SEEDS)
def test_many_drawn_plans_with_fractions(document, number):
    judge(document, number)


MODES = ("blocking", "rendezvous", "grouped")


def judge_held_up(document, number, mode):
    """Put a drawn plan before both judges where transfers hold devices up; return whether it hangs."""
    chance = random.Random(number)
    document = spread(chance, limited(chance, open_ended(document)))
    # Where its forward ran elsewhere, an operation has something to wait for from several devices at once.
    document = document | {"copies": 3, "cluster": document["cluster"] | {"transfers": mode}}
    plan = draw_plan(chance, document)
    report, verdict = both(document, plan)
    assert report.ok == verdict.ok, (document, plan, report.violations, verdict.violations)
    if not report.ok:
        assert {violation.rule for violation in report.violations} == verdict.rules == {"deadlock"}
        assert mode != "blocking"
        return True
    peaks = not has_instants(document, plan)
    same_verdict(report, verdict, peaks=peaks)
    for steps in (played(document, plan), placed(document, plan)):
        again, judged = both(document, steps)
        same_figures(again, judged)
        same_verdict(again, verdict, peaks=peaks)
    return False


def judge_many_held_up(count, mode, **how):
    hang = []

    @settings(DRAWN, max_examples=count, derandomize=True, database=None)
    @given(pipelines(streams=False, **how), SEEDS)
    def run(document, number):
        hang.append(judge_held_up(document, number, mode))

    run()
    assert any(hang) == (mode != "blocking")
    assert not all(hang)


@pytest.mark.parametrize("mode", MODES)
def test_transfers_that_hold_up(mode):
    judge_many_held_up(25 if mode == "grouped" else 8, mode, largest=3)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_many_transfers_that_hold_up(mode):
    judge_many_held_up(300, mode)


@pytest.mark.parametrize(
    ("texts", "mode", "makespan"),
    [
        # A device sends each of its outputs before it goes on: one unit more for each, but the last.
        ("gpipe", "blocking", 53),
        ("one_forward_one_backward", "blocking", 52),
        ("gpipe", "rendezvous", 67),
        ("one_forward_one_backward", "rendezvous", None),
        ("gpipe", "grouped", 68),
        ("one_forward_one_backward", "grouped", 66),
    ],
)
def test_the_textbook_where_transfers_hold_up(texts, mode, makespan):
    document = textbook()
    document["cluster"] |= {"levels": [{"latency": 1}], "transfers": mode}
    report, verdict = both(document, in_a_row(document, globals()[texts]))
    if makespan is None:
        assert rules(report) == rules(verdict) == {(None, "deadlock")}
        cycle = "y3.0 from d3 to d2 waits for x3.1 from d2 to d3 waits for y3.0 from d3 to d2"
        assert report.violations[0].message == cycle
    else:
        same_verdict(report, verdict)
        assert report.makespan == makespan


def test_what_is_sent_as_soon_as_it_is_made_is_dropped_behind_that():
    """The stage's end and the copy's start are summed in different orders and differ by a rounding error."""
    document = textbook() | {"micro_batches": 1}
    small, large = ({"forward_time": 0.1, "backward_time": time, "output_size": 1} for time in (0.1, 0.3))
    document |= {"layers": [small, large, large], "cluster": {"devices": [{"name": "d", "count": 2}]}}
    stages = [{"layers": [1], "device": "d0"}, {"layers": [2, 3], "device": "d1"}]
    plan = {"schema": SCHEMA, "stages": stages, "orders": {"d0": ["F0.0", "B0.0"], "d1": ["F1.0", "B1.0"]}}
    report, verdict = both(document, plan)
    assert verdict.ok
    assert report.ok


# --- the textbook -----------------------------------------------------------------------------------------------------


def textbook(delay=0):
    """Return four equal stages and eight micro-batches; an activation is a byte."""
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 8,
        "layers": [{"repeat": 4, "forward_time": 1, "backward_time": 2, "saved_size": 1}],
        "cluster": {"devices": [{"name": "d", "count": 4}], "levels": [{"delay": delay}]},
    }


def in_a_row(document, texts):
    stages = [{"layers": [layer + 1], "device": f"d{layer}"} for layer in range(4)]
    return {"schema": SCHEMA, "stages": stages, "orders": {f"d{stage}": texts(stage) for stage in range(4)}}


def gpipe(stage):
    return [f"F{stage}.{batch}" for batch in range(8)] + [f"B{stage}.{batch}" for batch in range(8)]


def one_forward_one_backward(stage):
    ahead = 3 - stage
    texts = [f"F{stage}.{batch}" for batch in range(ahead)]
    for batch in range(8 - ahead):
        texts += [f"F{stage}.{batch + ahead}", f"B{stage}.{batch}"]
    return texts + [f"B{stage}.{batch}" for batch in range(8 - ahead, 8)]


@pytest.mark.parametrize(
    ("texts", "delay", "makespan", "peaks"),
    [
        (gpipe, 0, 33, [8, 8, 8, 8]),
        (gpipe, 1, 39, [8, 8, 8, 8]),
        (one_forward_one_backward, 0, 33, [4, 3, 2, 1]),
        (one_forward_one_backward, 1, 49, [4, 3, 2, 1]),
    ],
)
def test_textbook_orders_have_their_makespans(texts, delay, makespan, peaks):
    document = textbook(delay)
    report, verdict = both(document, in_a_row(document, texts))
    same_verdict(report, verdict)
    assert report.makespan == makespan
    assert list(report.peak_memory.values()) == list(verdict.peaks.values()) == peaks


def test_two_at_once_spare_what_both_can():
    layers = [{"forward_time": 4, "backward_time": 4, "paired_time": time} for time in (4, 7)]
    document = textbook() | {"micro_batches": 2, "layers": layers, "cluster": {"devices": [{"name": "d"}]}}
    stages = [{"layers": [1], "device": "d"}, {"layers": [2], "device": "d"}]
    plan = {
        "schema": SCHEMA,
        "stages": stages,
        "orders": {"d": ["F0.0", "F1.0", "F0.1&B1.0", "F1.1", "B0.0", "B1.1", "B0.1"]},
    }
    report, verdict = both(document, plan)
    same_verdict(report, verdict)
    assert (report.ok, report.makespan) == (True, 4 + 4 + 7 + 4 + 4 + 4 + 4)
    assert report.idle["d"] == verdict.idle["d"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("B0.0&F0.1", "a forward and a backward"),
        ("F0.0&F0.1", "a forward and a backward"),
        ("F0.0&W0.1", "a forward and a backward"),
        ("F0.0&B0.1&B0.0", "is not an operation"),
        ("F0.0&", "is not an operation"),
    ],
)
def test_what_is_no_pair(text, message):
    document = textbook()
    with pytest.raises(InstanceError, match=message):
        remat.verify(document, in_a_row(document, lambda stage: [] if stage else [text]))


# --- what is wrong ----------------------------------------------------------------------------------------------------


@cache
def pool(*, pairs=False):
    """Some plans for several devices, drawn once; of times that are clearly more than instants."""
    found = []

    @seed(0)
    @settings(
        max_examples=90,
        derandomize=False,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(pipelines(largest=3, streams=False), SEEDS)
    def collect(document, number):
        chance = random.Random(number)
        document = limited(chance, spread(chance, open_ended(document)))
        plan = Plan(document, draw_plan(chance, document, pairs=pairs))
        if not has_instants(document, plan.orders):
            found.append(plan)

    collect()
    return found


def spoilt(name, function, wanted):
    """Yield corrupted plans from the pool, with the expected verdict."""
    chance = random.Random(name)
    tried = 0
    plans = pool(pairs="pair" in name)
    for plan in chance.sample(plans, len(plans)):
        found = function(chance, plan)
        if not found:
            continue
        yield found
        tried += 1
        if tried == wanted:
            return
    assert tried >= 3


@pytest.mark.parametrize("name", AS_ORDERS)
def test_spoilt_orders_are_refused(name):
    for (document, schedule), expected in spoilt(name, AS_ORDERS[name], 4):
        report, verdict = both(document, schedule)
        assert {rule for _, rule in rules(report)} & expected, (document, schedule, report.violations)
        assert verdict.rules & expected, (document, schedule, verdict.violations)


@pytest.mark.parametrize("name", AS_STEPS)
def test_spoilt_steps_are_refused(name):
    for (document, schedule), expected in spoilt(name, AS_STEPS[name], 4):
        report, verdict = both(document, schedule)
        assert {rule for _, rule in rules(report)} & expected, (document, schedule, report.violations)
        assert verdict.rules & expected, (document, schedule, verdict.violations)


def apart(document):
    """Return a pipeline with one entry per device."""
    document = copy.deepcopy(document)
    on = lowering.machine(document)
    document["cluster"]["devices"] = [{"name": name, "type": kind} for name, kind in on.types.items()]
    return document


def test_a_byte_too_little():
    tried = 0
    for plan in pool()[:10]:
        document = apart(plan.document)
        report, verdict = both(document, plan.orders)
        same_verdict(report, verdict)
        for device in document["cluster"]["devices"]:
            peak = verdict.peaks[device["name"]]
            device["memory"] = peak
        assert both(document, plan.orders)[0].ok
        assert both(document, plan.orders)[1].ok
        for device in document["cluster"]["devices"]:
            if device["memory"] == 0:
                continue
            device["memory"] -= 1
            short, judged = both(document, plan.schedule)
            assert {rule for _, rule in rules(short)} == judged.rules == {"capacity"}
            assert rules(short) == set(judged.violations)
            assert {v.rule for v in both(document, plan.orders)[0].violations} == {"capacity"}
            device["memory"] += 1
            tried += 1
    assert tried >= 10


def test_the_machine_of_a_schedule():
    """The machine also has types and delays, and replaces the cluster."""
    for plan in pool()[:8]:
        machine = machine_of(load(plan.document)).to_document()
        same_figures(*both(plan.document, plan.schedule | {"machine": machine}))
        report, verdict = both(plan.document, plan.orders | {"machine": machine})
        same_verdict(report, verdict)
        assert not report.notes
        assert not verdict.machine_differs
        for link in machine["links"]:
            link["delay"] = link.get("delay", 0) + 2 * plan.makespan
        slower, judged = both(plan.document, plan.orders | {"machine": machine})
        same_verdict(slower, judged)
        if any(plan.copies()):
            assert judged.makespan > verdict.makespan


# --- documents --------------------------------------------------------------------------------------------------------


PLAN = in_a_row(None, gpipe)
STEPS = {"schema": SCHEMA, "initial": {}, "steps": []}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"order": {}}, "$"),
        ({"steps": []}, "$.steps"),
        ({"stages": []}, "$.stages"),
        ({"stages": ...}, "$.stages"),
        ({"orders": ...}, "$.stages"),
        ({"orders": []}, "$.orders"),
        ({"orders": {"d4": []}}, "$.orders"),
        ({"orders": {"d0": "F0.0"}}, "$.orders.d0"),
        ({"orders": {"d0": ["F0.0", "G0.0"]}}, "$.orders.d0[1]"),
        ({"orders": {"d0": ["F0"]}}, "$.orders.d0[0]"),
        ({"orders": {"d0": ["F0.08"]}}, "$.orders.d0[0]"),
        ({"orders": {"d0": [7]}}, "$.orders.d0[0]"),
        ({"orders": {"d0": ["F4.0"]}}, "$.orders.d0[0]"),
        ({"orders": {"d0": ["F0.8"]}}, "$.orders.d0[0]"),
        ({"orders": {"d0": ["F0.0", "F1.0"]}}, "$.orders.d0[1]"),
        ({"stages": [{"layers": [1], "device": "d4"}]}, "$.stages[0].device"),
        ({"stages": [{"layers": [1], "device": "d0", "name": "a"}]}, "$.stages[0]"),
        ({"stages": [{"layers": [], "device": "d0"}]}, "$.stages[0].layers"),
        ({"stages": [{"layers": [0], "device": "d0"}]}, "$.stages[0].layers"),
        ({"stages": [{"layers": [5], "device": "d0"}]}, "$.stages[0].layers"),
        ({"stages": [{"layers": [2, 1], "device": "d0"}]}, "$.stages[0].layers"),
        ({"stages": [{"layers": {"from": 2, "to": 1}, "device": "d0"}]}, "$.stages[0].layers"),
        ({"stages": [{"layers": {"from": 1}, "device": "d0"}]}, "$.stages[0].layers"),
        ({"initial": []}, "$.initial"),
        ({"initial": {"w9": ["d0"]}}, "$.initial"),
        ({"initial": {"x1.0": ["d9"]}}, "$.initial.x1.0"),
        ({"schema": "remat.schedule/1"}, "$"),
    ],
)
def test_what_is_no_plan(change, path):
    document = {key: value for key, value in (PLAN | change).items() if value is not ...}
    with pytest.raises(InstanceError) as caught:
        remat.verify(textbook(), document)
    assert caught.value.path == path


def test_orders_are_for_pipelines():
    chain = {"schema": "remat.instance/1", "kind": "chain", "input_size": 1}
    chain["stages"] = [{"forward_time": 1, "backward_time": 2, "output_size": 3}]
    with pytest.raises(InstanceError, match="orders are for pipelines"):
        remat.verify(chain, PLAN)


def test_steps_need_no_initial_where_nothing_is_placeable():
    steps = played(textbook(), PLAN)
    assert steps.pop("initial") == {}
    same_figures(*both(textbook(), steps | {"schema": "remat.schedule/1"}))
    assert referee.check(textbook(), steps["steps"]).ok


def two_copies(**more):
    """Return a layer on two devices, two micro-batches, gradients of 12 bytes, and links of 2 bytes per unit."""
    layer = {"name": "l", "forward_time": 1, "backward_time": 2, "parameter_size": 12, "update_time": 3}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": 3,
        "copies": 2,
        "exchange": "ring",
        "layers": [layer],
        "cluster": {"devices": [{"name": "a"}, {"name": "b"}], "levels": [{"bandwidth": 2, "latency": 1, "delay": 2}]},
    } | more


STAGES = [{"layers": [1], "device": "a"}, {"layers": [1], "device": "b"}]
SHARED = {"a": ["F0.0", "B0.0", "F0.2", "B0.2"], "b": ["F1.1", "B1.1"]}


def test_the_ring_of_two_copies():
    """Backwards end at 6; two rounds of 1 + 2 + 12 / (2 x 2) = 6; then both copies update, for 3."""
    document = two_copies()
    plan = {"schema": SCHEMA, "stages": STAGES, "orders": SHARED}
    report, verdict = both(document, plan)
    assert report.ok
    assert report.makespan == verdict.makespan == 6 + 2 * 6 + 3
    assert report.recompute_time == 0
    alone = two_copies(exchange="none")
    assert both(alone, plan)[0].makespan == both(alone, plan)[1].makespan == 6 + 3
    found = examine(document, plan)
    started = {found.graph.tasks[item]: start for item, start in zip(found.steps.item, report.start, strict=True)}
    assert (started["A1"], started["U1.0"], started["U1.1"]) == (6, 18, 18)


def test_a_ring_waits_for_its_slowest_way():
    """Three copies, and 4 rounds: between a and b it takes 5 + 12 / (3 x 4), on the other links 1."""
    levels = [{"devices": 2, "latency": 5, "bandwidth": 4}, {"latency": 1}]
    cluster = {"devices": [{"name": name} for name in "abcd"], "levels": levels}
    document = two_copies(copies=3, cluster=cluster)
    stages = [{"layers": [1], "device": device} for device in "abc"]
    orders = {"a": ["F0.0", "B0.0"], "b": ["F1.1", "B1.1"], "c": ["F2.2", "B2.2"]}
    report, verdict = both(document, {"schema": SCHEMA, "stages": stages, "orders": orders})
    assert report.makespan == verdict.makespan == 3 + 4 * 6 + 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"weights": "stash", "copies": 1}, "with weights stash no step ends"),
        (
            {"cluster": {"devices": [{"name": "a"}, {"name": "b"}], "transfers": "grouped"}},
            "need the transfers overlap",
        ),
    ],
)
def test_streams_refuse_updates_at_the_end_of_a_step(more, message):
    with pytest.raises(InstanceError, match=message):
        load(two_copies(**more))


def test_steps_do_not_say_how_a_step_ends():
    with pytest.raises(InstanceError, match="planned by stages and orders"):
        remat.verify(two_copies(), {"schema": SCHEMA, "steps": []})
