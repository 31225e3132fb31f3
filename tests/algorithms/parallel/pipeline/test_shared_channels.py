"""Streams on machines whose links share channels with each other or with devices, or are missing."""

import itertools
import random

import pytest

import remat
from remat.errors import RematError
from remat.plugin import Link, Machine, Memory, Processor, registry
from remat_algorithms.parallel.pipeline.linked_devices import longest_row
from remat_algorithms.parallel.pipeline.one_f_one_b_star import Hop, Row, least_period, star
from remat_algorithms.parallel.pipeline.shared_channels import Occupied, pattern_in_turns
from tests.algorithms.parallel import drawn
from tests.fuzz.kinds import machines, pipelines
from tests.fuzz.kinds.figures import Draw
from tests.fuzz.transformations import expanded
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
    if name in ("madpipe", "pipeline-ilp", "tarnawski-dp"):  # all layers on one device
        assert solved(transfers_decide(), here, name).pattern.period == 4
        return
    with pytest.raises(remat.OptionError, match=r"no link"):
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

CHANNELS_OF_STEPS = [
    pytest.param(lambda one, other: "bus", id="one channel"),
    pytest.param(lambda one, other: [f"own {one}", f"also own {one}"], id="two separate channels"),
    pytest.param(lambda one, other: [f"own {one}", "bus"], id="a common second channel"),
    pytest.param(lambda one, other: "gpu1", id="a device"),
    pytest.param(lambda one, other: [f"own {one}", "gpu0"], id="a channel and a device"),
]


def step(number):
    """Draw a pipeline that runs once, and a machine that lacks some links."""
    draw, chance = Draw(f"step {number}"), random.Random(f"step {number}")
    document = [pipelines.pipeline, pipelines.even, pipelines.split, pipelines.doubled][number % 4](draw)
    document |= {"schema": "remat.instance/3", "kind": "pipeline", "units": {"time": "unit", "memory": "unit"}}
    kinds = [
        (name, entry.get("type", entry["name"])) for entry in document["cluster"]["devices"] for name in expanded(entry)
    ]
    here = machines.of_devices(draw, kinds)
    if number % 3 == 0 and here.get("links"):
        here["links"] = [link for link in here["links"] if chance.random() < 0.7]
    chance.shuffle(here["memories"])
    return document, here


def answered_steps(numbers, names):
    """Return how often each algorithm answers; only refusals in one line are allowed otherwise."""
    found = dict.fromkeys(names, 0)
    for number in numbers:
        document, here = step(number)
        try:
            remat.load(document)
        except remat.InstanceError:
            continue
        for name in names:
            try:
                options = drawn.WORK.get(name, {})
                result = remat.solve(document, machine=here, algorithm=name, options=options, time_limit=5)
            except RematError:  # its text is one line
                continue
            if result.columns is not None:
                verdict = referee.check(document | {"machine": here}, result.to_dict())
                assert verdict.ok, (number, name, verdict.violations)
                if isinstance(result.makespan, int):  # of floats, rounding decides which transfer comes first
                    assert result.makespan in (verdict.makespan, verdict.time_per_sample), (number, name)
                found[name] += 1
    return found


def test_steps_on_drawn_machines():
    found = answered_steps(range(24), ("1f1b", "gpipe", "zb-h1", "chimera", "tarnawski-dp", "piper"))
    assert found["1f1b"] > 5
    assert found["tarnawski-dp"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 400, 40))
