"""Recomputation and copies to a host in one plan: against exhaustive search, the referees, and either alone."""

import json
import random

import numpy as np
import pytest

import remat
from remat.plugin import Context
from remat.schedule.document import initial_document
from remat.schedule.writing import step_lines
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.pipe_plan.encoding import Outline
from remat_algorithms.joint.pipe_plan.recompute_and_offload import search_both, ways_of
from remat_algorithms.joint.pipe_plan.recompute_options import StageCosts
from remat_algorithms.parallel.pipeline.local_search import kernel, moves, objective
from remat_algorithms.parallel.pipeline.local_search.arrays import state_of
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps, search_hosted
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting
from remat_algorithms.parallel.pipeline.offload.search import HostSearch, facts_with_host, keys_of
from remat_algorithms.parallel.pipeline.stages import staging
from tests.oracles import hosted_pipelines, referee
from tests.seeds import few, seeds

UNITS = {"time": "unit", "memory": "unit"}


def tiny(seed, count):
    """Return a tiny pipeline with a host, and the oracle's arguments."""
    rng = random.Random(seed)
    layers = [(rng.randint(1, 4), rng.randint(1, 5), rng.randint(1, 5)) for _ in range(count)]
    capacity = max(saved for _, _, saved in layers) + rng.randint(0, 6)
    bandwidth = rng.choice([1, 2, 3])
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": UNITS,
        "micro_batches": 2,
        "backward_reads": ["saved"],
        "layers": [{"forward_time": f, "backward_time": b, "saved_size": saved} for f, b, saved in layers],
        "cluster": {"devices": [{"name": "gpu", "count": 2, "memory": capacity}], "host": {"bandwidth": bandwidth}},
    }
    cuts = [[layers[:cut], layers[cut:]] for cut in range(1, count)]
    return document, cuts, (2, [capacity] * 2, bandwidth)


def check_best(seed, count):
    """No combination of cuts, orders and per-layer options (keep, recompute, offload) is faster."""
    document, cuts, given = tiny(seed, count)
    result = remat.solve(document, algorithm="pipe-plan", options={"moves": 1000}, seed=seed)
    limit = float("inf") if result.makespan is None else result.makespan
    assert [hosted_pipelines.best_makespan(stages, *given, limit) for stages in cuts] == [None] * len(cuts)
    assert result.makespan is None or all(one.value <= result.makespan for one in result.bounds)


@pytest.mark.parametrize("seed", seeds(8, 200))
def test_no_plan_of_two_layers_is_better(seed):
    check_best(seed, 2)


@pytest.mark.parametrize("seed", seeds(1, 150))
def test_no_plan_of_three_layers_is_better(seed):
    check_best(seed, 3)


def uniform(devices=2, batches=6, *, layers=3, bandwidth=2, memory=None, **more):
    """Return equal layers that keep their inputs, in halves of backwards, before a host."""
    layer = {"forward_time": 2, "backward_time": 3, "weight_time": 1, "saved_size": 6, "weight_saved_size": 2}
    layer |= {"output_size": 1, "gradient_size": 1, "repeat": layers * devices} | more
    device = {"name": "gpu", "count": devices} | ({} if memory is None else {"memory": memory})
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": UNITS,
        "micro_batches": batches,
        "backward_reads": ["input", "saved"],
        "layers": [layer],
        "cluster": {"devices": [device], "levels": [{"bandwidth": 4}], "host": {"bandwidth": bandwidth}},
    }


def laid_out(document, shape="chain"):
    """Return an outline, and its stages with all that they may do."""
    problem = make_problem(remat.load(document))
    instance = problem.instance
    costs = StageCosts(instance, instance.each_layer(), instance.device_types, "any")
    staged = staging(problem, shape)
    outline = Outline.of(problem, costs, staged.stages, shape)
    plain = Hosting(problem, staged)
    return outline, Hosting(problem, staged, ways_of(plain, outline.levels))


def drawn(hosting, rng):
    """Draw a choice of recompute and offload options."""
    chosen = Choice(*(np.zeros((hosting.model.stages, hosting.model.batches), dtype=np.int64) for _ in range(2)))
    for (stage, batch), _ in np.ndenumerate(chosen.level):
        level = rng.randrange(len(hosting.ways[stage]))
        chosen.level[stage, batch] = level
        chosen.part[stage, batch] = rng.randrange(len(hosting.ways[stage][level]))
    return chosen


