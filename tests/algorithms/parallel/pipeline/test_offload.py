"""Pipelines with a host: schedules with copies there, as both judges see them; the search against all orders."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import remat
from remat.plugin import Context
from remat.solving.problem_setup import make_problem
from remat.testing.strategies import pipelines
from remat_algorithms.parallel.pipeline.local_search import kernel, moves, objective
from remat_algorithms.parallel.pipeline.local_search.arrays import state_of
from remat_algorithms.parallel.pipeline.model import B, F, W
from remat_algorithms.parallel.pipeline.offload.incumbent import BestSteps, search_hosted
from remat_algorithms.parallel.pipeline.offload.offload_model import Choice, Hosting, R
from remat_algorithms.parallel.pipeline.offload.search import HostSearch, facts_with_host, keys_of, worth_sending
from remat_algorithms.parallel.pipeline.stages import staging
from tests.fuzz.transformations import scale_times
from tests.oracles import referee

SETTINGS = {"derandomize": True, "database": None, "deadline": None, "suppress_health_check": list(HealthCheck)}
NEW = ({"algorithm": "pipeoffload"}, {"algorithm": "optpipe", "options": {"work": 0.01}})


def uniform(devices, batches, *, layers=None, bandwidth=4, weight=2, **more):
    """Return equal layers of F 2, B 2 and 4 bytes, half of which are for W, and a host."""
    halves = {"weight_time": weight, "weight_saved_size": 2} if weight else {}
    layer = {"forward_time": 2, "backward_time": 2, "saved_size": 4, "repeat": layers or devices} | halves
    return {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": batches,
        "layers": [layer | more],
        "cluster": {"devices": [{"name": "gpu", "count": devices}], "host": {"bandwidth": bandwidth}},
    }


def judged(document, **how):
    """Solve, and let the oracles' referee judge the schedule, too."""
    result = remat.solve(document, **how)
    if result.report is not None:
        verdict = referee.check(document, result.to_dict(), how.get("budget"))
        assert verdict.ok, verdict.violations
        assert verdict.peaks == result.peak_memory
        assert verdict.makespan == pytest.approx(result.makespan, rel=1e-12)
    return result


def hosted(document):
    """Return a drawn pipeline with a host."""
    drawn = {key: value for key, value in document.items() if key not in ("exchange", "copies", "parts", "samples")}
    layers = [{key: value for key, value in layer.items() if key != "update_time"} for layer in document["layers"]]
    layers[0] |= {"repeat": 4}
    return drawn | {"layers": layers, "cluster": {"host": {"bandwidth": 2}} | document["cluster"]}


def check_both_judges(document, share):
    whole = remat.solve(document, algorithm="1f1b", budget={"host": None})
    budget = max(size for name, size in whole.peak_memory.items() if name != "host") * share // 100
    if budget == 0:
        return
    found = [judged(document, budget=budget, **how) for how in NEW]
    ours = judged(document, budget=budget, algorithm="pipe-search", options={"moves": 20})
    if found[0].makespan is not None:
        assert ours.makespan <= found[0].makespan * (1 + 1e-9)


@settings(max_examples=2, **SETTINGS)
@given(pipelines(largest=3, streams=False).map(hosted), st.integers(30, 90))
def test_both_judges_accept(document, share):
    """Both judges accept schedules with float and integer times, slow links and small hosts."""
    check_both_judges(document, share)


@pytest.mark.slow
@settings(max_examples=100, **SETTINGS)
@given(pipelines(largest=5, streams=False).map(hosted), st.integers(20, 100))
def test_both_judges_accept_many(document, share):
    check_both_judges(document, share)


def test_offloading_makes_one_device_faster_as_by_hand():
    """One device holds one of two micro-batches; each transfer takes 1, without overlap."""
    document = uniform(1, 2, weight=0)
    free = judged(document, budget=4, algorithm="pipe-search")
    assert free.makespan == 8  # one after the other: nothing is sent
    assert not any(free.report.transferred.values())
    two = uniform(2, 2, weight=0)
    assert judged(two, budget=4, algorithm="1f1b").makespan is None
    assert judged(two, budget=4, algorithm="gpipe").makespan is None
    sent = judged(two, budget=4, algorithm="pipe-search", options={"moves": 100})
    # F0 2, its transfer out 1, F1 2; B of the first is ready at 6, and returns when the second has left.
    assert sent.makespan <= 16
    assert sent.makespan == least(two, 4)


