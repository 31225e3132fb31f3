"""`madpipe` and `pipeline-ilp` against exhaustive searches."""

import random

import pytest

import remat
from remat.plugin import Proposal
from remat_algorithms.parallel.pipeline import pipeline_ilp
from tests.oracles.periods import Stream, least_period, least_star

LARGEST = 60


def drawn(number, *, layers=(2, 3), hops=False):
    """Draw a stream on equal devices with about as much memory as it needs."""
    chance = random.Random(number)
    count, devices = chance.randint(*layers), chance.randint(2, 3)
    rows = [[chance.randint(*ends) for _ in range(count)] for ends in ((1, 2), (1, 2), (0, 4), (0, 2))]
    mode = chance.choice(["stash", "double", "single"])
    hop = chance.randint(0, 1) if hops and count == 2 else 0
    need = sum(rows[2]) + sum(rows[3])
    room = max(1, need * chance.choice([2, 3, 4, 5, 8]) // (2 * devices))
    return Stream(*rows, mode, chance.randint(1, 3), devices, room, hop)


def document(stream):
    rows = zip(stream.forward, stream.backward, stream.activation, stream.parameters, strict=True)
    keys = ("forward_time", "backward_time", "saved_size", "parameter_size")
    cluster = {"devices": [{"name": "gpu", "count": stream.devices, "memory": stream.room}]}
    if stream.hop:
        cluster["levels"] = [{"latency": stream.hop}]
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": [dict(zip(keys, row, strict=True)) | {"parameter_gradient_size": 0} for row in rows],
        "micro_batches": 6,
        "weights": stream.mode,
        **({"update_every": stream.every} if stream.mode == "double" else {}),
        "cluster": cluster,
    }


def period_of(stream, algorithm, **options):
    result = remat.solve(document(stream), algorithm=algorithm, options=options)
    if result.pattern is None:
        return None, ""
    report = remat.verify(document(stream), result.to_dict())
    assert report.ok, report.violations
    return result.pattern.period, " ".join(result.notes)


# Instances that the exhaustive search solves at once, and others.
SEVERAL = [pytest.param((1, 2, 3, 4, 6, 12, 18, 22)), pytest.param(range(40), marks=pytest.mark.slow)]


@pytest.mark.parametrize("numbers", [pytest.param(range(12)), pytest.param(range(12, 200), marks=pytest.mark.slow)])
def test_cuts_of_one_stage_a_device_are_the_best_of_all(numbers):
    for number in numbers:
        stream = drawn(number, layers=(2, 7))
        wanted = least_star(stream, LARGEST)
        found, note = period_of(stream, "madpipe", special=False)
        assert found == wanted, number
        assert found is None or f"no whole period below {wanted};" in note


@pytest.mark.parametrize("numbers", SEVERAL)
@pytest.mark.parametrize("start", [True, False])
def test_no_pattern_is_shorter_and_what_is_proved_is_so(numbers, start, monkeypatch):
    """No pattern is shorter and proofs hold, also if the programs get no start."""
    if not start:
        monkeypatch.setattr(pipeline_ilp, "madpipe", lambda *_: Proposal())
    for number in numbers:
        stream = drawn(number, hops=True)
        wanted = least_period(stream)
        found, note = period_of(stream, "pipeline-ilp")
        assert found == wanted, number
        assert found is None or note.endswith("proved")
        mad, _ = period_of(stream, "madpipe")
        assert mad is None or mad >= found


@pytest.mark.parametrize("numbers", SEVERAL)
def test_no_contiguous_pattern_is_shorter(numbers):
    for number in numbers:
        stream = drawn(number, hops=True)
        wanted = least_period(stream, contiguous=True)
        found, note = period_of(stream, "pipeline-ilp", contiguous=True)
        assert found == wanted, number
        assert found is None or note.endswith("proved")


def test_a_device_that_holds_both_ends_is_quicker():
    """Three layers of work 2, 4, 2 on two devices: alone, the ends make one device as busy as the middle."""
    stream = Stream([1, 2, 1], [1, 2, 1], [1, 1, 1], [0, 0, 0], "single", 1, 2, 9)
    assert period_of(stream, "1f1b-star")[0] == 6
    for name in ("madpipe", "pipeline-ilp"):
        result = remat.solve(document(stream), algorithm=name)
        assert result.pattern.period == 4
        assert [stage.device for stage in result.pattern.stages] in ([0, 1, 0], [1, 0, 1])
    assert period_of(stream, "madpipe", special=False)[0] == 6
    assert period_of(stream, "pipeline-ilp", contiguous=True)[0] == 6


@pytest.mark.parametrize("name", ["madpipe", "pipeline-ilp"])
def test_they_say_what_they_are_for(name):
    given = document(drawn(0)) | {"weights": "flush"}
    given.pop("update_every", None)
    with pytest.raises(remat.OptionError, match=rf"{name} is for weights stash or double .*, .* are flush"):
        remat.solve(given, algorithm=name)


@pytest.mark.parametrize("algorithm", ["madpipe", "pipeline-ilp"])
@pytest.mark.parametrize("unit", [10**9 + 7, 2**57 - 1])
def test_long_whole_times_are_counted_in_steps(algorithm, unit):
    """The solver takes 64 bits, and each bit is a program more; periods are whole, and no shorter than possible."""
    for number in range(3):
        stream = drawn(number)
        longer = stream._replace(
            forward=[time * unit for time in stream.forward], backward=[time * unit for time in stream.backward]
        )
        period, _ = period_of(stream, algorithm, work=0.02)
        more, _ = period_of(longer, algorithm, work=0.02)
        assert (period is None) == (more is None)
        if period is not None:
            assert type(more) is int
            assert abs(more - period * unit) <= period * unit // 1000


@pytest.mark.parametrize("size", [1, 2**40, 2**56])
def test_sizes_of_any_magnitude_have_an_answer(size):
    """Sums of bytes beyond the solver's range are counted in larger units, which may only lose precision."""
    layer = {"forward_time": 1, "backward_time": 1, "weight_time": 1, "saved_size": size}
    layers = [
        layer | {"output_size": size, "optimizer_size": size, "weight_saved_size": size},
        layer | {"backward_workspace": size, "optimizer_size": size, "gradient_size": size, "weight_saved_size": size},
        layer | {"parameter_size": size, "parameter_gradient_size": size},
        layer | {"output_size": size, "parameter_size": size, "parameter_gradient_size": size},
    ]
    document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": layers, "micro_batches": 1}
    document |= {"cluster": {"devices": [{"name": "gpu", "count": 2}]}, "weights": "double", "update_every": 4}
    result = remat.solve(document, algorithm="madpipe", budget=7 * size)
    small = remat.solve(document, algorithm="1f1b-star", budget=7 * size)
    assert small.makespan is None or result.makespan <= small.makespan
    assert result.makespan is None or all(peak <= 7 * size for peak in result.steady.peaks.values())


def test_a_delay_beyond_all_instants_of_the_program():
    layers = [
        {"forward_time": 1.0, "backward_time": 1e-9},
        {"forward_time": 0.0, "backward_time": 4e-6, "saved_size": 2**56},
    ]
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "layers": layers,
        "micro_batches": 1,
        "weights": "double",
        "update_every": 8,
        "cluster": {"devices": [{"name": "gpu", "count": 2}], "levels": [{"bandwidth": 2, "delay": 1e25}]},
    }
    result = remat.solve(document, algorithm="pipeline-ilp", options={"work": 0.02})
    assert result.report is not None
    assert result.report.ok
