"""Test stages on several devices: alternating micro-batches, or each micro-batch split into parts."""

import pytest

import remat
from remat.generate.pipeline import uniform
from tests.oracles import referee


def document(**more):
    """Return two layers on four devices; half a micro-batch takes more than half the time, and half the bytes."""
    layer = {"forward_time": 3, "backward_time": 6, "saved_size": 4, "output_size": 2}
    half = {"forward_time": 2, "backward_time": 4, "saved_size": 2, "output_size": 1}
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "micro_batches": 4,
        "copies": 4,
        "samples": 2,
        "layers": [layer | {"parameter_size": 5, "repeat": 2}],
        "parts": [{"samples": 1, "layers": [half]}],
        "cluster": {"devices": [{"name": "d", "count": 4}]},
    } | more


def agreed(given, plan):
    """Return the verifier's report on a plan on which the reference judge agrees."""
    report, verdict = remat.verify(given, plan), referee.check(given, plan)
    assert (report.ok, report.makespan) == (verdict.ok, verdict.makespan)
    assert report.peak_memory == verdict.peaks
    assert report.ok, report.violations
    return report


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "eager-1f1b", "zb-h1", "zb-v", "chimera", "dualpipev"])
@pytest.mark.parametrize("replicas", [2, 4])
def test_in_turns_they_are_pipelines_beside_each_other(name, replicas):
    """Of equal layers without hops: the makespan of one of them with its share of the micro-batches."""
    more = {"forward_time": 4, "backward_time": 3, "weight_time": 2, "paired_time": 7}
    given = uniform(devices=2 * replicas, layers=4, micro_batches=4 * replicas, copies=2 * replicas, **more)
    alone = uniform(devices=2, layers=4, micro_batches=4, copies=2, **more)
    result = remat.solve(given, algorithm=name, options={"replicas": replicas})
    one = remat.solve(alone, algorithm=name)
    assert result.makespan == one.makespan
    assert sorted(result.peak_memory.values()) == sorted([*one.peak_memory.values()] * replicas)
    agreed(given, result.to_dict())


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved-1f1b"])
def test_in_parts_each_takes_a_half(name):
    """1F1B of two stages with the times of halves: (4 + 1)(2 + 4)."""
    options = {"replicas": 2, "sharing": "parts"} | ({"chunks": 1} if name.startswith("inter") else {})
    result = remat.solve(document(), algorithm=name, options=options)
    assert result.makespan == 30
    stages = result.to_dict()["stages"]
    assert [stage.get("part") for stage in stages] == [[1, 2], [2, 2]] * 2
    assert result.lower_bound <= 30
    report = agreed(document(), result.to_dict())
    # Halves go from each device to the one with the same part, and to nobody else.
    assert {way: size for way, size in report.transferred.items() if size} == {
        "d0->d2": 4,
        "d1->d3": 4,
        "d2->d0": 4,
        "d3->d1": 4,
    }


def test_every_byte_is_sent_once_between_unlike_stages():
    """Two devices share the first stage, one has the second: halves there, and halves of the gradient back."""
    plan = {
        "schema": "remat.schedule/2",
        "stages": [
            {"layers": [1], "device": "d0", "part": [1, 2]},
            {"layers": [1], "device": "d1", "part": [2, 2]},
            {"layers": [2], "device": "d2"},
        ],
        "orders": {"d0": ["F0.0", "B0.0"], "d1": ["F1.0", "B1.0"], "d2": ["F2.0", "B2.0"]},
    }
    report = agreed(document(micro_batches=1), plan)
    assert report.makespan == 2 + 3 + 6 + 4
    assert {way: size for way, size in report.transferred.items() if size} == {
        "d0->d2": 1,
        "d1->d2": 1,
        "d2->d0": 1,
        "d2->d1": 1,
    }


def test_pieces_are_for_whoever_reads_them():
    """One device has the first stage, two share the second: 2 + 1 of three bytes there, and halves of 1 back."""
    given = document(micro_batches=1)
    given["layers"][0]["output_size"] = 3
    plan = {
        "schema": "remat.schedule/2",
        "stages": [
            {"layers": [1], "device": "d2"},
            {"layers": [2], "device": "d0", "part": [1, 2]},
            {"layers": [2], "device": "d1", "part": [2, 2]},
        ],
        "orders": {"d0": ["F1.0", "B1.0"], "d1": ["F2.0", "B2.0"], "d2": ["F0.0", "B0.0"]},
    }
    report = agreed(given, plan)
    assert report.makespan == 3 + 2 + 4 + 6
    assert {way: size for way, size in report.transferred.items() if size} == {
        "d2->d0": 2,
        "d2->d1": 1,
        "d0->d2": 2,
        "d1->d2": 1,
    }


def test_a_step_ends_with_one_exchange_a_layer():
    """Each layer's four copies of gradients pass the ring once, for any assignment of parts."""
    cluster = {"devices": [{"name": "d", "count": 2}], "levels": [{"latency": 1}]}
    given = document(cluster=cluster, exchange="ring", layers=[document()["layers"][0] | {"repeat": 1}])
    result = remat.solve(given, algorithm="gpipe", options={"replicas": 2, "sharing": "parts"})
    # Four halves forth and back, 2 (2 - 1) rounds.
    assert result.makespan == 4 * (2 + 4) + 2
    agreed(given, result.to_dict())


def test_bounds_count_all_parts():
    """Halves take 2 + 4, two of them more than the whole: the least is 3 + 6, of eight on four devices."""
    assert remat.show(document()).time_bound == 2 * 4 * (3 + 6) / 4


