"""Pipelines whose links compress: a byte takes ratio/bandwidth + 1/codec, for algorithms, placement and both judges."""

import pytest

import remat
from tests.algorithms.parallel.pipeline.test_transfers import FLUSHING, OF_SAMPLES, OF_TOKENS, STREAMS
from tests.oracles import referee

PLAIN = {"bandwidth": 4}
PACKED = {"bandwidth": 2, "ratio": 0.25, "codec": 8}
"""A byte takes 1/8 + 1/8 = 1/4, like 4 bytes per unit of time."""

FEW = ("1f1b", "pipeoffload")
NAMES = sorted({*FLUSHING, "auto"} - STREAMS - OF_SAMPLES - OF_TOKENS)
LITTLE = {"pipe-search": {"moves": 200}, "pipe-exact": {"moves": 200}, "auto": {"moves": 200, "effort": 1}}


def pipeline(levels, host=None, **more):
    layer = {"forward_time": 2, "backward_time": 2, "weight_time": 2, "output_size": 8, "saved_size": 8, "repeat": 4}
    cluster = {"devices": [{"name": "gpu", "count": 2, "memory": 80}], "levels": [levels]}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 4,
        "copies": 2,
        "layers": [layer],
        "cluster": cluster | ({} if host is None else {"host": host}),
    } | more


def test_a_step_by_hand():
    """On two layers each: F 4, 8 bytes cross in 2, F 4, B and W 8, 8 bytes cross back in 2, B and W 8."""
    document = pipeline(PACKED, micro_batches=1)
    result = remat.solve(document, algorithm="gpipe")
    assert result.makespan == 4 + 2 + 4 + 8 + 2 + 8
    verdict = referee.check(document, result.to_dict())
    assert (verdict.violations, verdict.makespan) == ([], result.makespan)
    plain = remat.solve(pipeline({"bandwidth": 2}, micro_batches=1), algorithm="gpipe")
    assert plain.makespan == result.makespan + 2 * 2


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one not in FEW)) for one in NAMES])
def test_every_algorithm_takes_the_time_of_compressed_transfers(name, host):
    answers = []
    for rates in (PLAIN, PACKED):
        document = pipeline(rates, rates) if host else pipeline(rates)
        try:
            result = remat.solve(document, algorithm=name, options=LITTLE.get(name, {}))
        except remat.OptionError as error:
            answers.append(str(error))
            continue
        answers.append((result.status, result.makespan, result.lower_bound, result.peak_memory))
        if result.columns is not None:
            verdict = referee.check(document, result.to_dict())
            assert not verdict.violations, verdict.violations
            assert verdict.makespan == result.makespan
    assert answers[0] == answers[1]


def test_documents():
    document = pipeline(PACKED, PACKED | {"ratio": 0.5})
    machine = remat.show(document).machine
    rates = {(link.bandwidth, link.packed.ratio) for link in machine.links}
    assert rates == {(4, 0.25), (8 / 3, 0.5)}
    built = remat.pipeline(
        forward_time=2,
        backward_time=2,
        weight_time=2,
        output_size=8,
        saved_size=8,
        repeat=[4],
        devices=[{"name": "gpu", "count": 2, "memory": 80}],
        levels=[PACKED],
        micro_batches=4,
        copies=2,
        host=PACKED | {"ratio": 0.5},
        time_unit="unit",
        size_unit="unit",
    )
    assert remat.show(built).digest == remat.show(document).digest != remat.show(pipeline(PACKED, PACKED)).digest
    with pytest.raises(remat.InstanceError, match=r"cluster\.levels\[0\]\.ratio: 2 is out of range"):
        remat.load(pipeline({"ratio": 2}))