def sequences(hosting, stages, batches):
    """Yield every sequence of operations in ascending micro-batches, with every choice of offloaded ones."""
    chains = []
    for stage in range(stages):
        chains += [[(phase, stage, batch) for batch in range(batches)] for phase in (F, B)]
        if hosting.model.weight[stage]:
            chains.append([(W, stage, batch) for batch in range(batches)])

    def after(sequence, done, place, sent):
        if len(sequence) == sum(map(len, chains)) + len(sent):
            yield tuple(sequence)
            return
        for number, chain in enumerate(chains):
            if place[number] == len(chain):
                continue
            op = phase, stage, batch = chain[place[number]]
            wanted = {F: [(F, stage - 1, batch)] if stage else [], W: [(B, stage, batch)]}.get(phase)
            if phase == B:
                wanted = [(F, stage, batch)] + ([(B, stage + 1, batch)] if stage + 1 < stages else [])
                wanted += [(R, stage, batch)] if (stage, batch) in sent else []
            if all(one in done for one in wanted):
                moved = [*place[:number], place[number] + 1, *place[number + 1 :]]
                yield from after([*sequence, op], done | {op}, moved, sent)
        for stage, batch in sent:
            back = (R, stage, batch)
            if back not in done and (F, stage, batch) in done:
                yield from after([*sequence, back], done | {back}, place, sent)

    every = [(stage, batch) for stage in range(stages) for batch in range(batches)]
    for chosen in range(2 ** len(every)):
        sent = [one for number, one in enumerate(every) if chosen >> number & 1]
        yield from after([], frozenset(), [0] * len(chains), sent)


def least(document, budget):
    """Return the minimum makespan of all sequences that fit, with one stage per device."""
    problem = make_problem(remat.load(document), budget=budget)
    hosting = Hosting(problem, staging(problem, "chain"))
    played = (hosting.play(one) for one in sequences(hosting, hosting.model.stages, hosting.model.batches))
    return min((one.makespan for one in played if one is not None and not any(one.excess)), default=None)


@pytest.mark.parametrize(
    ("bandwidth", "more"),
    [(1, {}), (4, {"forward_time": 1})],
)
def test_against_all_sequences(bandwidth, more):
    """Two stages, two micro-batches: the search, and the program, find the best there is."""
    document = uniform(2, 2, bandwidth=bandwidth, weight=0, **more)
    budget = 1 + document["layers"][0]["saved_size"]
    problem = make_problem(remat.load(document), budget=budget)
    best = BestSteps(problem, Context())
    search_hosted(best, staging(problem, "chain"), starts=(), moves=100, stop=lambda: False)
    assert best.makespan == least(document, budget)
    program = judged(document, budget=budget, algorithm="optpipe", options={"work": 0.3})
    assert program.makespan == best.makespan


@pytest.mark.parametrize(("devices", "bandwidth", "budget"), [(4, 4, 8), (4, 1, 12), (3, 2, None)])
def test_the_kernels_times_are_those_of_what_is_played(devices, bandwidth, budget):
    document = uniform(devices, 6, layers=2 * devices, bandwidth=bandwidth)
    problem = make_problem(remat.load(document), budget=budget)
    for shape in ("chain", "v", "interleaved"):
        hosting = Hosting(problem, staging(problem, shape))
        search = HostSearch(hosting, seed=1, stop=lambda: False, offer=lambda *given: None)
        for lists in hosting.staged.starts:
            keys = keys_of(hosting, lists, 1.5)
            for share in (0.0, 0.5, 1.0):
                sent = worth_sending(hosting, keys, share)
                for strict in (False, True):
                    sequence = search.sequence(keys, Choice(0 * sent, sent), strict=strict)
                    played = None if sequence is None else hosting.play(sequence)
                    assert (sequence is None) == (played is None)
                    if played is not None:
                        assert played.makespan == objective.figure(search.facts, search.kernel.state)
                        assert not any(played.excess)


