"""Compare 1F1B* with reference values, a constraint program and a simulation of weight versions."""

import json
import random

import pytest

import remat
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Row, least_period, star
from tests import places
from tests.oracles.streams import hold, least_kept

POINTS = json.loads((places.REFERENCE / "pipeline_periodic.json").read_text())["points"]
VERSIONS = {"flush-like": lambda kept: 1, "stash": lambda kept: kept, "double": lambda kept: min(2, kept)}
SEVERAL = [pytest.param(range(4)), pytest.param(range(4, 50), marks=pytest.mark.slow)]


def row_of(forward, backward, hops):
    return Row(tuple(forward), tuple(backward), tuple(Hop(hop, hop, is_shared=True) for hop in hops))


def document(forward, backward, activation, weights, mode):
    layers = [
        {
            "forward_time": f,
            "backward_time": b,
            "saved_size": a,
            "parameter_size": w,
            "parameter_gradient_size": 0,
        }
        for f, b, a, w in zip(forward, backward, activation, weights, strict=True)
    ]
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": 12,
        "weights": mode,
        **({"update_every": 100} if mode == "double" else {}),
        "cluster": {"devices": [{"name": "gpu", "count": len(layers)}]},
    }


def machine(hops, capacity=None):
    """Return devices in a row whose links carry both directions, one at a time."""
    names = [f"gpu{k}" for k in range(len(hops) + 1)]
    near = [(k, k + 1, hop) for k, hop in enumerate(hops)]
    return {
        "memories": [{"name": name, **({} if capacity is None else {"capacity": capacity})} for name in names],
        "processors": [{"name": name, "memory": name, "type": "gpu"} for name in names],
        "links": [
            {"source": names[one], "target": names[other], "latency": hop, "channel": f"way{min(one, other)}"}
            for first, second, hop in near
            for one, other in ((first, second), (second, first))
        ],
    }


@pytest.mark.parametrize("point", [pytest.param(point, id=str(point["id"])) for point in POINTS])
def test_activations_equal_published_figures(point):
    row = row_of(point["F"], point["B"], point["C"])
    assert list(star(row, point["T"]).kept) == point["keep"]
    for mode, versions in VERSIONS.items():

        def fits(found, versions=versions):
            kept = zip(found.kept, point["A"], point["weights"], strict=True)
            return all(count * a + versions(count) * w <= point["memory"] for count, a, w in kept)

        found = least_period(row, fits)
        assert (found and found.period) == point["least_period"][mode]


@pytest.mark.parametrize("point", [pytest.param(point, id=str(point["id"])) for point in POINTS[::6]])
@pytest.mark.parametrize("mode", ["stash", "double"])
def test_reference_as_judged(point, mode):
    """The same periods come of an instance, and its schedule is judged with the bytes that the figures say."""
    given = document(point["F"], point["B"], point["A"], point["weights"], mode)
    wanted = point["least_period"][mode]
    here = machine(point["C"], point["memory"])
    result = remat.solve(given, algorithm="1f1b-star", machine=here)
    assert (result.pattern and result.pattern.period) == wanted
    if wanted is None:
        return
    report = remat.verify(given, result.to_dict(), machine=here)
    assert report.ok, report.violations
    steady = report.steady
    assert steady == result.report.steady
    for stage, kept in enumerate(steady.in_flight):
        bytes_ = kept * point["A"][stage] + VERSIONS[mode](kept) * point["weights"][stage]
        assert steady.peaks[f"gpu{stage}"] == bytes_


def draw(number):
    chance = random.Random(number)
    stages = chance.randint(2, 4)
    forward, backward = ([chance.randint(1, 5) for _ in range(stages)] for _ in range(2))
    hops = [chance.randint(0, 2) for _ in range(stages - 1)]
    row = row_of(forward, backward, hops)
    return row, (forward, backward, hops), chance.randint(row.least_period, row.time)


@pytest.mark.parametrize("numbers", SEVERAL)
def test_no_pattern_keeps_less_anywhere(numbers):
    for number in numbers:
        row, (forward, backward, hops), period = draw(number)
        kept = star(row, period).kept
        for stage, count in enumerate(kept):
            assert count == least_kept(forward, backward, hops, period, stage), (number, stage)


