"""Compare named schedules with reference values and formulas in an independent event simulation."""

import json
from collections import Counter
from fractions import Fraction

import pytest

from remat.plugin import OptionError
from remat_algorithms.parallel.pipeline import rules
from tests import places
from tests.oracles.pipelines import run

POINTS = json.loads((places.REFERENCE / "pipeline_rules.json").read_text())["points"]
FLUSH = {
    "gpipe": rules.gpipe,
    "1f1b": rules.one_forward_one_backward,
    "eager": rules.eager_one_forward_one_backward,
    "interleaved": rules.interleaved,
    "chimera": rules.chimera,
    "gems": rules.gems,
}
SPLIT = {"zb-h1": rules.zb_h1, "zb-h2": rules.zb_h2, "zbv": rules.zb_v, "v-half": rules.v_half, "v-min": rules.v_min}
SIZES = [(devices, batches) for devices in (1, 2, 3, 4, 5, 6, 8) for batches in (1, 2, 4, 8, 12, 24)]
V_SIZES = [(p, m) for p in (*range(1, 10), 12) for m in (1, p, 2 * p - 1, 2 * p + 3)]
UNITS = {"forward": 1, "backward": 1, "weight": 1}


def points(kind):
    return [pytest.param(point, id=str(point["id"])) for point in POINTS if point["kind"] == kind]


def chains_of(lists):
    starts = [stage for stage, part in enumerate(lists.part) if part == 0]
    return [list(range(first, end)) for first, end in zip(starts, [*starts[1:], len(lists.part)], strict=True)]


def simulate(lists, **given):
    return run(lists.lists, lists.place, chains_of(lists), **given)


