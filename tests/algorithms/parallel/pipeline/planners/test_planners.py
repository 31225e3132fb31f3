"""Test planners end to end: claims about accepted cuts, against exhaustive search over cuts."""

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.testing.strategies import pipelines
from remat_algorithms.parallel.pipeline.planners.block_merging import dealt, joined, merged, shares
from remat_algorithms.parallel.pipeline.planners.layer_sums import Position, Row
from remat_algorithms.parallel.pipeline.planners.simulation import makespan, when_ready
from tests.algorithms.parallel.pipeline.planners import chains
from tests.oracles import partitions

PLANNERS = ("pipedream-dp", "2bw-plan", "dapple-plan", "varuna", "hetpipe", "pipe-torch", "ftpipe", "chimera-plan")
FEW = settings(max_examples=20, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def solved(document, algorithm, **options):
    return remat.solve(document, algorithm=algorithm, options=options)


def feasible(point, memory, depths):
    """Return all cuts into these numbers of stages that fit under 1F1B."""
    return [
        cuts
        for depth in depths
        for cuts in partitions.cuts_of(len(point["f"]), depth)
        if memory is None or max(partitions.keeps(point["activation"], point["weights"], cuts, point["m"])) <= memory
    ]


def flush(point, cuts, memory):
    """Return the makespan of 1F1B; with memory, transfers have no size, and take no time."""
    hops = [0 if memory is not None else point["transfer"][cut - 1] for cut in cuts[1:-1]]
    parts = (partitions.split(point[key], cuts) for key in "fb")
    return partitions.one_forward_one_backward(*parts, hops, point["m"])


@FEW
@given(chains.points(), st.booleans(), st.booleans())
def test_dapple_plan_has_the_quickest_cuts(point, tight, any_depth):
    memory = point["memory"] if tight else None
    depths = range(1, min(4, len(point["f"])) + 1) if any_depth else [point["p"]]
    every = feasible(point, memory, depths)
    options = {} if any_depth else {"stages": point["p"]}
    result = solved(chains.instance_of(point, 4, memory), "dapple-plan", **options)
    assert result.makespan == min((flush(point, cuts, memory) for cuts in every), default=None)


@FEW
@given(chains.points(), st.booleans(), st.sampled_from(["pipedream-dp", "hetpipe", "2bw-plan", "pipe-torch"]))
def test_slowest_stages_are_the_least_slow(point, tight, algorithm):
    memory = point["memory"] if tight else None
    depth = point["p"]
    every = feasible(point, memory, [depth])
    result = solved(chains.instance_of(point, depth, memory), algorithm, stages=depth)
    assert (result.report is None) == (not every)
    if not every:
        return

    def cost(cuts):
        work = partitions.split(chains.work_of(point), cuts)
        hops = [0 if tight else point["transfer"][cut - 1] for cut in cuts[1:-1]]
        if algorithm == "pipedream-dp":
            return max(*work, *(2 * hop for hop in hops), 0)
        both = 1 if algorithm == "2bw-plan" else 2
        return max(w + both * (x + y) for w, x, y in zip(work, [0, *hops], [*hops, 0], strict=True))

    cuts = chains.cuts_of(result)
    assert cost(cuts) == min(map(cost, every))
    assert result.makespan == flush(point, cuts, memory)


@FEW
@given(chains.points(least_time=1), st.booleans())
def test_varuna_runs_backwards_when_they_are_ready(point, tight):
    """Its cut minimizes the slowest stage, and its makespan equals that of a tick simulation."""
    memory = point["memory"] if tight else None
    result = solved(chains.instance_of(point, 4, memory), "varuna")
    alone = point | {"m": 1}
    every = feasible(alone | {"activation": point["activation"]}, memory, range(1, min(4, len(point["f"])) + 1))
    assert (result.report is None) == (not every)
    if not every:
        return
    cuts = chains.cuts_of(result)

    def slowest(cuts):
        return max(partitions.split(chains.work_of(point), cuts))

    assert slowest(cuts) == min(slowest(other) for other in every if len(other) == len(cuts))
    caps = [
        point["m"] if memory is None or not a else min(point["m"], (memory - w) // a)
        for a, w in zip(*(partitions.split(point[key], cuts) for key in ("activation", "weights")), strict=True)
    ]
    forward, backward = (partitions.split(point[key], cuts) for key in "fb")
    hops = [0 if tight else point["transfer"][cut - 1] for cut in cuts[1:-1]]
    lists = partitions.eager(forward, backward, hops, caps, point["m"])
    assert result.makespan == partitions.run(forward, backward, hops, lists)
    if not tight:
        pipe = chains.pipe_of(point, cuts)
        own = when_ready(pipe, caps)
        assert [[("FB"[phase], k) for phase, _, k in listed] for listed in own] == lists
        assert makespan(pipe, own) == result.makespan


@FEW
@given(st.lists(st.integers(0, 20), min_size=1, max_size=7), st.integers(1, 3), st.integers(1, 5))
def test_blocks_are_dealt_out_well(work, devices, blocks):
    """Blocks cover the layers; the longest load is at most 4/3 of the best one (Graham 1969)."""
    count = min(blocks, len(work))
    cuts = merged(work, [0] * (len(work) - 1), [len(work)] * len(work), count)
    assert (cuts[0], cuts[-1], len(cuts)) == (0, len(work), count + 1)
    assert cuts == sorted(set(cuts))
    sizes = partitions.split(work, cuts)
    homes = dealt(Row.of([0] * len(work), [0] * len(work)), [Position.of(work)] * devices, cuts)

    def longest(places):
        return max(
            sum(size for size, place in zip(sizes, places, strict=True) if place == device) for device in range(devices)
        )

    best = min(longest(places) for places in itertools.product(range(devices), repeat=count))
    assert longest(homes) * 3 * devices <= best * (4 * devices - 1)
    fewer, places = joined(cuts, homes)
    assert all(one != other for one, other in itertools.pairwise(places))
    assert [places[sum(cut <= layer for cut in fewer[1:])] for layer in range(len(work))] == [
        homes[sum(cut <= layer for cut in cuts[1:])] for layer in range(len(work))
    ]


def test_blocks_are_no_longer_than_some_device_runs():
    """The first two layers are for one device only, the others for another one."""
    cuts = merged([1, 1, 1, 1], [0, 0, 0], [2, 2, 4, 4], 1)
    assert cuts == [0, 2, 4]
    quick = Position.of([1, 1, 1, 1])
    assert dealt(Row.of([1] * 4, [1] * 4), [quick], cuts) == [0, 0]


def test_room_is_shared_among_the_stages_of_a_device():
    assert shares([4, 1, 4], [0, 1, 0], [12, None], 8) == [2, 2, 1]
    assert shares([4, 1, 4], [0, 1, 0], [8, 2], 8) == [1, 2, 1]
    assert shares([0, 0], [0, 0], [0], 8) == [2, 1]
    assert shares([3], [1], [-1, None], 2) == [1]


def test_stages_that_are_not_consecutive():
    """With alternating long and short layers, two devices balance better on non-consecutive layers."""
    point = {"f": [4, 1, 4, 1, 4, 4], "b": [4, 1, 4, 1, 4, 4], "activation": [1] * 6, "weights": [1] * 6} | {"m": 6}
    document = chains.instance_of(point | {"transfer": [0] * 5}, 2)
    result = solved(document, "ftpipe")
    places = {layer: stage.device for stage in result.orders.stages for layer in stage.layers}
    load = [sum(8 if point["f"][layer] == 4 else 2 for layer in range(6) if places[layer] == d) for d in (0, 1)]
    assert load == [18, 18]
    assert len(result.orders.stages) > 2
    tight = solved(chains.instance_of(point | {"transfer": [0] * 5}, 2, 8), "ftpipe")
    assert max(tight.peak_memory.values()) <= 8


def test_chimera_plan_chooses_the_depth():
    """No slower than Chimera on all devices; halves of the memory, where even cuts do not fit."""
    document = generate("pipeline", "uniform", layers=8, copies=2, hop=1)
    whole = remat.solve(document, algorithm="chimera")
    assert solved(document, "chimera-plan").makespan <= whole.makespan
    for depth in (2, 4):
        result = solved(document, "chimera-plan", stages=depth)
        assert len(result.orders.stages) == 2 * depth
    tight = [{"forward_time": 1, "backward_time": 1, "parameter_size": size} for size in (9, 1, 1, 1, 1, 1)]
    document = generate("pipeline", "uniform", copies=2, devices=2) | {"layers": tight}
    document["cluster"]["devices"][0]["memory"] = 36
    assert solved(document, "chimera-plan").report is not None


@FEW
@given(pipelines(largest=4, streams=False), st.integers(10, 100), st.sampled_from(PLANNERS))
def test_what_is_planned_is_valid_and_fits(document, share, algorithm):
    """On any instance, with any share of the memory that it takes without a limit."""
    try:
        free = solved(document, algorithm)
    except remat.OptionError:
        return
    budget = max(free.peak_memory.values()) * share // 100
    result = remat.solve(document, algorithm=algorithm, budget=budget)
    if result.report is not None:
        assert result.report.ok
        assert max(result.peak_memory.values()) <= budget


def unequal(**changed):
    """Return a quick small device and two slow large ones: the long layer is for the quick one."""
    layers = [
        {"forward_time": {"slow": 3, "quick": 1}, "backward_time": 2, "saved_size": 4, "parameter_size": 1},
        {"forward_time": {"slow": 3, "quick": 1}, "backward_time": 2, "saved_size": 4, "parameter_size": 1},
        {"forward_time": {"slow": 30, "quick": 6}, "backward_time": 6, "saved_size": 1, "parameter_size": 1},
    ]
    devices = [{"name": "q", "type": "quick", "memory": 8}, {"name": "s", "type": "slow", "count": 2, "memory": 40}]
    document = generate("pipeline", "uniform", copies=2)
    return document | {"layers": layers, "cluster": {"devices": devices}, "micro_batches": 4} | changed


def test_devices_of_several_types_and_memories():
    """The quick device comes first in the list, with too little memory for that; `pipe-torch` has it last."""
    document = unequal()
    result = solved(document, "pipe-torch")
    assert [stage.device for stage in result.orders.stages][-1] == 0
    listed = solved(document, "hetpipe", stages=3)
    assert listed.report is None
    assert solved(document, "ftpipe").makespan <= 2 * result.makespan
    document["cluster"]["devices"][0]["memory"] = 40
    assert solved(document, "hetpipe").makespan > result.makespan


@pytest.mark.parametrize("algorithm", PLANNERS)
def test_types_that_cannot_run_a_layer(algorithm):
    """The second layer is for the quick device, which comes first in the list."""
    document = unequal()
    document["cluster"]["devices"][0]["memory"] = None
    document["layers"][1]["forward_time"] = {"quick": 1}
    if algorithm in ("2bw-plan", "dapple-plan", "varuna", "pipe-torch", "ftpipe"):
        assert solved(document, algorithm).report is not None
    else:
        with pytest.raises(remat.OptionError, match="these devices cannot run the layers in this order"):
            solved(document, algorithm)
    document["layers"][1]["forward_time"] = {"other": 1}
    with pytest.raises(remat.InstanceError, match="no device of the cluster can run this layer"):
        solved(document, algorithm)


@pytest.mark.parametrize(
    ("algorithm", "options", "changed", "message"),
    [
        *((name, {"stages": 5}, {}, "5 stages.* 4 devices") for name in PLANNERS if name != "ftpipe"),
        *((name, {"stages": 4}, {"layers": 2}, "4 stages .* 2 layers") for name in PLANNERS if name != "ftpipe"),
        ("pipedream-dp", {}, {"layers": 2, "copies": 1}, "4 stages .* 2 layers"),
        ("hetpipe", {}, {"layers": 2, "copies": 1}, "4 stages .* 2 layers"),
        ("chimera-plan", {"stages": 3}, {}, "even number of devices: 2 or 4, not 3"),
        ("chimera-plan", {}, {"devices": 1}, "even number of devices: 2, not 1"),
        ("chimera-plan", {}, {"layers": 1}, "2 stages .* 1 layers"),
        ("chimera-plan", {}, {"copies": 1}, '"copies": 2'),
    ],
)
def test_what_a_planner_is_not_for(algorithm, options, changed, message):
    document = generate("pipeline", "uniform", **{"copies": 2} | changed)
    with pytest.raises(remat.OptionError, match=message):
        solved(document, algorithm, **options)


@pytest.mark.parametrize("algorithm", ["pipedream-dp", "dapple-plan"])
@pytest.mark.parametrize(
    ("memory", "makespan"), [(34, 45), (33, 50), (32, 50), (29, 50), (27, 50), (26, 60), (23, 60), (17, 60)]
)
def test_less_is_planned_with_only_where_it_has_to_be(algorithm, memory, makespan):
    """The second device also holds gradients in transfer, uncounted: 34, 27 and 17 with 3, 2, 1 layers."""
    document = generate("pipeline", "uniform", devices=2, layers=6, micro_batches=4)
    for layer in document["layers"]:
        layer |= {"output_size": 3, "gradient_size": 7, "saved_size": 4}
    document["cluster"]["devices"] = [{"name": "a"}, {"name": "b", "memory": memory}]
    result = solved(document, algorithm)
    assert (result.makespan, result.report.ok) == (makespan, True)
