"""Test `pipe-plan` against exhaustive search, its bounds, its kernel's twin, and simpler planners."""

import random
from functools import partial

import numpy as np
import pytest

import remat
from remat.generate import generate
from remat.plugin import ALL_SCHEDULES, Status
from remat.solving.problem_setup import make_problem
from remat_algorithms.joint.pipe_plan import bound
from remat_algorithms.joint.pipe_plan.encoding import RULES, Outline
from remat_algorithms.joint.pipe_plan.recompute_options import StageCosts
from remat_algorithms.joint.pipe_plan.search import Walks, fitting_levels
from remat_algorithms.parallel.pipeline.local_search import kernel, moves
from remat_algorithms.parallel.pipeline.local_search.arrays import state_of
from remat_algorithms.parallel.pipeline.stages import placed, staging
from tests.oracles import recomputing_pipelines
from tests.seeds import few, seeds

UNITS = {"time": "unit", "memory": "unit"}


def tiny(seed):
    """Return a tiny pipeline with layers without outputs, and the oracle's arguments."""
    rng = random.Random(seed)
    layers = [(rng.randint(1, 4), rng.randint(1, 5), rng.randint(1, 5)) for _ in range(3)]
    least = 1 + max(saved for _, _, saved in layers)
    capacity = rng.randint(least + 1, least + 9)
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "units": UNITS,
        "micro_batches": 2,
        "backward_reads": ["saved"],
        "layers": [
            {
                "forward_time": forward,
                "backward_time": backward,
                "saved_size": saved,
                "parameter_size": 1,
                "parameter_gradient_size": 0,
            }
            for forward, backward, saved in layers
        ],
        "cluster": {"devices": [{"name": "gpu", "count": 2, "memory": capacity}]},
    }
    return document, (layers, 2, 2, capacity, 1)


@pytest.mark.parametrize("seed", seeds(4, 150))
def test_never_worse_than_the_best_of_all_plans(seed):
    """Cuts x orders x recomputation, one stage a device: the plan is no slower, no bound is above the best."""
    document, given = tiny(seed)
    best = recomputing_pipelines.best_makespan(*given)
    result = remat.solve(document, algorithm="pipe-plan", options={"moves": 400}, seed=seed)
    if best is None:
        return
    assert result.makespan is not None
    assert result.makespan <= best
    assert all(one.value <= best for one in result.bounds)
    limits = bound.limits_of(make_problem(remat.load(document)))
    assert limits is not None
    assert max(bound.forced_bound(limits)[0], bound.work_bound(limits), bound.whole_bound(limits)) <= best


def halves(devices=4, batches=8, memory=None, **more):
    document = generate("pipeline", "uniform", devices=devices, micro_batches=batches, layers=4 * devices)
    layer = {"forward_time": 2, "backward_time": 2, "weight_time": 2, "saved_size": 8, "weight_saved_size": 4}
    document["layers"] = [layer | {"output_size": 1, "repeat": 4 * devices, "parameter_size": 3} | more]
    document["backward_reads"] = ["saved"]
    if memory is not None:
        document["cluster"]["devices"][0]["memory"] = memory
    return document


def outlined(document, shape="v"):
    problem = make_problem(remat.load(document))
    instance = problem.instance
    costs = StageCosts(instance, instance.each_layer(), instance.device_types, "any")
    staged = staging(problem, shape)
    return problem, Outline.of(problem, costs, staged.stages, shape), staged.starts