def drawn(name, devices, batches):
    """Return the lists of a rule for these numbers, or for the nearest ones that it is for."""
    if name == "interleaved":
        batches = -(-batches // devices) * devices
    if name == "chimera":
        devices += devices % 2
    return devices, batches, (FLUSH | SPLIT)[name](devices, batches)


@pytest.mark.parametrize("point", points("flush"))
def test_flush_rules_equal_published_figures(point):
    chunks = {"chunks": point["v"]} if "v" in point else {}
    lists = FLUSH[point["schedule"]](point["p"], point["m"], **chunks)
    assert list(lists.place) == point["place"]
    assert chains_of(lists) == point.get("chains", [list(range(len(point["place"])))])
    given = {"forward": point["F"], "backward": point["B"], "hop": point["c"], "activation": point["A"]}
    found = simulate(lists, **given)
    assert (found.makespan, found.span, list(found.peak)) == (point["makespan_delay"], point["span"], point["peak"])
    assert simulate(lists, transfers="link", **given).makespan == point["makespan_link"]


@pytest.mark.parametrize("point", points("zb-reference"))
def test_zero_bubble_rules_equal_published_figures(point):
    rule = rules.zb_h1 if point["limit"] == point["p"] else rules.zb_h2
    times = {"forward": point["F"], "backward": point["B"], "weight": point["W"], "hop": point["c"]}
    found = simulate(rule(point["p"], point["m"]), **times)
    assert (found.makespan, found.span, list(found.peak)) == (point["makespan"], point["oracle_span"], point["peak"])


@pytest.mark.parametrize("point", points("v-reference"))
def test_v_points_are_reached_or_beaten(point):
    found = simulate(SPLIT[point["schedule"]](point["p"], point["m"]), activation=Fraction(1, 2), **UNITS)
    assert found.makespan <= point["makespan"]
    assert found.span <= point["span"]
    assert all(ours <= theirs for ours, theirs in zip(found.peak, point["peak"], strict=True))


@pytest.mark.parametrize(
    ("name", "hop", "makespan", "peak"),
    [
        ("gpipe", 0, 33, (8, 8, 8, 8)),
        ("1f1b", 0, 33, (4, 3, 2, 1)),
        ("gpipe", 1, 39, (8, 8, 8, 8)),
        ("1f1b", 1, 49, (4, 3, 2, 1)),
    ],
)
def test_four_devices_eight_batches(name, hop, makespan, peak):
    found = simulate(FLUSH[name](4, 8), forward=1, backward=2, hop=hop)
    assert (found.makespan, found.peak) == (makespan, peak)


def test_period_and_makespan_of_zb_h2_are_two_things():
    found = simulate(rules.zb_h2(4, 8), **UNITS)
    assert (found.span, found.makespan) == (24, 27)
    assert simulate(rules.zb_h1(4, 8), **UNITS).makespan == 27


@pytest.mark.parametrize("name", [*FLUSH, *SPLIT])
def test_each_operation_once_on_its_device(name):
    for devices, batches in SIZES:
        devices, batches, lists = drawn(name, devices, batches)
        assert len(lists.lists) == devices
        kinds = ("F", "B", "W") if name in SPLIT else ("F", "B")
        counted = Counter()
        for device, operations in enumerate(lists.lists):
            assert {lists.place[operation.stage] for operation in operations} == {device}
            counted.update(
                (operation.phase.name, lists.part[operation.stage], operation.batch) for operation in operations
            )
        assert counted == Counter(
            (kind, part, batch) for kind in kinds for part in range(lists.parts) for batch in range(batches)
        )


@pytest.mark.parametrize("name", [*FLUSH, *SPLIT])
def test_never_a_deadlock_and_batches_ascend_in_a_stage(name):
    for devices, batches in SIZES:
        _, _, lists = drawn(name, devices, batches)
        assert simulate(lists, forward=3, backward=4, weight=2, hop=5) is not None
        last = {}
        for operations in lists.lists:
            for phase, stage, batch in operations:
                assert last.get((phase, stage), -1) < batch
                last[phase, stage] = batch


def test_no_hop_within_a_device():
    assert simulate(rules.zb_v(1, 4), hop=50, **UNITS).makespan == 24
    assert simulate(rules.interleaved(1, 4, chunks=3), hop=50, forward=1, backward=2).makespan == 36
    alone = simulate(rules.zb_v(2, 1), hop=50, **UNITS)
    assert alone.makespan == 8 + 4 * 50 + 2


def test_waiting_in_a_circle_is_a_deadlock():
    lists = [["F0.0", "B0.1", "F0.1", "B0.0"], ["F1.0", "B1.0", "F1.1", "B1.1"]]
    assert run(lists, (0, 1), [[0, 1]], forward=1, backward=1) is None


@pytest.mark.parametrize("name", FLUSH)
def test_whole_backward_of_split_layers(name):
    given = {"chunks": 3} if name == "interleaved" else {}
    plain, split = FLUSH[name](4, 8, **given), FLUSH[name](4, 8, split=True, **given)
    assert [[str(one).replace("BW", "B") for one in found] for found in split.lists] == [
        [str(one) for one in found] for found in plain.lists
    ]
    assert "BW0.0" in map(str, split.lists[0])
    assert "B0.0" in map(str, plain.lists[0])
    together, apart = (
        simulate(plain, forward=3, backward=6, hop=1),
        simulate(split, forward=3, backward=4, weight=2, hop=1),
    )
    assert (together.makespan, together.busy, together.peak) == (apart.makespan, apart.busy, apart.peak)


@pytest.mark.parametrize(("forward", "backward"), [(1, 2), (3, 4), (5, 5)])
def test_formulas_of_equal_stages(forward, backward):
    both = forward + backward
    for p, m in SIZES:
        times = {"forward": forward, "backward": backward}
        found = simulate(rules.gpipe(p, m), **times)
        assert (found.makespan, found.peak) == ((m + p - 1) * both, (m,) * p)
        with_hops = simulate(rules.gpipe(p, m), hop=forward, transfers="link", **times)
        assert with_hops.makespan == (m + p - 1) * both + 2 * (p - 1) * forward
        found = simulate(rules.one_forward_one_backward(p, m), **times)
        assert (found.makespan, found.peak) == ((m + p - 1) * both, tuple(min(p - s, m) for s in range(p)))
        found = simulate(rules.eager_one_forward_one_backward(p, m), **times)
        assert (found.makespan, found.peak) == ((m + p - 1) * both, tuple(min(2 * (p - s) - 1, m) for s in range(p)))
        found = simulate(rules.gems(p, m), **times)
        assert found.peak == (1,) * p


@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_formulas_of_the_interleaved_schedule(chunks):
    for p, groups in [(1, 2), (2, 1), (2, 3), (3, 2), (4, 1), (4, 2), (6, 2), (8, 3)]:
        m = p * groups
        found = simulate(rules.interleaved(p, m, chunks=chunks), forward=1, backward=2)
        assert found.makespan == 3 * (m * chunks + p - 1)
        first = [m * chunks if groups == 1 else 2 * (p - d - 1) + (chunks - 1) * p + 1 for d in range(p)]
        assert found.peak == tuple(min(most, m * chunks) for most in first)


def test_formulas_of_two_directions():
    for p in (2, 4, 6, 8):
        for m in (p, 2 * p, 5 * p):
            found = simulate(rules.chimera(p, m), forward=7, backward=7)
            assert found.makespan == 7 * (2 * m + p - 2)
            assert found.peak == tuple(min(p, p // 2 + 1 + min(d, p - 1 - d)) for d in range(p))
        found = simulate(rules.chimera(p, p), forward=1, backward=2)
        assert found.makespan - 3 * p == 2 * (p - 2)
        pairs = simulate(rules.gems(p, 6), forward=1, backward=2).makespan
        assert simulate(rules.gems(p, 8), forward=1, backward=2).makespan - pairs == 2 * (2 * p + 1)


def test_formulas_of_zero_bubble():
    for p, m in SIZES:
        if m >= p:
            found = simulate(rules.zb_h1(p, m), **UNITS)
            assert found.makespan == 3 * m + p - 1
            assert found.peak == tuple(min(m, p - Fraction(s, 2)) for s in range(p))
        if m >= 2 * p:
            found = simulate(rules.zb_h2(p, m), **UNITS)
            assert (found.makespan, found.span) == (3 * m + p - 1, 3 * m)
            assert max(found.peak) <= 2 * p - 1


def test_formulas_of_v_schedules():
    for p, m in V_SIZES:
        share = {"activation": Fraction(1, 2), **UNITS}
        found = simulate(rules.zb_v(p, m), **share)
        assert max(found.peak) <= p
        if m >= 2 * p - 1:
            assert (found.makespan, found.span) == (6 * m + p - 1, 6 * m)
        found = simulate(rules.v_half(p, m), **share)
        assert max(found.peak) <= (p + 2) // 2
        if m >= p:
            assert found.makespan == 6 * m + ({1: 0, 2: 1}.get(p, 3 * p - (4 if p % 2 else 7)))
        found = simulate(rules.v_min(p, m), **share)
        assert max(found.peak) <= (p + 4) // 3
        assert found.makespan == 6 * m + (4 * p - 5 if p > 1 else 0)


def in_pairs(lists, point):
    """Run paired lists: B of a point is whole, and an activation goes with its input half."""
    first, apart = point["F"], point["B"] - point["W"]
    times = {"forward": first, "backward": apart, "weight": point["W"], "paired": point["paired"]}
    return simulate(lists, kept=0, **times)


@pytest.mark.parametrize("point", points("dualpipe"))
def test_dualpipe_rules_equal_published_figures(point):
    found = in_pairs(rules.dualpipe(point["p"], point["m"]), point)
    assert found.makespan == point["makespan"]
    assert (list(found.busy), list(found.peak)) == (point["busy"], point["peak"])


def test_bubble_of_dualpipe():
    for p, m in [(2, 4), (4, 8), (4, 14), (6, 12), (8, 20), (10, 20)]:
        point = {"F": 10, "B": 20, "W": 10, "paired": 28}
        found = in_pairs(rules.dualpipe(p, m), point)
        assert found.makespan - found.busy[p // 2] == (p // 2 - 1) * (28 + 20 - 30)
        assert found.peak == (p + 1,) * p
        folded = in_pairs(rules.dualpipev(p // 2, m), point)
        assert folded.peak == (p + 1,) * (p // 2)
        assert folded.makespan - folded.busy[-1] == (p // 2 - 1) * (28 + 20 - 30)


def test_each_operation_of_paired_lists_once():
    for p, m in [(2, 4), (4, 8), (6, 14), (8, 16)]:
        for lists in (rules.dualpipe(p, m), rules.dualpipev(p // 2, m), rules.dualpipev(1, m)):
            counted, last = Counter(), {}
            for device, items in enumerate(lists.lists):
                for operation in [one for item in items for one in (item if isinstance(item, rules.Pair) else (item,))]:
                    assert lists.place[operation.stage] == device
                    kind = operation.phase.name[0]
                    assert last.get((kind, operation.stage), -1) < operation.batch
                    last[kind, operation.stage] = operation.batch
                    counted.update(
                        (kind, lists.part[operation.stage], operation.batch) for kind in operation.phase.name
                    )
            expected = [(kind, part, batch) for kind in "FBW" for part in range(lists.parts) for batch in range(m)]
            assert counted == Counter(expected)


@pytest.mark.parametrize(
    ("refused", "argument", "said"),
    [
        (lambda: rules.interleaved(4, 6), "batches", "use 4 or 8 instead of 6"),
        (lambda: rules.interleaved(4, 3), "batches", "use 4 instead of 3"),
        (lambda: rules.interleaved(4, 8, chunks=0), "chunks", "0 chunks"),
        (lambda: rules.chimera(5, 8), "devices", "4 or 6, not 5"),
        (lambda: rules.chimera(1, 8), "devices", "2, not 1"),
        (lambda: rules.dualpipe(3, 8), "devices", "2 or 4, not 3"),
        (lambda: rules.dualpipe(4, 9), "batches", "use 8 or 10 instead of 9"),
        (lambda: rules.dualpipe(4, 6), "batches", "use 8 instead of 6"),
        (lambda: rules.dualpipev(4, 7), "batches", "at least 8 micro-batches; there are 7"),
        *((lambda rule=rule: rule(0, 4), "devices", "0 devices") for rule in (FLUSH | SPLIT).values()),
        *((lambda rule=rule: rule(4, 0), "batches", "0 micro-batches") for rule in (FLUSH | SPLIT).values()),
    ],
)
def test_bad_parameters_are_refused(refused, argument, said):
    with pytest.raises(OptionError) as found:
        refused()
    assert found.value.argument == argument
    assert said in found.value.message
