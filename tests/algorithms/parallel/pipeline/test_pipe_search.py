"""Test the order search of pipelines against exhaustive search and certified optima, and its invariants."""

import math
import random
from dataclasses import replace
from functools import partial

import pytest

from remat_algorithms.parallel.pipeline.bounds import lower_bound
from remat_algorithms.parallel.pipeline.device_span import least_span
from remat_algorithms.parallel.pipeline.local_search import arrays, kernel, list_scheduling, moves, objective
from remat_algorithms.parallel.pipeline.model import BW, B, F, PipelineModel, W, complete, evaluate, one_by_one, peaks
from remat_algorithms.parallel.pipeline.pipe_search import figure_of, search
from tests.algorithms.parallel.pipeline.models import OPTIMA, certified, drawn, drawn_both_ways
from tests.oracles import pipeline_orders
from tests.seeds import seeds


def as_letters(lists):
    return [tuple(("FBW"[phase], stage, batch) for phase, stage, batch in listed) for listed in lists]


def shuffled(model, rng):
    """An order of all operations in which each device's F, B and W of a stage come as they must; it may not end."""
    lists = [list(listed) for listed in one_by_one(model)]
    for listed in lists:
        for _ in range(3 * len(listed)):
            place = rng.randrange(max(1, len(listed) - 1))
            pair = listed[place : place + 2]
            if len(pair) == 2 and pair[0][1:] != pair[1][1:]:
                listed[place : place + 2] = pair[::-1]
    return lists


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_best_of_all_orders(seed):
    """On tiny pipelines, the search finds the optimum, and its makespan equals the oracle's."""
    model = drawn(seed)
    for span in (False, True):
        lists, figure = search(model, span=span, moves=400, seed=seed)
        best = pipeline_orders.best_figure(model, span=span)
        assert (lists is None) == (best is None)
        if lists is not None:
            counted = pipeline_orders.run(model, as_letters(lists))
            measured = (
                pipeline_orders.least_span(model, as_letters(lists))
                if span
                else max(end for _, end in counted.values())
            )
            assert measured == figure == best


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_whatever_fits_is_found(seed):
    """Also where a stage takes more for its backward than it held before: bytes are what the oracle allows."""
    model = drawn(seed, recomputed=True)
    lists, figure = search(model, moves=100, seed=seed)
    best = pipeline_orders.best_figure(model)
    assert (lists is None) == (best is None)
    if lists is not None:
        assert best <= figure == figure_of(model, lists)
        assert all(
            order in pipeline_orders.words(model, device) for device, order in enumerate(as_letters(lists)) if order
        )


@pytest.mark.parametrize("seed", seeds(40, 400))
def test_best_of_all_orders_of_two_chains(seed):
    """On tiny pipelines with two copies of their stages, the search finds the optimum, and bounds hold."""
    model = drawn_both_ways(seed)
    lists, figure = search(model, moves=20_000, seed=seed)
    best = pipeline_orders.best_figure(model)
    assert (lists is None) == (best is None)
    if lists is not None:
        counted = pipeline_orders.run(model, as_letters(lists))
        assert max(end for _, end in counted.values()) == figure == best
        assert lower_bound(model) <= best


@pytest.mark.parametrize("seed", seeds(20, 400))
def test_walk_never_deadlocks_in_two_chains(seed):
    """Any keys give a fitting schedule of all operations, with several stages of both chains per device."""
    rng = random.Random(seed)
    one = crowded(rng)
    stages = 2 * one.stages
    both = {name: getattr(one, name) * 2 for name in ("forward", "backward", "weight", "kept")}
    place = one.place + tuple(rng.sample(one.place, one.stages))
    activation = tuple(rng.randint(size, 4) for size in both["kept"])
    least = [
        max(
            sum(activation[stage] for stage in half if place[stage] == device)
            for half in (range(one.stages), range(one.stages, stages))
        )
        for device in range(one.devices)
    ]
    chains = ((0, one.batches), (one.stages, rng.randint(0, one.batches)))
    model = replace(
        one,
        **both,
        place=place,
        hop=(1,) * (stages - 1),
        activation=activation,
        capacity=tuple(fixed + size + rng.randint(0, 2) for fixed, size in zip(one.fixed, least, strict=True)),
        chains=chains,
    )
    check_walks(model, seed, rng)


