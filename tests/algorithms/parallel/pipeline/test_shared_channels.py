"""Streams on machines whose links share channels with each other or with devices, or are missing."""

import itertools
import random

import pytest

import remat
from remat.errors import RematError
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Row, least_period, star
from remat_algorithms.parallel.pipeline.shared_channels import Occupied, pattern_in_turns
from tests.algorithms.parallel import drawn
from tests.fuzz.kinds import machines
from tests.fuzz.kinds.figures import Draw
from tests.oracles import referee

PERIODIC = (
    "1f1b-star",
    "madpipe",
    "pipedream",
    "pipedream-2bw",
    "pipeline-ilp",
    "pipemare",
    "spectrain",
    "tarnawski-dp",
)
QUICK = ("1f1b-star", "pipedream", "pipedream-2bw", "pipemare", "spectrain", "tarnawski-dp")


def stream(chance, devices):
    """Draw a pipeline without end, with about two layers for each device."""
    layers = [
        {
            "forward_time": chance.randint(0, 6),
            "backward_time": chance.randint(0, 8),
            "saved_size": chance.randint(0, 5),
            "output_size": chance.randint(0, 4),
            "parameter_size": chance.choice([0, 0, 2]),
        }
        for _ in range(chance.choice([devices, 2 * devices]))
    ]
    mode = chance.choice(["stash", "double", "single", "predicted"])
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": {"time": "unit", "memory": "unit"},
        "layers": layers,
        "micro_batches": 4,
        "weights": mode,
        **({"update_every": 2 * devices} if mode == "double" else {}),
        "cluster": {"devices": [{"name": "gpu", "count": devices}]},
    }


def machine(names, channel, **rates):
    """Return devices with a link between any two in each direction; `channel` names its channel."""
    return {
        "memories": [{"name": name} for name in names],
        "processors": [{"name": name, "memory": name, "type": "gpu"} for name in names],
        "links": [
            {"source": names[one], "target": names[other], **rates}
            | ({} if channel(one, other) is None else {"channel": channel(one, other)})
            for one, other in itertools.permutations(range(len(names)), 2)
        ],
    }


def solved(document, here, name):
    """Return the result of an algorithm, judged by the second referee; None if it refuses the machine."""
    try:
        result = remat.solve(document, machine=here, algorithm=name, options=drawn.WORK.get(name, {}))
    except RematError:
        return None
    if result.pattern is not None:
        verdict = referee.check(document | {"machine": here}, result.to_dict())
        assert verdict.ok, (name, verdict.violations)
        assert result.makespan == pytest.approx(verdict.time_per_sample)
    return result


# --- drawn machines ---------------------------------------------------------------------------------------------------


def found_on_drawn_machines(numbers, names):
    found = dict.fromkeys(names, 0)
    for number in numbers:
        chance = random.Random(f"stream {number}")
        devices = chance.choice([2, 2, 3, 4])
        document = stream(chance, devices)
        kinds = [(f"gpu{k}", "gpu") for k in range(devices)]
        draw = Draw(f"machine {number}")
        draw.wild = draw.spread = draw.equal = False
        draw.time_scale = draw.scale = 1
        here = machines.of_devices(draw, kinds, machines.CHANNELS[number % len(machines.CHANNELS)])
        for name in names:
            result = solved(document, here, name)
            found[name] += result is not None and result.pattern is not None
    return found


def test_patterns_on_drawn_machines_are_valid():
    assert found_on_drawn_machines(range(30), QUICK)["tarnawski-dp"] > 15


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 600, 50))
def test_patterns_on_drawn_machines_are_valid_often(first):
    assert min(found_on_drawn_machines(range(first, first + 50), PERIODIC).values()) > 0


# --- what shares a channel --------------------------------------------------------------------------------------------

NAMES = ("gpu0", "gpu1")
BOTH_WAYS = [
    pytest.param(lambda one, other: "bus", id="one channel"),
    pytest.param(lambda one, other: ["bus", f"own {one}"], id="one of two channels"),
    pytest.param(lambda one, other: None if one else "gpu1->gpu0", id="the own channel of the other"),
]
ONE_WAY = [
    pytest.param(lambda one, other: None, id="unnamed"),
    pytest.param(lambda one, other: f"{one} to {other}", id="named"),
    pytest.param(lambda one, other: [f"{one} to {other}", f"more {one}"], id="two of two channels"),
]


def transfers_decide():
    """Return a stream on two devices whose transfers take 3 in each direction, and each stage 2."""
    layers = [{"forward_time": 1, "backward_time": 1, "output_size": 3}] * 2
    document = stream(random.Random(0), 2) | {"layers": layers, "weights": "stash"}
    document.pop("update_every", None)
    return document


