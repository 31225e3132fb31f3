"""Cuts by table, against the reference and against exhaustive search."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remat_algorithms.parallel.pipeline.planners import stage_measures
from remat_algorithms.parallel.pipeline.planners.device_classes import best_order
from remat_algorithms.parallel.pipeline.planners.latency import quickest
from remat_algorithms.parallel.pipeline.planners.layer_sums import Hop, Line, Position, Row
from remat_algorithms.parallel.pipeline.planners.minimum_period import groups, least_period, least_period_cuts
from tests import places
from tests.algorithms.parallel.pipeline.planners import chains
from tests.oracles import partitions

POINTS = json.loads((places.REFERENCE / "pipeline_partitions.json").read_text())["points"]
FEW = settings(max_examples=40, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def planned(point):
    """Return all figures of a point as the planners' functions have them."""
    free, tight = chains.line_of(point), chains.line_of(point, point["memory"])
    flush = {
        key: quickest(line, [point["p"]], chains.judge_of(point), 100_000)
        for key, line in (("flush_any", free), ("flush_fit", tight))
    }
    assert all(found is None or found.proved for found in flush.values())
    period = least_period_cuts(tight)
    return {
        "max_compute": stage_measures.least_largest(free, stage_measures.compute)[0],
        "max_load": stage_measures.least_largest(free, stage_measures.serial)[0],
        **{key: found and found.makespan for key, found in flush.items()},
        "period_fit_double": period and period[0],
    }


@pytest.mark.parametrize("point", POINTS, ids=lambda point: str(point["id"]))
def test_plans_equal_published_figures(point):
    figures = {key: point[key] for key in planned(point)}
    assert planned(point) == figures
    assert partitions.best(point) == figures  # so that the search may judge other chains


@FEW
@given(chains.points())
def test_figures_of_drawn_chains(point):
    assert planned(point) == partitions.best(point)


def costs(point, cuts, counting):
    """Return the largest cost of a stage, or the latency, as the papers count them."""
    work = partitions.split(chains.work_of(point), cuts)
    hops = [point["transfer"][cut - 1] for cut in cuts[1:-1]]
    before, after = [0, *hops], [*hops, 0]
    match counting:
        case "overlapped":
            return max(*work, *(2 * hop for hop in hops), 0)
        case "received":
            return max(w + x + y for w, x, y in zip(work, before, after, strict=True))
        case "pivoted":
            batches, way, found = point["m"], 0, []
            for w, y in zip(work, after, strict=True):
                found.append(way + batches * w)
                way += w + 2 * y
                found.append(way + (batches - 1) * y)
            return max(found)
    raise ValueError(counting)


@FEW
@given(chains.points(), st.sampled_from(["overlapped", "received", "pivoted"]), st.booleans())
def test_measures_are_least(point, counting, memory):
    """Measures equal the minimum over all cuts whose stages fit, and the cuts have the reported value."""
    room = point["memory"] if memory else None
    line = chains.line_of(point, room)
    every = [
        cuts
        for cuts in partitions.cuts_of(len(point["f"]), point["p"])
        if room is None or max(partitions.keeps(point["activation"], point["weights"], cuts, point["m"])) <= room
    ]
    wanted = min((costs(point, cuts, counting) for cuts in every), default=None)
    if counting == "pivoted":
        table = stage_measures.table_of(line, stage_measures.pivoted)
        found = None if table.value(point["p"]) == np.inf else (table.value(point["p"]), table.cuts(point["p"]))
    else:
        found = stage_measures.least_largest(line, getattr(stage_measures, counting))
    assert (found and found[0]) == wanted
    if found is not None:
        assert found[1] in every
        assert costs(point, found[1], counting) == wanted


def test_a_way_may_be_what_never_waits():
    """Three micro-batches cross a link of 50: the first returns to it after 102, and then two more pass."""
    point = {"f": [1, 1], "b": [1, 1], "activation": [0, 0], "weights": [0, 0], "transfer": [50], "p": 2, "m": 3}
    assert stage_measures.table_of(chains.line_of(point), stage_measures.pivoted).value(2) == 2 + 2 * 50 + 2 * 50
    assert chains.judge_of(point)([0, 1, 2]) >= 202