@pytest.mark.parametrize("number", [6, 18, 21, 28])
def test_a_certified_optimum_is_found(number):
    model, span, best = certified(OPTIMA[number])
    assert search(model, span=span, moves=20_000)[1] == best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_certified_optima_are_nearly_reached(seed):
    excess = []
    for point in OPTIMA:
        model, span, best = certified(point)
        lists, figure = search(model, span=span, seed=seed)
        assert figure_of(model, lists, span=span) == figure >= best
        excess.append(figure / best - 1)
    assert max(excess) <= 0.04
    assert sum(excess) / len(excess) <= 0.01


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_never_worse_than_a_start_that_fits(seed):
    rng = random.Random(seed)
    model = drawn(seed)
    if not model.feasible:
        return
    starts = [shuffled(model, rng) for _ in range(5)]
    for count in (0, 3):
        figure = search(model, starts=starts, moves=count, seed=seed).figure
        assert figure <= min((figure_of(model, lists) for lists in starts), default=math.inf)


def test_start_is_taken_as_it_is():
    """Given orders may combine B and W and take micro-batches in any order."""
    model = PipelineModel((0, 1), 2, (1, 1), (1, 1), (1, 1), (0,), (2, 2), (1, 1), (0, 0), (4, 4))
    start = [
        [(F, 0, 1), (F, 0, 0), (BW, 0, 1), (BW, 0, 0)],
        [(F, 1, 1), (BW, 1, 1), (F, 1, 0), (BW, 1, 0)],
    ]
    lists, figure = search(model, starts=[start], moves=0)
    assert lists == complete(model, start)
    assert lists[1][:3] == ((F, 1, 0), (B, 1, 0), (W, 1, 0))
    assert evaluate(model, start).makespan == 9
    assert figure == evaluate(model, lists).makespan == 8
    assert complete(model, [start[0], start[1][:-1]]) is None
    assert complete(model, [start[1], start[0]]) is None
    assert complete(model, [start[0], [*start[1], start[1][0]]]) is None


@pytest.mark.parametrize("seed", seeds(20, 400))
def test_walk_never_deadlocks(seed):
    """Any keys and any patience give a fitting schedule of all operations, with several stages per device."""
    rng = random.Random(seed)
    model = crowded(rng)
    check_walks(model, seed, rng)


def check_walks(model, seed, rng):
    """Check that list scheduling of drawn keys ends, and that the lists fit and take no longer than it says."""
    facts = arrays.facts_of(model, span=False)
    state = arrays.state_of(facts, seed)
    for patience in (-1.0, 0.0, 0.5, 1.0):
        for index, batch in [(i, k) for i in range(len(facts.runs)) for k in range(model.batches)]:
            state.key[index, batch] = rng.randint(0, 20)
        assert list_scheduling.schedule(facts, state, patience)
        assert state.done.tolist() == facts.runs.tolist()
        lists = arrays.lists_of(facts, state.order)
        assert figure_of(model, lists) <= objective.figure(facts, state)


def crowded(rng):
    """Return a model of many stages on few devices with memory for little more than one micro-batch."""
    devices, stages = rng.randint(1, 3), rng.randint(3, 7)
    place = tuple(rng.randrange(devices) for _ in range(stages))
    activation = tuple(rng.randint(0, 3) for _ in range(stages))
    weight = tuple(rng.randint(0, 1) for _ in range(stages))
    least = [sum(size for size, on in zip(activation, place, strict=True) if on == device) for device in range(devices)]
    return PipelineModel(
        place=place,
        batches=rng.randint(2, 5),
        forward=(1,) * stages,
        backward=(2,) * stages,
        weight=weight,
        hop=(0,) * (stages - 1),
        activation=activation,
        kept=tuple(rng.randint(0, own) if time else 0 for own, time in zip(activation, weight, strict=True)),
        fixed=(0,) * devices,
        capacity=tuple(size + rng.randint(0, 3) for size in least),
    )


@pytest.mark.parametrize("seed", seeds(20, 300))
def test_an_order_fits_exactly_if_the_oracle_accepts_it(seed):
    """An order fits exactly if the oracle accepts it, including recomputed stages."""
    rng = random.Random(seed)
    model = drawn(seed, recomputed=True)
    fitting = [set(pipeline_orders.words(model, device)) for device in range(model.devices)]
    for _ in range(10):
        lists = shuffled(model, rng)
        pairs = zip(peaks(model, lists), model.capacity, strict=True)
        for listed, allowed, (peak, capacity) in zip(as_letters(complete(model, lists)), fitting, pairs, strict=True):
            assert (listed in allowed) == (capacity is None or peak <= capacity)