@pytest.mark.parametrize("shape", ["v", "chain", "interleaved"])
def test_the_plain_twin_of_the_kernel(shape):
    """Interpreted and compiled walks leave the same, to the bit."""
    _, outline, _ = outlined(halves(devices=2, batches=4, memory=70), shape)
    facts = outline.facts()
    twins = []
    for compiled in (True, False):
        state = state_of(facts, 5)
        go = kernel.ACT.bind(facts, state) if compiled else partial(moves.act, facts, state)
        state.progress.best = np.inf
        go(moves.DRIFT, 12, 0.1, 0.0)
        go(moves.WALK, 12, 1.0, 0.0)
        twins.append(state)
    one, other = twins
    assert one.progress.best == other.progress.best < np.inf
    for name in ("best", "best_option", "best_order", "current", "current_option", "share", "gap"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("shape", ["v", "chain", "interleaved"])
def test_the_model_is_what_is_placed(shape):
    """Without hops and with outputs of no size, the kernel's time and bytes are those of the referee."""
    document = halves(memory=100, output_size=0)
    problem, outline, starts = outlined(document, shape)
    walks = Walks(outline, 0, lambda: False)
    entry = walks.improve(walks.begin(starts), 300)
    _, makespan, peaks = placed(problem, outline.orders(entry.lists, entry.level, entry.advance))
    again = sum(
        outline.levels[s][int(entry.level[s, b])].recompute_time for s in range(outline.model.stages) for b in range(8)
    )
    assert makespan == pytest.approx(entry.figure - RULES.recompute_weight * again / 4, abs=1e-6)
    assert max(peaks) <= 100


def test_time_that_is_up_after_the_regular_schedules():
    """The best of them counts, though no walk went on from it."""
    _, outline, starts = outlined(halves(memory=100))
    found = []
    walks = Walks(outline, 0, lambda: len(found) == 15)
    drift = walks.drift

    def noted(*given):
        found.append(drift(*given))
        return found[-1]

    walks.drift = noted
    begun = walks.begin(starts[:1])
    best = walks.improve(begun, 3000)
    assert len(found) == 15
    assert best.figure == min(entry.figure for entry in found) < begun[0].figure


def test_levels_that_fit_are_few():
    """Lists of 1F1B fit with the least recomputation: with ample bytes nothing, with few something, in vain nothing."""
    for memory, expected in ((1000, "none"), (90, "some"), (20, "nothing fits")):
        _, outline, starts = outlined(halves(memory=memory), "chain")
        from remat_algorithms.parallel.pipeline.model import complete

        level = fitting_levels(outline, complete(outline.model, starts[1]))
        found = "nothing fits" if level is None else ("some" if level.any() else "none")
        assert found == expected


@pytest.mark.slow
def test_never_slower_than_the_zoo():
    """Planners and rules of the zoo with the same bytes."""
    for memory in (90, 140, 300):
        document = halves(memory=memory)
        result = remat.solve(document, algorithm="pipe-plan", options={"moves": 400})
        assert result.makespan is not None
        for name in ("1f1b", "zb-h1", "zb-v", "v-half", "v-min", "dapple-plan", "varuna", "ftpipe", "hetpipe"):
            other = remat.solve(document, algorithm=name).makespan
            assert other is None or result.makespan <= other


@pytest.mark.parametrize("moves", few(100, 500))
def test_recomputation_is_what_less_memory_costs(moves):
    """Less memory causes more recomputation; without recomputation, fewer instances fit."""
    ample, scarce = (
        remat.solve(halves(memory=size), algorithm="pipe-plan", options={"moves": moves, "zoo": False})
        for size in (400, 60)
    )
    assert ample.report.recompute_time == 0 < scarce.report.recompute_time
    assert ample.makespan <= scarce.makespan
    without = remat.solve(
        halves(memory=40), algorithm="pipe-plan", options={"moves": 100, "zoo": False, "recompute": "none"}
    )
    with_it = remat.solve(halves(memory=40), algorithm="pipe-plan", options={"moves": 100, "zoo": False})
    assert without.makespan is None or with_it.makespan <= without.makespan


def test_a_layer_larger_than_every_memory():
    """The error names the layer and the minimum memory."""
    document = halves(memory=10)
    result = remat.solve(document, algorithm="pipe-plan")
    assert result.status is Status.INFEASIBLE
    assert result.scope == ALL_SCHEDULES
    # The layer alone takes 13, for parameters, what it saves, its input and its output; all layers together take more.
    assert result.least_budget.size == -(-result.total_bound.size // 4) > 13
    assert result.graph.tasks[result.least_budget.task].startswith("Fe")


@pytest.mark.parametrize("moves", few(50, 300))
def test_same_seed_same_plan(moves):
    document = halves(memory=80)
    one, other = (remat.solve(document, algorithm="pipe-plan", options={"moves": moves}, seed=3) for _ in range(2))
    assert one.orders == other.orders


def test_bytes_force_recomputation():
    """If one micro-batch nearly fills all memories, the bound exceeds the work bound and stays valid."""
    document = halves(devices=2, batches=2, memory=40, output_size=0)
    limits = bound.limits_of(make_problem(remat.load(document)))
    value, price = bound.forced_bound(limits)
    work = limits.batches * sum(row.forward + row.backward + row.weight for row in limits.rows) / limits.devices
    assert price > 0
    assert value > work
    result = remat.solve(document, algorithm="pipe-plan", options={"moves": 300})
    assert result.makespan is None or result.makespan >= value
    assert bound.forced_bound(limits._replace(memory=10**9)) == (pytest.approx(work), 0.0)


def test_layers_are_whole():
    """Of 10 equal layers on 8 devices two devices run two, of which the second waits; replicated ones may be shared."""
    document = halves(devices=8, batches=16, output_size=0)
    document["layers"][0]["repeat"] = 10
    limits = bound.limits_of(make_problem(remat.load(document)))
    assert bound.whole_bound(limits) == pytest.approx(2 * 16 * 6 + 2)
    assert bound.whole_bound(limits) > bound.work_bound(limits)
    result = remat.solve(document, algorithm="pipe-plan", options={"moves": 200})
    assert max(one.value for one in result.bounds) <= result.makespan < 1.3 * bound.whole_bound(limits)
    assert not bound.limits_of(make_problem(remat.load(document | {"copies": 2}))).waits


def test_whole_layers_on_devices_of_two_types():
    """A layer that one type cannot run is counted on the other alone."""
    document = halves(devices=2, batches=4, output_size=0)
    document["layers"] = [dict(document["layers"][0], repeat=3, forward_time={"a": 2}, parameter_size=1)]
    document["cluster"] = {"devices": [{"name": "a", "type": "a", "count": 2}, {"name": "b", "type": "b", "count": 1}]}
    limits = bound.limits_of(make_problem(remat.load(document)))
    assert bound.whole_bound(limits) == pytest.approx(2 * 4 * 6)


def test_streams_are_refused():
    document = generate("pipeline", "uniform", devices=2, micro_batches=4, weights="stash")
    with pytest.raises(remat.OptionError, match="weights flush"):
        remat.solve(document, algorithm="pipe-plan")


@pytest.mark.slow
def test_cuts_of_a_smaller_budget_are_searched_at_a_larger_one() -> None:
    """With the cuts that `ftpipe` chooses within the budget alone, 671 gave 638 ms, and 633 gave 600 ms."""
    step = remat.pipeline(
        forward_time=[2, 5, 2, 8, 8, 8, 7, 4, 2, 8, 1, 7],
        backward_time=[2, 5, 2, 8, 8, 8, 7, 4, 2, 8, 1, 7],
        weight_time=[2, 5, 2, 8, 8, 8, 7, 4, 2, 8, 1, 7],
        output_size=1,
        saved_size=[49, 33, 22, 51, 56, 19, 42, 11, 25, 6, 6, 6],
        weight_saved_size=2,
        parameter_size=19,
        optimizer_size=5,
        devices=3,
        memory=1_000_000,
        micro_batches=9,
        time_unit="ms",
        size_unit="unit",
    )
    less, more = (remat.solve(step, algorithm="pipe-plan", budget=budget).makespan for budget in (633, 671))
    assert less is not None
    assert more is not None
    assert more <= 1.03 * less


def textbook(devices, each, batches):
    """Yield schedules as a textbook has them: 1F1B, and groups of micro-batches; whole stages are recomputed."""
    layers = [{"from": each * stage + 1, "to": each * stage + each} for stage in range(devices)]

    def document(order, recomputing):
        """Return the document of an order of (phase, micro-batch) for each stage."""
        again = {} if len(recomputing) == batches else {"micro_batches": recomputing}
        stages = [
            {"layers": own, "device": f"gpu{stage}"}
            | ({"recompute": [{"layers": own, **again}]} if recomputing else {})
            for stage, own in enumerate(layers)
        ]
        orders = {f"gpu{k}": [f"{phase}{k}.{batch}" for phase, batch in order(k)] for k in range(devices)}
        return {"schema": "remat.schedule/2", "stages": stages, "orders": orders}

    def one_forward_one_backward(stage):
        warm = min(batches, devices - stage)
        order = [("F", batch) for batch in range(warm)]
        for batch in range(batches):
            order.append(("B", batch))
            if batch + warm < batches:
                order.append(("F", batch + warm))
        return order

    def groups(size, stage):
        firsts = range(0, batches, size)
        return [(phase, one) for k in firsts for phase in "FB" for one in range(k, min(k + size, batches))]

    for recomputing in ([], list(range(batches))):
        yield document(one_forward_one_backward, recomputing)
    for size in range(1, batches + 1):
        for recomputing in ([], list(range(batches)), [one for one in range(batches) if one % size]):
            yield document(partial(groups, size), recomputing)


@pytest.mark.parametrize("seed", seeds(2, 60))
def test_never_slower_than_textbook_schedules_that_fit(seed):
    """Whole stages are worth recomputing although their layers have no saved bytes, or few: their outputs are freed."""
    rng = random.Random(seed)
    devices, each, batches = rng.randint(2, 4), rng.randint(2, 5), rng.randint(2, 8)
    count = devices * each
    saved = rng.choice([0, 0, 4])
    network = {
        "forward_time": [rng.randint(1, 3)] * count,
        "output_size": [rng.randint(2, 9) for _ in range(count)],
        "saved_size": saved,
    }
    pipeline = partial(
        remat.pipeline, **network, backward_time=5, parameter_size=1, devices=devices, link=50, time_unit="s",
        micro_batches=batches,
    )  # fmt: skip
    texts = list(textbook(devices, each, batches))
    needs = [remat.verify(pipeline(memory=10**6), text) for text in texts]
    peaks = sorted({max(one.peak_memory.values()) for one in needs})
    memory = peaks[rng.randrange(max(1, len(peaks) // 2))]
    instance = pipeline(memory=memory)
    verdicts = [remat.verify(instance, text) for text in texts]
    best = min(one.makespan for one in verdicts if one.ok)
    result = remat.solve(instance, algorithm="pipe-plan", options={"moves": 200})
    assert result.makespan is not None
    assert result.makespan <= best