def test_steps_on_drawn_machines_often(first):
    names = [entry.name for entry in registry.algorithms("pipeline", available=True)]
    assert answered_steps(range(first, first + 40), names)["1f1b"] > 5


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "tarnawski-dp", "pipe-plan"])
@pytest.mark.parametrize("channel", CHANNELS_OF_STEPS)
@pytest.mark.parametrize("mode", ["overlap", "blocking", "rendezvous", "grouped"])
def test_orders_take_turns(name, channel, mode):
    document = transfers_decide() | {"weights": "flush"}
    document["cluster"] = document["cluster"] | {"transfers": mode}
    here = machine(NAMES, channel, bandwidth=1)
    options = {"moves": 20, "zoo": False} if name == "pipe-plan" else {}
    result = remat.solve(document, machine=here, algorithm=name, options=options)
    if result.columns is None:  # orders that deadlock
        assert mode in ("rendezvous", "grouped")
        return
    verdict = referee.check(document | {"machine": here}, result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == result.makespan


def test_a_transfer_waits_for_all_that_its_link_occupies():
    """Each device takes 1 for a layer; both directions occupy the second device for 3."""
    document = transfers_decide() | {"weights": "flush", "micro_batches": 1}
    here = machine(NAMES, lambda one, other: ["bus", "gpu1"], bandwidth=1)
    assert remat.solve(document, machine=here, algorithm="gpipe").makespan == 1 + 3 + 1 + 1 + 3 + 1
    document["micro_batches"] = 2
    # Of what waits for gpu1, the second input (ready at 2) goes before the first forward (ready at 4).
    assert remat.solve(document, machine=here, algorithm="gpipe").makespan == 18


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "pipe-search", "pipe-plan", "tarnawski-dp", "adapipe", "auto"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_link_of_a_step_is_named(name, missing):
    here = machine(NAMES, lambda one, other: None)
    del here["links"][missing]
    document = transfers_decide() | {"weights": "flush"}
    for layer in document["layers"]:
        layer["saved_size"] = 1
    if name in ("adapipe", "auto", "pipe-plan", "pipe-search", "tarnawski-dp"):  # they also use fewer devices
        options = {"moves": 100} if name.startswith("pipe-") else {}
        stages = remat.solve(document, machine=here, algorithm=name, options=options).orders.stages
        assert len({stage.device for stage in stages}) == 1
        return
    ends = ["gpu0 to gpu1", "gpu1 to gpu0"][missing]
    with pytest.raises(remat.OptionError, match=f"there is no link from {ends}"):
        remat.solve(document, machine=here, algorithm=name)


@pytest.mark.parametrize("name", ["pipe-search", "pipe-plan"])
def test_searches_use_the_longest_row_of_linked_devices(name):
    names = ("gpu0", "gpu1", "gpu2", "gpu3")
    here = machine(names, lambda one, other: None, bandwidth=4)
    linked = {"02", "20", "03", "30"}
    here["links"] = [link for link in here["links"] if link["source"][-1] + link["target"][-1] in linked]
    document = transfers_decide() | {"weights": "flush", "cluster": {"devices": [{"name": "gpu", "count": 4}]}}
    document["layers"] = [{"forward_time": 2, "backward_time": 4, "output_size": 1, "saved_size": 2}] * 6
    result = remat.solve(document, machine=here, algorithm=name, options={"moves": 100})
    devices = {result.machine.processors[stage.device].name for stage in result.orders.stages}
    assert devices == {"gpu0", "gpu2", "gpu3"}
    assert "layers are on 3 of 4 devices" in result.notes[0]
    assert result.lower_bound <= 6 * 6 * document["micro_batches"] / 4
    verdict = referee.check(document | {"machine": here}, result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == result.makespan < 6 * 6 * document["micro_batches"]


def test_the_longest_row_is_found():
    for number in range(60):
        chance = random.Random(f"row {number}")
        count = chance.randint(1, 5)
        pairs = [pair for pair in itertools.combinations(range(count), 2) if chance.random() < 0.4]
        links = [
            Link(source=one, target=other, channel=f"{one}{other}")
            for pair in pairs
            for one, other in (pair, pair[::-1])
        ]
        memories = tuple(Memory(f"m{k}") for k in range(count))
        here = Machine(memories, tuple(Processor(f"p{k}", k) for k in range(count)), tuple(links))
        row = longest_row(here)
        ends = {*pairs, *(pair[::-1] for pair in pairs)}
        rows = [
            listed
            for length in range(1, count + 1)
            for listed in itertools.permutations(range(count), length)
            if ends.issuperset(itertools.pairwise(listed))
        ]
        assert tuple(row) in rows
        assert len(row) == max(map(len, rows))


@pytest.mark.parametrize("name", ["gpipe", "tessel", "piper", "pipe-search"])
def test_transfers_may_take_longer_than_64_bits_hold(name):
    """Each takes an integer time; the makespan exceeds the range of int64."""
    document = transfers_decide() | {"weights": "flush"}
    here = machine(NAMES, lambda one, other: None, latency=2**62 - 1, delay=2**61)
    options = {"moves": 100} if name == "pipe-search" else {}
    result = remat.solve(document, machine=here, algorithm=name, options=options)
    verdict = referee.check(document | {"machine": here}, result.to_dict())
    assert verdict.ok, verdict.violations
    assert result.makespan == pytest.approx(float(verdict.makespan))


def test_a_group_without_links_between_its_devices_is_no_choice():
    document = transfers_decide() | {"weights": "flush"}
    for layer in document["layers"]:
        layer["tensor"] = {"2": {key: layer[key] for key in ("forward_time", "backward_time", "output_size")}}
    here = machine(NAMES, lambda one, other: None)
    here["links"] = []
    result = remat.solve(document, machine=here, algorithm="piper")
    assert [(stage.layers, stage.tensor) for stage in result.orders.stages] == [((0, 1), 1)]


def test_an_exchange_without_a_link_is_refused():
    document = transfers_decide() | {"weights": "flush", "copies": 2, "exchange": "ring", "micro_batches": 2}
    for layer in document["layers"]:
        layer["parameter_size"] = 1
    here = machine(NAMES, lambda one, other: None)
    assert remat.solve(document, machine=here, algorithm="chimera").makespan is not None
    del here["links"][1]
    with pytest.raises(remat.OptionError, match="there is no link from gpu1 to gpu0"):
        remat.solve(document, machine=here, algorithm="chimera")


@pytest.mark.parametrize("name", ["pipeoffload", "optpipe"])
def test_a_host_that_the_machine_does_not_have(name):
    document = transfers_decide() | {"weights": "flush"}
    document["cluster"] = document["cluster"] | {"host": {"bandwidth": 1}}
    here = machine(NAMES, lambda one, other: None)
    with pytest.raises(remat.OptionError, match="no memory is called 'host'"):
        remat.solve(document, machine=here, algorithm=name)
    assert remat.solve(document, machine=here, algorithm="pipe-search").makespan is not None
    here["memories"].append({"name": "host"})
    here["links"] += [{"source": "host", "target": name} for name in NAMES] + [{"source": "gpu0", "target": "host"}]
    with pytest.raises(remat.OptionError, match="there is no link from gpu1 to host"):
        remat.solve(document, machine=here, algorithm=name)


@pytest.mark.parametrize("channel", [None, ["bus", "more"], ["own", "bus"]])
def test_a_host_whose_links_share_channels(channel):
    document = transfers_decide() | {"weights": "flush", "micro_batches": 4}
    for layer in document["layers"]:
        layer |= {"forward_time": 4, "backward_time": 4, "output_size": 1, "saved_size": 8}
    document["cluster"] = document["cluster"] | {"host": {"bandwidth": 4}}
    here = machine(NAMES, lambda one, other: "bus", bandwidth=4)
    here["memories"].append({"name": "host"})
    for name in NAMES:
        for ends in ((name, "host"), ("host", name)):
            entry = {"source": ends[0], "target": ends[1], "bandwidth": 4}
            here["links"].append(entry if channel is None else entry | {"channel": channel})
    result = remat.solve(document, machine=here, algorithm="pipeoffload", budget=14)
    assert "host" in {result.machine.memories[target].name for target in result.columns.target.tolist() if target >= 0}
    verdict = referee.check(document | {"machine": result.machine.to_document()}, result.to_dict())
    assert verdict.ok, verdict.violations