@pytest.mark.parametrize("name", ["1f1b-star", "madpipe", "pipedream", "pipeline-ilp", "tarnawski-dp"])
@pytest.mark.parametrize("channel", BOTH_WAYS)
def test_both_directions_on_one_channel_take_turns(name, channel):
    result = solved(transfers_decide(), machine(NAMES, channel, bandwidth=1), name)
    alone = name in ("madpipe", "pipeline-ilp", "tarnawski-dp")  # all layers on one device
    # `pipedream` keeps at most two micro-batches: with a period of 7, the transfers of three would take turns.
    assert result.pattern.period == (4 if alone else 8 if name == "pipedream" else 6)


@pytest.mark.parametrize("name", ["1f1b-star", "madpipe", "pipedream", "pipeline-ilp", "tarnawski-dp"])
@pytest.mark.parametrize("channel", ONE_WAY)
def test_directions_with_channels_of_their_own_overlap(name, channel):
    # `pipedream` keeps at most two micro-batches, and one of them takes 10.
    result = solved(transfers_decide(), machine(NAMES, channel, bandwidth=1), name)
    assert result.pattern.period == (5 if name == "pipedream" else 3)


@pytest.mark.parametrize("name", ["1f1b-star", "madpipe", "pipedream", "pipeline-ilp"])
@pytest.mark.parametrize("channel", ["gpu1", ["bus", "gpu0"]])
def test_transfers_that_occupy_devices_are_refused(name, channel):
    here = machine(NAMES, lambda one, other: channel, bandwidth=1)
    with pytest.raises(remat.OptionError, match="needs a separate channel between each pair"):
        remat.solve(transfers_decide(), machine=here, algorithm=name)


def test_transfers_that_occupy_devices_take_their_time():
    """One device alone takes 4; on two, each transfer occupies the second one."""
    document = transfers_decide()
    document["layers"] = [{"forward_time": 4, "backward_time": 4, "output_size": 1}] * 2
    result = solved(document, machine(NAMES, lambda one, other: "gpu1", bandwidth=1), "tarnawski-dp")
    assert result.pattern.period == 10


