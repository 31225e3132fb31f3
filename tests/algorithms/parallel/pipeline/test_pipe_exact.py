"""The constraint program of a pipeline and the plain bounds: against exhaustive search and certified optima."""

from dataclasses import replace

import pytest

from remat_algorithms.parallel.pipeline.bounds import lower_bounds
from remat_algorithms.parallel.pipeline.pipe_exact import prove
from remat_algorithms.parallel.pipeline.pipe_search import figure_of
from tests.algorithms.parallel.pipeline.models import OPTIMA, certified, drawn, drawn_both_ways
from tests.oracles import pipeline_orders
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_bounds_are_at_most_the_exhaustive_optimum(seed):
    model = drawn(seed, recomputed=True)
    for span in (False, True):
        best = pipeline_orders.best_figure(model, span=span)
        if best is not None:
            bounds = lower_bounds(model, span=span)
            assert max(bounds.values()) <= best
            assert bounds["work"] <= bounds["fill"] <= bounds["in-flight"]


def test_bounds_prove_certified_optima_without_search():
    """They hold for all certified optima, and prove this many of them without any search."""
    proved = 0
    for point in OPTIMA:
        model, span, best = certified(point)
        bound = max(lower_bounds(model, span=span).values())
        assert bound <= best
        proved += bound == best
    assert proved >= 21


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_best_of_all_orders(seed):
    model = drawn(seed, recomputed=True)
    for span in (False, True):
        proof = prove(model, span=span, moves=0)
        best = pipeline_orders.best_figure(model, span=span)
        assert proof.proved
        assert (proof.lists is None) == (best is None)
        if best is not None:
            assert proof.figure == proof.bound == best == figure_of(model, proof.lists, span=span)


@pytest.mark.parametrize("seed", seeds(25, 400))
def test_best_of_all_orders_of_two_chains(seed):
    model = drawn_both_ways(seed)
    proof = prove(model, moves=0)
    best = pipeline_orders.best_figure(model)
    assert proof.proved
    assert (proof.lists is None) == (best is None)
    if best is not None:
        assert max(lower_bounds(model).values()) <= best
        assert proof.figure == proof.bound == best == figure_of(model, proof.lists)


@pytest.mark.parametrize("number", [14, 21, 28])
def test_a_certified_optimum_is_proved(number):
    model, span, best = certified(OPTIMA[number])
    proof = prove(model, span=span, moves=0)
    assert (proof.figure, proof.bound, proof.proved) == (best, best, True)


@pytest.mark.slow
@pytest.mark.parametrize("moves", [0, None])
def test_all_certified_optima_are_proved(moves):
    for point in OPTIMA:
        model, span, best = certified(point)
        proof = prove(model, span=span, moves=moves)
        assert (proof.figure, proof.bound, proof.proved) == (best, best, True)


@pytest.mark.parametrize("number", [14, 21])
def test_times_and_bytes_of_any_size(number):
    """Times in seconds and bytes by the billion: rounded for the program, and proved nevertheless."""
    model, _, best = certified(OPTIMA[number])
    second = 1e-3 / 3
    scaled = replace(
        model,
        forward=tuple(time * second for time in model.forward),
        backward=tuple(time * second for time in model.backward),
        weight=tuple(time * second for time in model.weight),
        activation=tuple(size * 10**9 for size in model.activation),
        kept=tuple(size * 10**9 for size in model.kept),
        capacity=tuple(size * 10**9 + 1 for size in model.capacity),
    )
    proof = prove(scaled, moves=300)
    assert proof.proved
    assert proof.figure == pytest.approx(best * second)
    assert proof.bound <= proof.figure == figure_of(scaled, proof.lists)


def test_stopped_with_what_there_is():
    """A stopped proof answers with its last report; bound and makespan enclose the optimum."""
    model, span, best = certified(OPTIMA[23])
    found, bounds = [], []
    proof = prove(
        model,
        span=span,
        moves=1,
        work=0.02,
        report=lambda lists, figure: found.append(figure),
        bounded=bounds.append,
    )
    assert not proof.proved
    assert proof.bound == bounds[-1] <= best <= proof.figure == found[-1]
    assert proof == prove(model, span=span, moves=1, work=0.02)
    at_once = prove(model, stop=lambda: True)
    assert not at_once.proved
    assert at_once.bound <= best <= at_once.figure