@pytest.mark.parametrize("numbers", [pytest.param(range(15)), pytest.param(range(15, 200), marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", ["stash", "double", "single"])
def test_what_is_held_is_what_a_simulation_of_versions_holds(numbers, mode):
    """Modulo the period, and as K and 2K micro-batches: bytes, versions and staleness are those counted one by one."""
    for number in numbers:
        _, (forward, backward, hops), period = draw(number)
        chance = random.Random(-number)
        activation, weights = ([chance.randint(0, 9) for _ in forward] for _ in range(2))
        given, here = document(forward, backward, activation, weights, mode), machine(hops)
        result = remat.solve(given, algorithm="1f1b-star", machine=here, options={"period": period})
        steady, starts = result.report.steady, {}
        for beat in result.pattern.beats:
            if not beat.is_copy:
                starts[beat.operation] = result.pattern.start_of(beat)
        enough = max(beat.shift for beat in result.pattern.beats) + 2
        makespans = []
        for batches in (enough, 2 * enough):
            longer = remat.verify({**given, "micro_batches": batches}, again(result), machine=here)
            assert longer.ok, longer.violations
            assert longer.peak_memory == dict(steady.peaks)
            makespans.append(longer.makespan)
        assert makespans[1] - makespans[0] == enough * period
        for stage, took in enumerate(backward):
            begin, end = starts[f"F{stage}"], starts[f"B{stage}"] + took
            held = hold(
                begin, end, period, (activation[stage], weights[stage]), mode, 100 if mode == "double" else 1, 250
            )
            name = f"gpu{stage}"
            found = (steady.peaks[name], steady.in_flight[stage], steady.versions[stage], steady.staleness[stage])
            assert found == tuple(held), (number, stage)


def again(result):
    """Return the schedule, for an instance that looks at more of the stream."""
    kept = result.to_dict()
    return {key: kept[key] for key in ("schema", "stages", "period", "pattern", "machine")}


def test_five_stages_of_predicted_weights():
    """Stage s has 5 - s in flight: so many A = 10, W = 100 twice but in the last one, and a momentum of 7 once."""
    given = document([1] * 5, [2] * 5, [10] * 5, [100] * 5, "predicted")
    given["layers"] = [layer | {"discrepancy_size": 7} for layer in given["layers"]]
    result = remat.solve(given, algorithm="spectrain")
    steady = result.report.steady
    assert (result.pattern.period, steady.in_flight, steady.versions) == (3, (5, 4, 3, 2, 1), (2, 2, 2, 2, 1))
    assert steady.staleness == (4, 3, 2, 1, 0)
    assert list(steady.peaks.values()) == [257, 247, 237, 227, 117]


@pytest.mark.parametrize(
    ("mode", "peaks"),
    [
        ("stash", [440, 330, 220, 110]),  # g (A + W)
        ("double", [240, 230, 220, 110]),  # g A + min(2, g) W
        ("single", [140, 130, 120, 110]),  # g A + W
        ("predicted", [240, 230, 220, 110]),  # g A + min(2, g) W
    ],
)
def test_peaks_of_equal_stages(mode, peaks):
    name = {"stash": "pipedream", "double": "pipedream-2bw", "single": "pipemare", "predicted": "spectrain"}[mode]
    given = document([1] * 4, [2] * 4, [10] * 4, [100] * 4, mode)
    for algorithm in (name, "1f1b-star", "auto"):
        result = remat.solve(given, algorithm=algorithm)
        assert result.pattern.period == 3
        assert result.report.steady.in_flight == (4, 3, 2, 1)
        assert list(result.report.steady.peaks.values()) == list(result.peak_memory.values()) == peaks


def test_less_memory_takes_a_longer_period():
    given = document([1] * 4, [2] * 4, [10] * 4, [100] * 4, "stash")
    periods = [remat.solve(given, algorithm="1f1b-star", budget=b).pattern.period for b in (440, 439, 330, 220, 110)]
    assert periods == [3, 6, 6, 6, 12]
    assert remat.solve(given, algorithm="1f1b-star", budget=109).pattern is None


def test_a_period_that_a_device_cannot_keep_names_it():
    given = document([1, 2, 1], [2, 4, 2], [1] * 3, [1] * 3, "stash")
    with pytest.raises(
        remat.OptionError, match=r"no pattern .* has a period of 5.0: gpu1 takes 6 for each micro-batch"
    ):
        remat.solve(given, algorithm="1f1b-star", options={"period": 5})


def test_algorithms_say_what_they_are_for():
    flush = document([1, 1], [1, 1], [1, 1], [1, 1], "flush")
    stream = document([1, 1], [1, 1], [1, 1], [1, 1], "single")
    with pytest.raises(remat.OptionError, match=r"1f1b-star is for weights stash or double .*, .* are flush"):
        remat.solve(flush, algorithm="1f1b-star")
    for name in ("pipedream", "pipedream-2bw"):
        with pytest.raises(remat.OptionError, match=rf"{name} is for weights (stash|double), and .* are single"):
            remat.solve(stream, algorithm=name)
    for name in ("gpipe", "pipe-search", "pipe-exact"):
        with pytest.raises(remat.OptionError, match=r"ends with a change of the parameters .weights flush."):
            remat.solve(stream, algorithm=name)


def test_cuts_are_moved_where_memory_asks_for_it():
    given = document([4, 1, 1, 1, 1], [4, 1, 1, 1, 1], [9, 1, 1, 1, 1], [0] * 5, "single")
    given["cluster"]["devices"][0]["count"] = 2
    free = remat.solve(given, algorithm="1f1b-star")
    assert [stage.layers for stage in free.pattern.stages] == [(0,), (1, 2, 3, 4)]
    assert free.pattern.period == 8
    tight = remat.solve(given, algorithm="1f1b-star", budget=9)
    assert tight.pattern.period > 8
    assert max(tight.peak_memory.values()) <= 9