@pytest.mark.parametrize("shape", ["chain", "v"])
def test_the_kernels_times_are_those_of_what_is_played(shape):
    """Kernel and simulation agree for any orders and options if values never only pass and transfers never queue."""
    document = uniform(3, 5, layers=4, memory=70, output_size=0, gradient_size=0)
    document["cluster"].pop("levels")
    _, hosting = laid_out(document, shape)
    rng, found = random.Random(7), 0
    search = HostSearch(hosting, seed=1, stop=lambda: False, offer=lambda *given: None)
    for lists in hosting.staged.starts:
        keys = keys_of(hosting, lists, 1.5)
        for _ in range(12):
            choice = drawn(hosting, rng)
            sequence = search.sequence(keys, choice, strict=rng.random() < 0.5)
            if sequence is not None:
                found += 1
                played = hosting.play(sequence, choice)
                assert played.makespan == objective.figure(search.facts, search.kernel.state)
                assert not any(played.excess)
    assert found > 10


def test_compiled_as_interpreted():
    """The kernel and its interpreted twin end in bitwise equal states if stages have several options."""
    _, hosting = laid_out(uniform(2, 4, memory=40), "v")
    facts = facts_with_host(hosting)
    states = [state_of(facts, 5) for _ in range(2)]
    keys = keys_of(hosting, hosting.staged.starts[0], 1.0)
    walks = (
        kernel.ACT.bind(facts, states[0]),
        lambda *given: moves.act(facts, states[1], *given),
    )
    choice = drawn(hosting, random.Random(1))
    for state, go in zip(states, walks, strict=True):
        state.current[:], state.current_option[:] = keys, choice.level * facts.width + choice.part
        go(moves.WALK, 60, 1.0, 0.0)
    one, other = states
    assert one.progress.best == other.progress.best < np.inf
    assert len(np.unique(one.best_option // facts.width)) > 1
    for name in ("current", "current_option", "best", "best_option", "best_order"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("seed", seeds(6, 60))
def test_both_referees_accept_any_ways(seed):
    """Mix options per stage and micro-batch, including segment inputs at the host."""
    rng = random.Random(seed)
    document = uniform(2, 3, layers=rng.randint(1, 4), bandwidth=rng.choice([1, 5]))
    document["backward_reads"] = rng.choice([["input", "saved"], ["saved"], ["input", "output", "saved"]])
    _, hosting = laid_out(document, rng.choice(["chain", "v"]) if document["layers"][0]["repeat"] > 3 else "chain")
    search = HostSearch(hosting, seed=1, stop=lambda: False, offer=lambda *given: None)
    keys, choice = keys_of(hosting, rng.choice(hosting.staged.starts), 1.0), drawn(hosting, rng)
    sequence = search.sequence(keys, choice, strict=True)
    assert sequence is not None
    played = hosting.play(sequence, choice)
    judged(document, hosting, played)


def judged(document, hosting, played):
    """Let both referees judge a simulated plan without memory limits."""
    graph, machine = hosting.problem.graph, hosting.problem.machine
    schedule = {
        "schema": "remat.schedule/2",
        "initial": initial_document(played.steps, graph, machine),
        "steps": json.loads("[" + ",".join(step_lines(played.steps, graph, machine)) + "]"),
    }
    report = remat.verify(document, schedule)
    assert report.ok, report.violations
    verdict = referee.check(document, schedule)
    assert verdict.ok, verdict.violations
    assert verdict.makespan == report.makespan == played.makespan


@pytest.mark.parametrize("moves", few(50, 150))
def test_together_quicker_than_either(moves):
    """With slow links to the host, mixing offloading and recomputation is faster than either alone."""
    document = uniform(4, 8, layers=3, bandwidth=1, memory=30, output_size=0, gradient_size=0)
    alone = document | {"cluster": {key: value for key, value in document["cluster"].items() if key != "host"}}
    how = {"options": {"moves": moves, "placement": "chain"}}
    again = remat.solve(alone, algorithm="pipe-plan", **how).makespan
    sent = remat.solve(document, algorithm="pipe-search", **how).makespan
    both = remat.solve(document, algorithm="pipe-plan", **how)
    assert both.makespan < min(again, sent)
    assert both.report.recompute_time > 0
    assert both.report.transferred["gpu0->host"] > 0
    verdict = referee.check(document, both.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.peaks == both.peak_memory


def test_from_what_is_known_on():
    """A plan that offloads whole stages is a valid start of the larger search, which never gets slower."""
    document = uniform(4, 8, layers=3, bandwidth=2, memory=50, output_size=0, gradient_size=0)
    outline, hosting = laid_out(document)
    alone = BestSteps(hosting.problem, Context())
    search_hosted(alone, hosting.staged, starts=(), moves=20, stop=lambda: False)
    assert alone.start.choice.part.any()
    both = BestSteps(hosting.problem, Context())
    search_both(both, outline, entries=[], starts=[], known=alone.start, moves=1, stop=lambda: False)
    assert both.makespan <= alone.makespan