@FEW
@given(chains.points())
def test_latency_is_a_bound(point):
    for cuts in partitions.cuts_of(len(point["f"]), point["p"]):
        assert costs(point, cuts, "pivoted") <= chains.judge_of(point)(cuts)


@settings(FEW, max_examples=30)
@given(chains.points(most=5), st.data())
def test_orders_of_devices(point, data):
    """Compare with all orders and choices of devices of two classes and two kinds of links."""
    count = len(point["f"])
    classes = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=4))
    kinds = sorted(set(classes))
    classes = [kinds.index(kind) for kind in classes]
    slower = data.draw(st.integers(1, 3))
    rooms = [point["memory"], data.draw(st.sampled_from([None, point["memory"] // 2]))]
    stop = np.full(count + 1, count)
    if data.draw(st.booleans()):
        barred = data.draw(st.integers(0, count - 1))
        stop[: barred + 1] = barred
    row = Row.of(point["activation"], point["weights"])
    work = [np.concatenate(([0.0], np.cumsum(chains.work_of(point)) * (slower if kind else 1))) for kind in (0, 1)]
    ends = [np.full(count + 1, count), stop]
    positions = tuple(Position(work[kind], ends[kind], rooms[kind]) for kind in classes)
    near, far = Hop.of([0] * (count - 1)), Hop.of(point["transfer"])
    hops = lambda one, other: near if one // 2 == other // 2 else far  # noqa: E731
    line = Line(row, positions, (far,) * (len(classes) - 1), point["m"])
    able = range(1, min(len(classes), count) + 1)

    def least(orders):
        return partitions.least(
            serial(point, cuts, order, positions, hops)
            for order in orders
            for cuts in partitions.cuts_of(count, len(order))
        )

    every = [order for size in able for order in itertools.permutations(range(len(classes)), size)]
    found = best_order(line, classes, hops, list(able))
    best = least(filter(lambda order: lasts(order, classes), every))
    assert (found is None) == (best is None)
    if found is not None:
        assert least(every) <= found[0] <= best
        assert least([found[1]]) == found[0]


def lasts(order, classes):
    """Whether the devices of each class are the last ones of it, in their order."""
    return all(
        own == [device for device, other in enumerate(classes) if other == kind][-len(own) :]
        for kind in set(classes)
        if (own := [device for device in order if classes[device] == kind])
    )


def serial(point, cuts, order, positions, hops):
    """Return the largest cost of a stage with its transfers; None where one does not fit."""
    kept = partitions.keeps(point["activation"], point["weights"], cuts, point["m"])
    found = []
    for s, (first, end, device) in enumerate(zip(cuts[:-1], cuts[1:], order, strict=True)):
        position = positions[device]
        if position.stop[first] < end or (position.room is not None and kept[s] > position.room):
            return None
        cost = position.work[end] - position.work[first]
        if s:
            cost += 2 * hops(order[s - 1], device).there[first]
        if s + 1 < len(order):
            cost += 2 * hops(device, order[s + 1]).there[end]
        found.append(cost)
    return max(found)


@FEW
@given(chains.points())
def test_periods_of_a_cut_equal_the_oracle(point):
    """Periods of one cut and its groups, for whole and for other times."""
    for cuts in partitions.cuts_of(len(point["f"]), point["p"]):
        work, held, kept = (
            partitions.split(values, cuts) for values in (chains.work_of(point), point["activation"], point["weights"])
        )
        hops = [point["transfer"][cut - 1] for cut in cuts[1:-1]]
        rooms = [point["memory"]] * point["p"]
        wanted = partitions.least_period(work, hops, held, kept, point["memory"])
        assert least_period(work, [2 * hop for hop in hops], held, kept, rooms) == wanted
        halves = least_period([w / 2 for w in work], hops, held, kept, rooms)
        assert halves == (None if wanted is None else wanted / 2)
        if wanted is not None:
            assert groups(work, [2 * hop for hop in hops], wanted) == partitions.groups(work, hops, wanted)


def test_more_devices_than_layers():
    point = POINTS[0] | {"p": len(POINTS[0]["f"]) + 1}
    with pytest.raises(ValueError, match="7 stages of at least one layer each, and 6 layers"):
        stage_measures.least_largest(chains.line_of(point), stage_measures.compute)
    assert least_period_cuts(chains.line_of(point)) is None
