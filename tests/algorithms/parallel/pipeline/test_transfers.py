"""Transfers that hold devices up: every algorithm answers with a schedule that runs, or says that its own one hangs."""

import pytest

import remat
from remat.generate.pipeline import uniform
from remat.plugin.registry import algorithms

FLUSHING = [entry.name for entry in algorithms() if "pipeline" in entry.kinds]
STREAMS = {"1f1b-star", "madpipe", "pipeline-ilp", "pipedream", "pipedream-2bw", "pipemare", "spectrain"}
OF_SAMPLES = {"tarnawski-ip", "placement-replicated", "placement-bound"}
OF_HOSTS = {"pipeoffload", "optpipe"}  # their copies are none of the orders that transfers hold up
OF_TOKENS = {"terapipe"}  # test_terapipe.py
NEVER_HANG = {"gpipe", "gems", "auto"}


def small(transfers, **more):
    return uniform(
        devices=2, micro_batches=4, layers=4, forward_time=4, backward_time=4, weight_time=4, paired_time=10,
        hop=1, copies=2, transfers=transfers, **more,
    )  # fmt: skip


@pytest.mark.parametrize("mode", [pytest.param("blocking", marks=pytest.mark.slow), "rendezvous", "grouped"])
@pytest.mark.parametrize("name", [*sorted(set(FLUSHING) - STREAMS - OF_SAMPLES - OF_HOSTS - OF_TOKENS), "auto"])
def test_every_algorithm_answers_with_a_valid_schedule_or_a_deadlock(name, mode):
    options = {"pipe-search": {"moves": 200}, "pipe-exact": {"moves": 200}, "auto": {"moves": 200, "effort": 1}}.get(
        name, {}
    )
    result = remat.solve(small(mode), algorithm=name, time_limit=20, options=options)
    if result.columns is not None:
        free = remat.solve(small("overlap"), algorithm=name, time_limit=20, options=options)
        assert result.makespan >= free.makespan
        assert remat.verify(small(mode), result.to_dict()).ok
    else:
        assert mode != "blocking"
        assert name not in NEVER_HANG
        assert str(result.status) == "unknown"
        hangs = [note for note in result.notes if note.startswith("hangs where transfers take both ends")]
        assert len(hangs) == 1
        assert f"({mode}): " in hangs[0]
        assert " waits for " in hangs[0]


def test_streams_refuse_blocking_transfers():
    with pytest.raises(remat.InstanceError, match=r"cluster\.transfers.*overlap"):
        remat.load(uniform(weights="stash", transfers="blocking"))