@pytest.mark.parametrize("number", [6, 13, 16, 17])
def test_compiled_as_interpreted(number):
    """The kernel and its plain twin leave the same, to the bit; for times in floats, too."""
    model, span, _ = certified(OPTIMA[number])
    if number == 6:
        model = replace(model, forward=tuple(time + 0.25 for time in model.forward))
    facts = arrays.facts_of(model, span=span)
    states = [arrays.state_of(facts, 5) for _ in range(2)]
    for state, go in zip(
        states, (kernel.ACT.bind(facts, states[0]), partial(moves.act, facts, states[1])), strict=True
    ):
        go(moves.DRIFT, 8, 0.2, 0.0)
        go(moves.WALK, 8, 1.0, 0.0)
        assert state.progress.moves == 16
    for one, other in zip(*states, strict=True):
        if one is states[0].progress:
            assert (one.random, one.best, one.current) == (other.random, other.best, other.current)
        else:
            assert one.tobytes() == other.tobytes()


def test_deterministic_and_stopped():
    model, _, _ = certified(OPTIMA[23])
    seen = []
    first = search(model, moves=600, seed=3, report=lambda lists, figure: seen.append(figure))
    assert first == search(model, moves=600, seed=3)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == first.figure
    stopped = search(model, stop=lambda: True)
    assert figure_of(model, stopped.lists) == stopped.figure


@pytest.mark.parametrize("seed", seeds(15, 200))
def test_starts_of_an_order_have_the_reported_span(seed):
    """The starts that come with a span have it, and are possible."""
    model = drawn(seed)
    if model.feasible:
        has_its_span(model)


def test_span_is_shorter_than_the_makespan():
    model, _, best = certified(OPTIMA[10])
    assert has_its_span(model) == best < search(model).figure


def test_span_for_which_a_device_begins_later():
    """The first forward of device 1 waits until the second one is about to come."""
    model = PipelineModel((0, 1), 2, (5, 1), (1, 1), (0, 10), (0,), (1, 1), (0, 1), (0, 0), (None, None))
    forward = [(F, 1, 0), (F, 1, 1)]
    lists = [[(F, 0, 0), (F, 0, 1), (B, 0, 0), (B, 0, 1)], [*forward, (B, 1, 0), (B, 1, 1), (W, 1, 0), (W, 1, 1)]]
    span, evaluation = least_span(model, lists)
    assert span == 24
    assert evaluation.starts == ((0, 5, 12, 13), (9, 10, 11, 12, 13, 23))
    assert evaluate(model, lists).starts[1][0] == 5


def has_its_span(model):
    lists = search(model, moves=20, span=True).lists
    span, evaluation = least_span(model, lists)
    ends = {}
    for listed, starts in zip(lists, evaluation.starts, strict=True):
        for (phase, stage, batch), start in zip(listed, starts, strict=True):
            ends[phase, stage, batch] = start + model.times[phase][stage]
    spans = [ends[listed[-1]] - starts[0] for listed, starts in zip(lists, evaluation.starts, strict=True) if listed]
    assert max(spans) == span == pipeline_orders.least_span(model, as_letters(lists))
    for listed, starts in zip(lists, evaluation.starts, strict=True):
        for before, (op, start) in zip([None, *listed], zip(listed, starts, strict=True)):  # noqa: B905
            assert before is None or start >= ends[before]
            assert all(start >= ends[source] + delay for source, delay in sources_of(model, op))
    return span


def sources_of(model, op):
    phase, stage, batch = op
    if phase == W:
        return [((B, stage, batch), 0)]
    after = [((B, stage + 1, batch), model.delays[stage + 1])] if stage + 1 < model.stages else []
    before = [((F, stage - 1, batch), model.delays[stage])] if stage else []
    return before if phase == F else [((F, stage, batch), 0), *after]


def test_wrong_figures_are_refused():
    good = PipelineModel((0,), 1, (1,), (1,), (0,), (), (1,), (0,), (0,), (None,))
    for wrong in (
        {"place": (1,)},
        {"batches": 0},
        {"forward": (1, 1)},
        {"hop": (1,)},
        {"kept": (1,)},
        {"activation": (-1,)},
        {"capacity": ()},
        {"place": ()},
    ):
        with pytest.raises(ValueError, match=r"expected|at least|keeps nothing"):
            replace(good, **wrong)


def test_deadlock_is_none():
    model = PipelineModel((0, 1), 1, (1, 1), (1, 1), (0, 0), (0,), (1, 1), (0, 0), (0, 0), (None, None))
    assert evaluate(model, [[(B, 0, 0), (F, 0, 0)], [(F, 1, 0), (B, 1, 0)]]) is None
    assert least_span(model, [[(B, 0, 0), (F, 0, 0)], [(F, 1, 0), (B, 1, 0)]]) is None
    assert evaluate(model, [[(F, 0, 0), (B, 0, 0)], [(F, 1, 0), (B, 1, 0)]]).makespan == 4