@pytest.mark.parametrize("name", ["1f1b-star", "madpipe", "pipedream", "pipeline-ilp", "tarnawski-dp"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_direction(name, missing):
    here = machine(NAMES, lambda one, other: None)
    del here["links"][missing]
    if name in ("madpipe", "pipeline-ilp"):  # all layers on one device
        assert solved(transfers_decide(), here, name).pattern.period == 4
        return
    with pytest.raises(remat.OptionError, match=r"no link|no devices in a row"):
        remat.solve(transfers_decide(), machine=here, algorithm=name)


@pytest.mark.parametrize("name", ["madpipe", "pipeline-ilp", "tarnawski-dp"])
def test_only_linked_devices_are_neighbours(name):
    """Links connect each device to the middle one only."""
    names = ("gpu0", "gpu1", "gpu2")
    here = machine(names, lambda one, other: None)
    here["links"] = [link for link in here["links"] if "gpu0" in (link["source"], link["target"])]
    document = transfers_decide()
    document |= {"layers": document["layers"][:1] * 3, "cluster": {"devices": [{"name": "gpu", "count": 3}]}}
    result = solved(document, here, name)
    assert result.pattern.period == 2
    assert [stage.device for stage in result.pattern.stages][1] == 0


# --- patterns in turns ------------------------------------------------------------------------------------------------


def row_of(chance, scale=1):
    stages = chance.randint(1, 5)

    def times(count, most):
        return tuple(chance.randint(0, most) * scale for _ in range(count))

    hops = zip(times(stages - 1, 3), times(stages - 1, 3), times(stages - 1, 1), times(stages - 1, 1), strict=True)
    shared = [chance.random() < 0.5 for _ in range(stages - 1)]
    rows = tuple(Hop(out, back, later, is_shared=one) for (out, back, *later), one in zip(hops, shared, strict=True))
    return Row(times(stages, 5), times(stages, 5), rows)


def test_with_channels_of_their_own_it_is_1f1b_star():
    for number in range(300):
        chance = random.Random(number)
        row = row_of(chance)
        stages = len(row.forward)
        hops = [(stages + k, stages + k if hop.is_shared else 50 + k) for k, hop in enumerate(row.hops)]
        occupied = Occupied(tuple((k,) for k in range(stages)), tuple(((out,), (back,)) for out, back in hops))
        assert occupied.are_apart
        low, high = row.least_period or 1, row.time or 1
        for period in {low, high, chance.randint(low, high)}:
            assert pattern_in_turns(row, occupied, period) == star(row, period)


def overlaps(spans, period):
    """Return whether (start, length) pairs overlap modulo a period, comparing all repetitions."""
    far = 1 + int(max(start + length for start, length in spans) / period)
    for (number, (start, length)), (index, (other, more)) in itertools.product(enumerate(spans), repeat=2):
        for shift in range(-far, far + 1):
            begin = other + shift * period
            if (number, 0) != (index, shift) and begin < start + length and start < begin + more:
                return True
    return False


@pytest.mark.parametrize("scale", [1, 0.1])
def test_no_resource_is_used_twice_at_once(scale):
    found = 0
    for number in range(150):
        chance = random.Random(number)
        row = row_of(chance, 1)
        stages = len(row.forward)
        pool = range(stages + 3)
        ways = tuple(tuple(tuple(chance.sample(pool, chance.randint(1, 2))) for _ in range(2)) for _ in row.hops)
        occupied = Occupied(tuple((k,) for k in range(stages)), ways)
        whole = least_period(
            row, lambda made: True, lambda row, period, own=occupied: pattern_in_turns(row, own, period)
        )
        if scale != 1:
            row = Row(
                *(tuple(time * scale for time in times) for times in (row.forward, row.backward)), scaled(row, scale)
            )
        given = whole.period * scale
        pattern = pattern_in_turns(row, occupied, given)
        if scale != 1 and pattern is None:
            continue  # rounding decides which one of two equal places comes first
        found += 1
        used = {}
        for stage in range(stages):
            used.setdefault(stage, []).append((pattern.forward[stage], row.forward[stage]))
            used[stage].append((pattern.backward[stage], row.backward[stage]))
        for hop, (out, back), sent, returned in zip(row.hops, ways, pattern.sent, pattern.returned, strict=True):
            for held, one in ((out, (sent, hop.forward)), (back, (returned, hop.backward))):
                for resource in held:
                    used.setdefault(resource, []).append(one)
        less = 0 if scale == 1 else 1e-9
        for spans in used.values():
            assert not overlaps([(start + less, length - 2 * less) for start, length in spans], given), number
        assert_in_order(row, pattern, less)
    assert found > 100


def scaled(row, scale):
    return tuple(
        Hop(hop.forward * scale, hop.backward * scale, tuple(time * scale for time in hop.later), hop.is_shared)
        for hop in row.hops
    )


def assert_in_order(row, pattern, slack):
    """Check that each operation of a micro-batch begins after the one before it has arrived."""
    path = []
    for stage, time in enumerate(row.forward):
        path.append((pattern.forward[stage], time))
        if stage < len(row.hops):
            path.append((pattern.sent[stage], row.hops[stage].forward + row.hops[stage].later[0]))
    for stage in range(len(row.backward) - 1, -1, -1):
        path.append((pattern.backward[stage], row.backward[stage]))
        if stage:
            path.append((pattern.returned[stage - 1], row.hops[stage - 1].backward + row.hops[stage - 1].later[1]))
    for (begin, took), (following, _) in itertools.pairwise(path):
        assert begin + took <= following + slack


# --- pipelines that run once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "pipe-plan", "tarnawski-dp"])
@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(lambda one, other: "gpu1", id="a device"),
        pytest.param(lambda one, other: [f"own {one}", "bus"], id="a second channel of both"),
    ],
)
def test_orders_know_one_channel_of_a_link(name, channel):
    document = transfers_decide() | {"weights": "flush"}
    with pytest.raises(remat.OptionError, match=r"links such as gpu[01]->gpu[01]"):
        remat.solve(document, machine=machine(NAMES, channel, bandwidth=1), algorithm=name)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "tarnawski-dp"])
@pytest.mark.parametrize(
    "channel",
    [
        pytest.param(lambda one, other: "bus", id="one channel"),
        pytest.param(lambda one, other: [f"own {one}", f"also own {one}"], id="two separate channels"),
    ],
)
def test_orders_take_turns_on_a_channel(name, channel):
    document = transfers_decide() | {"weights": "flush"}
    here = machine(NAMES, channel, bandwidth=1)
    result = remat.solve(document, machine=here, algorithm=name)
    verdict = referee.check(document | {"machine": here}, result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == result.makespan


@pytest.mark.parametrize("mode", ["blocking", "rendezvous", "grouped"])
def test_transfers_that_block_devices_are_placed(mode):
    document = transfers_decide() | {"weights": "flush"}
    document["cluster"] = document["cluster"] | {"transfers": mode, "levels": [{"bandwidth": 1}]}
    assert remat.solve(document, algorithm="gpipe").makespan is not None
