"""`pipe-search` and `pipe-exact` on instances: never slower than a named schedule, bounds hold, memory as judged."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.generate import generate
from remat.testing.strategies import pipelines
from tests.seeds import examples

NAMED = (
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "interleaved-1f1b",
    "chimera",
    "gems",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
)
HALVES = {"backward_time": 1, "weight_time": 1, "activation": 2, "kept": 1}
DRAWN = {"derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


def named(document, budget):
    """Return the results of the named schedules that there are for an instance."""
    found = []
    for name in NAMED:
        try:
            found.append(remat.solve(document, algorithm=name, budget=budget))
        except remat.OptionError:
            continue
    return [result for result in found if result.report is not None]


@examples(12, 25, pipelines(largest=5, streams=False, tensor=True), st.integers(20, 100), **DRAWN)
def test_never_slower_than_a_named_schedule_that_fits(document, share):
    free = named(document, None)
    if not free:
        return
    largest = max(max(result.peak_memory.values()) for result in free)
    budget = largest * share // 100
    result = remat.solve(document, algorithm="pipe-search", budget=budget, options={"moves": 30})
    fitting = named(document, budget)
    if fitting:
        best = min(one.makespan for one in fitting)
        assert result.makespan <= best * (1 + 1e-9)
    if result.report is not None:
        assert max(size for name, size in result.peak_memory.items() if name != "host") <= budget


@pytest.mark.parametrize(
    ("batches", "kept", "best"),
    [
        (4, 3, 18),
        (4, 4, 16),
        pytest.param(8, 3, 32, marks=pytest.mark.slow),
        pytest.param(8, 4, 28, marks=pytest.mark.slow),
    ],
)
def test_two_copies_in_opposite_directions(batches, kept, best):
    """Each micro-batch takes one of them; the program proves the optimum of the class, which the search finds, too."""
    layers = [{"forward_time": 1, "backward_time": 2, "saved_size": 1, "output_size": 0}] * 4
    cluster = {"devices": [{"name": "gpu", "count": 4, "memory": kept}], "levels": [{}]}
    document = {"kind": "pipeline", "layers": layers, "micro_batches": batches, "copies": 2, "cluster": cluster}
    document |= {"schema": "remat.instance/3"}
    exact = remat.solve(document, algorithm="pipe-exact", options={"placement": "bidirectional"})
    assert exact.makespan == best
    assert "two copies in opposite directions" in exact.optimal_within
    assert remat.solve(document, algorithm="pipe-search").makespan == best
    chain = remat.solve(document, algorithm="pipe-exact")
    assert chain.makespan <= min((one.makespan for one in named(document, None)), default=chain.makespan)


def test_two_copies_need_the_permission_of_the_instance():
    with pytest.raises(remat.OptionError, match='"copies": 2'):
        remat.solve(generate("pipeline", "uniform"), algorithm="pipe-exact", options={"placement": "bidirectional"})


@settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(largest=3, streams=False, tensor=True), st.sampled_from(["chain", "v", "interleaved"]))
def test_bounds_of_the_program_hold(document, placement):
    try:
        exact = remat.solve(
            document, algorithm="pipe-exact", options={"placement": placement, "moves": 20, "work": 0.05}
        )
        found = remat.solve(document, algorithm="pipe-search", options={"placement": placement, "moves": 100})
    except remat.OptionError:
        return
    for bound in exact.bounds:
        if bound.scope != "all schedules":
            # The search's result is in the class if it has this placement, and not that of another named schedule.
            assert bound.value <= exact.makespan * (1 + 1e-9)
            assert found.orders.stages != exact.orders.stages or bound.value <= found.makespan * (1 + 1e-9)


@pytest.mark.parametrize(
    ("memory", "makespan"),
    [(1, 96), (2, 51), (3, 39), (4, 33)],
)
def test_certified_optima_of_a_chain(memory, makespan):
    result = remat.solve(generate("pipeline", "uniform"), algorithm="pipe-exact", budget=memory)
    assert result.makespan == makespan
    assert result.optimal_within == "orders of evenly cut layers, one stage a device, nothing runs again"


def test_the_time_of_interleaving_in_the_memory_of_1f1b():
    """With two chunks per device, 4 activations per device instead of 5.5 allow a makespan of 57."""
    document = generate("pipeline", "uniform", layers=8)
    interleaved = remat.solve(document, algorithm="interleaved-1f1b")
    assert (interleaved.makespan, max(interleaved.peak_memory.values())) == (57, 11)
    result = remat.solve(document, algorithm="pipe-search", budget=8, options={"placement": "interleaved"})
    assert result.makespan == 57


def test_separate_halves_reach_v_min():
    result = remat.solve(generate("pipeline", "uniform", layers=8, **HALVES), algorithm="pipe-search", budget=8)
    assert result.makespan == 59  # V-min's, the least with half the memory


def test_what_only_passes_counts():
    """Outputs and gradients that only pass through count, although the search's model omits them at first."""
    layer = {"forward_time": 1, "backward_time": 2, "saved_size": 4, "output_size": 3, "repeat": 4}
    document = generate("pipeline", "uniform") | {"layers": [layer]}
    document["cluster"]["levels"] = [{"bandwidth": 2}]
    free = remat.solve(document, algorithm="1f1b")
    budget = max(free.peak_memory.values()) * 3 // 4
    result = remat.solve(document, algorithm="pipe-search", budget=budget, options={"moves": 300})
    assert result.report is not None
    assert max(result.peak_memory.values()) <= budget


@settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(largest=4, streams=False), st.sampled_from(["chain", "v"]))
def test_the_minimum_budget_is_the_smallest_that_has_orders(document, placement):
    options = {"placement": placement, "moves": 20, "work": 0.02}

    def solved(budget):
        return remat.solve(document, algorithm="pipe-exact", budget=budget, options=options)

    try:
        named = solved(1)
    except remat.OptionError:
        return
    least = named.least_budget
    if named.columns is not None or named.scope in (None, "all schedules"):
        return
    assert least.sufficient
    assert solved(least.size).columns is not None
    late = remat.solve(document, algorithm="pipe-exact", budget=least.size, options=options, time_limit=0.001)
    assert late.columns is not None
    assert solved(least.size - 1).columns is None


@pytest.mark.parametrize("algorithm", ["tessel", "pipe-exact"])
@pytest.mark.parametrize("placement", ["chain", "v", "interleaved"])
def test_operations_that_take_no_time_run_as_their_data_goes(algorithm, placement):
    layers = [{"forward_time": 0, "backward_time": time, "saved_size": 1} for time in (0, 1, 0, 0, 2, 0)]
    document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": layers, "micro_batches": 3}
    document["cluster"] = {"devices": [{"name": "gpu", "count": 2}]}
    options = {"work": 0.05, "placement": placement} | ({"moves": 20} if algorithm == "pipe-exact" else {})
    found = remat.solve(document, algorithm=algorithm, options=options)
    assert found.report.ok


@pytest.mark.parametrize("algorithm", ["tessel", "pipe-exact", "optpipe"])
def test_a_pipeline_that_takes_no_time_has_orders(algorithm):
    layers = [{"forward_time": 0, "backward_time": 0, "optimizer_size": 1}]
    document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": layers, "micro_batches": 2}
    cluster = {"devices": [{"name": "gpu", "count": 1}]} | ({"host": {}} if algorithm == "optpipe" else {})
    found = remat.solve(document | {"cluster": cluster}, algorithm=algorithm)
    assert found.makespan == 0


def test_makespans_that_no_float_holds():
    """The search takes the best makespan as a float; it never takes the rounding for an improvement."""
    layer = {"forward_time": 2**59 + 1, "backward_time": 2**60 + 3, "saved_size": 5, "parameter_size": 2}
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "layers": [layer | {"gradient_size": 3, "repeat": 6}],
        "micro_batches": 6,
        "cluster": {
            "devices": [{"name": "gpu", "count": 3, "memory": 39}],
            "levels": [{"bandwidth": 5, "devices": 2}, {"delay": 1729382256910270467}],
        },
    }
    result = remat.solve(document, algorithm="pipe-search", options={"moves": 200})
    assert result.makespan is not None


@pytest.mark.parametrize("name", ["pipe-search", "auto"])
@pytest.mark.parametrize("end", [{"update_time": 1}, {"parameter_size": 1, "copies": 2, "exchange": "ring"}])
def test_a_reported_step_keeps_its_end(name, end):
    """An interrupt takes what was reported last: tasks at the end of a step are none of the instance's own."""

    def interrupt(progress):
        if progress.steps is not None:
            raise KeyboardInterrupt

    layer = {"forward_time": 1, "backward_time": 2, "saved_size": 1, "repeat": 4}
    layer |= {key: size for key, size in end.items() if key.endswith(("_time", "_size"))}
    document = {"schema": "remat.instance/3", "kind": "pipeline", "layers": [layer], "micro_batches": 2}
    document |= {"cluster": {"devices": [{"name": "gpu", "count": 2}]}}
    document |= {key: value for key, value in end.items() if key in ("copies", "exchange")}
    result = remat.solve(document, algorithm=name, progress=interrupt)
    assert result.orders is not None
    assert result.termination == "interrupted"