@pytest.mark.parametrize("bandwidth", [3, 4])
def test_compiled_as_interpreted(bandwidth):
    """The kernel and its plain twin leave the same, to the bit."""
    problem = make_problem(remat.load(uniform(2, 3, layers=4, bandwidth=bandwidth)), budget=10)
    hosting = Hosting(problem, staging(problem, "v"))
    facts = facts_with_host(hosting)
    states = [state_of(facts, 5) for _ in range(2)]
    keys = keys_of(hosting, hosting.staged.starts[0], 1.0)
    walks = (
        kernel.ACT.bind(facts, states[0]),
        lambda *given: moves.act(facts, states[1], *given),
    )
    for state, go in zip(states, walks, strict=True):
        state.current[:] = keys
        state.current_option[:] = worth_sending(hosting, keys, 1.0)
        go(moves.WALK, 30, 1.0, 0.0)
        assert state.progress.moves == 30
    for one, other in zip(*states, strict=True):
        if one is states[0].progress:
            assert (one.random, one.best, one.current) == (other.random, other.best, other.current)
        else:
            assert one.tobytes() == other.tobytes()


def test_as_quick_as_without_a_limit():
    """Half of 1F1B's memory is enough where the host is near: a round trip of half the work between."""
    document = uniform(4, 8, layers=8, bandwidth=16 / 6)
    how = {"algorithm": "pipe-search", "options": {"moves": 60, "placement": "v"}}
    free = remat.solve(document, **how)
    half = remat.solve(document, budget="50%", **how)
    assert half.makespan == free.makespan
    assert half.report.transferred["gpu0->host"] > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cluster": {"devices": [{"name": "gpu", "count": 2}]}}, "the cluster has none"),
        ({"layers": [{"forward_time": 1, "backward_time": 1, "update_time": 1, "repeat": 2}]}, "leave out update_time"),
    ],
)
def test_unsupported_pipelines_are_refused(change, words):
    with pytest.raises(remat.OptionError, match=words):
        remat.solve(uniform(2, 2) | change, algorithm="pipeoffload")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"weights": "stash"}, ".cluster.host"),
        ({"cluster": {"devices": [{"name": "host"}], "host": {}}}, ".cluster.devices"),
        ({"cluster": {"devices": [{"name": "a"}, {"name": "b"}], "host": {}, "transfers": "grouped"}}, ".cluster.host"),
        ({"sharding": {"data": 2, "zero": 1}}, ".cluster.host"),
        ({"cluster": {"devices": [{"name": "a"}], "host": {"bandwidth": 0}}}, ".cluster.host.bandwidth"),
    ],
)
def test_contradictory_documents_are_refused(change, path):
    with pytest.raises(remat.InstanceError) as caught:
        remat.load(uniform(2, 2) | change)
    assert path in str(caught.value)


def test_budgets_are_for_devices():
    """A bare budget is not the host's; its own name is."""
    machine = make_problem(remat.load(uniform(2, 2)), budget=9).machine
    assert [memory.capacity for memory in machine.memories] == [9, 9, None]
    machine = make_problem(remat.load(uniform(2, 2)), budget={"": 9, "host": 5}).machine
    assert [memory.capacity for memory in machine.memories] == [9, 9, 5]


def test_the_joint_planner_takes_it():
    """Its plans are no slower, and it claims no bound that knows of no host."""
    document = uniform(2, 4, layers=4)
    one = judged(document, budget=10, algorithm="pipe-search", options={"moves": 20})
    both = judged(document, budget=10, algorithm="pipe-plan", options={"moves": 20})
    assert both.makespan <= one.makespan
    assert both.lower_bound <= both.makespan


@pytest.mark.slow
@settings(max_examples=12, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipelines(largest=4, streams=False).map(hosted), st.integers(30, 90), st.sampled_from([2, 1024]))
def test_the_unit_of_time_does_not_matter(document, share, factor):
    """Work is counted in steps that are as many in any unit, also where its limit decides."""
    scaled = scale_times(document, factor)
    if scaled is None:
        return
    try:
        plain, other = (
            remat.solve(one, algorithm="optpipe", budget=f"{share}%", options={"work": 0.002})
            for one in (document, scaled)
        )
    except remat.OptionError:
        return
    assert (plain.makespan is None) == (other.makespan is None)
    if plain.makespan is not None:
        assert other.makespan == pytest.approx(factor * plain.makespan, rel=1e-12)