def test_bounds_hold_for_parts_that_are_quicker_than_their_share():
    """Bounds account for halves that take less than half the time of a whole micro-batch."""
    given = document(micro_batches=1)
    given["parts"][0]["layers"][0] |= {"forward_time": 1, "backward_time": 1, "saved_size": 0, "output_size": 0}
    assert remat.solve(given, time_limit=5).lower_bound <= 4
    parts = remat.solve(given, algorithm="gpipe", options={"replicas": 2, "sharing": "parts"})
    assert parts.makespan == 4
    assert remat.show(given).time_bound <= 4


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (document(), {"replicas": 3}, "4 devices are not a multiple of 3"),
        (document(micro_batches=3), {"replicas": 2}, "3 micro-batches cannot be taken in 2 equal turns"),
        (document(), {"replicas": 4, "sharing": "parts"}, "says nothing of micro-batches in 4 `parts`"),
        (document(copies=1), {"replicas": 2}, "keeps each layer on 2 devices"),
    ],
)
def test_what_cannot_be_shared(given, options, why):
    with pytest.raises(remat.OptionError, match=why):
        remat.solve(given, algorithm="gpipe", options=options)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        (
            [{"layers": [1, 2], "device": "d0", "part": [1, 3]}],
            "does not split a micro-batch into 3 parts; it allows 2",
        ),
        ([{"layers": [1, 2], "device": "d0", "part": [3, 2]}], "first of two parts"),
        ([{"layers": [1, 2], "device": "d0", "part": 1}], "first of two parts"),
        (
            [{"layers": [1, 2], "device": "d0", "part": [1, 2]}, {"layers": [2], "device": "d1"}],
            "layer 2 is in 2 parts elsewhere",
        ),
        (
            [{"layers": [1, 2], "device": "d0"}, {"layers": [2], "device": "d1", "part": [1, 2]}],
            "layer 2 is in 1 parts elsewhere",
        ),
    ],
)
def test_what_is_no_part(stages, why):
    plan = {"schema": "remat.schedule/2", "stages": stages, "orders": {"d0": ["F0.0"]}}
    with pytest.raises(remat.InstanceError, match=why):
        remat.verify(document(), plan)


def test_a_part_that_nobody_runs():
    plan = {
        "schema": "remat.schedule/2",
        "stages": [{"layers": [1, 2], "device": "d0", "part": [1, 2]}],
        "orders": {"d0": ["F0.0", "B0.0"]},
    }
    report = remat.verify(document(micro_batches=1), plan)
    assert {violation.rule for violation in report.violations} == {"required-missing"}
    assert "required-missing" in referee.check(document(micro_batches=1), plan).rules


def test_sizes_are_parts_of_larger_ones():
    """If the micro-batch size is free, the smaller sizes give the times of parts of the larger ones."""
    given = document()
    given |= {"sizes": given.pop("parts")}
    result = remat.solve(given, algorithm="gpipe", options={"replicas": 2, "sharing": "parts"})
    assert (result.makespan, result.to_dict()["samples"]) == (30, 2)
    assert remat.verify(given, result.to_dict()).makespan == 30


def hops(**more):
    """Return eight equal layers on four devices with slow links; a half takes exactly half the time."""
    layer = {"forward_time": 2, "backward_time": 4, "saved_size": 4, "output_size": 2, "repeat": 8}
    half = {"forward_time": 1, "backward_time": 2, "saved_size": 2, "output_size": 1}
    cluster = {"devices": [{"name": "d", "count": 4}], "levels": [{"latency": 5}]}
    return document(layers=[layer | {"parameter_size": 3}], parts=[{"samples": 1, "layers": [half]}]) | (
        {"cluster": cluster} | more
    )


PLANNERS = ("pipedream-dp", "2bw-plan", "dapple-plan", "varuna", "hetpipe", "pipe-torch", "ftpipe", "chimera-plan")


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("exchange", ["none", "ring"])
def test_planners_choose_the_width(name, exchange):
    """The planner's choice equals brute force over the devices per stage and both sharing modes."""
    given = hops(exchange=exchange)
    best = remat.solve(given, algorithm=name)
    agreed(given, best.to_dict())
    each = [
        remat.solve(given, algorithm=name, options={"replicas": count})
        for count in (1, 2, *[4][name == PLANNERS[-1] :])
    ]
    for one in each:
        agreed(given, one.to_dict())
    assert best.makespan == min(one.makespan for one in each)
    # One alternating micro-batch per device, without hops; a gradient exchange adds a ring of 2 (4 - 1) rounds of 5.
    alone = 8 * (2 + 4)
    if name != "chimera-plan" and exchange == "none":
        assert best.makespan == alone
    else:
        assert best.makespan > alone


def test_planners_share_out_where_memory_allows():
    """Each of four devices holds all layers, or if that is too much, a part of them."""

    def parts(result):
        return len({str(stage["layers"]) for stage in result.to_dict()["stages"]})

    wide, narrow = (remat.solve(hops(), algorithm="2bw-plan", budget=budget) for budget in (1_000, 60))
    assert parts(wide) == 1
    assert parts(narrow) > 1
    assert max(narrow.peak_memory.values()) <= 60
    assert narrow.makespan > wide.makespan


def test_groups_of_planners_are_alike():
    """Groups of replicas never mix alternating devices of two types."""
    kinds = [{"name": f"d{k}", "type": ["a", "b"][k % 2]} for k in range(4)]
    given = hops(cluster={"devices": kinds})
    given["layers"][0] |= {"forward_time": {"a": 2, "b": 3}, "backward_time": {"a": 2, "b": 3}}
    given["parts"] = []
    assert len({stage["device"] for stage in remat.solve(given, algorithm="2bw-plan").to_dict()["stages"]}) >= 1
    with pytest.raises(remat.OptionError, match="not all alike"):
        remat.solve(given, algorithm="2bw-plan", options={"replicas": 2})
