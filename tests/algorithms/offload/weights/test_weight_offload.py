"""`weight-offload`: a timeline worked by hand, the choices against all others, budgets, third levels and bounds."""

import itertools
from functools import cache, partial

import pytest

import remat
from remat.plugin.context import Context
from remat.plugin.registry import find
from remat.solving.decisions.words import decision_words
from remat.solving.problem_setup import make_problem
from remat.verifier import check
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights.parameters import Choice, Setting
from remat_algorithms.offload.weights.training_program import Training
from tests.algorithms.offload.trained import chain, drawn, gradient_of, machine, stage
from tests.algorithms.offload.weights.test_zero_family import solve, timeline
from tests.oracles import referee
from tests.seeds import few, seeds


def test_parameters_leave_as_by_hand():
    """Four stages of F 2, B 2, 4 bytes of parameters at 2 per time unit, instant updates, budget 18.

    Parameters and one gradient are 20 bytes: stage 1's parameters leave with F1's start, which uses them until 2. When
    B4 and its parameters have gone, g4 (in transfer) and g3 fill the budget; at 12 they come back, just in time.
    From 12 on, the link to the device brings five times 4 bytes.
    """
    layers = [stage(2, 2, 4, output=0, saved=0, update=0) for _ in range(4)]
    document = chain(*layers, master_copy=True, input_size=0)
    free = solve(document, "weight-offload")
    # All stay: backwards end at 10, 12, 14, 16, and g1 and nw1 take 2 + 2 more.
    assert free.makespan == 20
    assert free.peak_memory["device"] == 16 + 4
    tight = solve(document, "weight-offload", budget=18)
    assert sorted(timeline(tight), key=lambda item: (item[1], item[0])) == [
        *(("Fe1", 0), ("w1>", 0), ("Fe2", 2), ("Fe3", 4), ("Fe4", 6), ("B4", 8), ("loss", 8)),
        *(("B3", 10), ("g4>", 10), ("B2", 12), ("U4", 12), ("g3>", 12), ("w1<", 12)),
        *(("B1", 14), ("U3", 14), ("g2>", 14), ("nw4<", 14), ("U2", 16), ("g1>", 16), ("nw3<", 16)),
        *(("U1", 18), ("nw2<", 18), ("nw1<", 20)),
    ]
    assert tight.makespan == 22
    assert not tight.notes
    assert list(decision_words(tight)) == [
        "parameters: size 16 in device; optimizer states: size 48 in host",
        "update stages 1-4 on cpu (optimizer states: size 48)",
        "offload the parameters of stage 1 to host (size 4)",
        "copy the new parameters of stages 1-4 to device (size 16)",
        "keep the activations of stages 1-4 (size 0)",
    ]


def all_choices(document, budget, homes=((None, None),)):
    """Return the minimum makespan over all choices of stages, updaters, recomputed forwards, and homes."""
    problem = make_problem(remat.load(document), budget=budget)
    setting = Setting(problem, "weight-offload")
    ways = [
        Choice(*way, home=home, state_home=states)
        for *way, (home, states) in itertools.product((False, True), (0, 1), (False, True), homes)
    ]
    best = None
    for chosen in itertools.product(ways, repeat=len(setting.stages)):
        training = Training(setting, chosen)
        outcome = dispatch(training.graph, setting.machine, training.program)
        if isinstance(outcome, Dispatched) and (best is None or outcome.makespan < best):
            best = outcome.makespan
    return best


@pytest.mark.parametrize("chains", [(0, 1, 2), pytest.param(tuple(range(6)), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("home", ["device", pytest.param("host", marks=pytest.mark.slow)])
def test_against_all_choices(home, chains):
    """Of short chains all choices are tried; where only the walk is left, it is close to the best one."""
    ratios = []
    for seed in chains:
        document = drawn(seed, longest=3, parameters=home)
        peak = solve(document, "weight-offload").peak_memory["device"]
        for budget in (peak * 9 // 10, peak * 8 // 10):
            best = all_choices(document, budget)
            if best is not None:
                assert solve(document, "weight-offload", budget=budget, evaluations=512).makespan <= best
                ratios.append(solve(document, "weight-offload", budget=budget, evaluations=60).makespan / best)
    assert len(ratios) >= 5 * len(chains) // 6
    assert sum(ratios) / len(ratios) <= 1.02


OPEN = {"schema": "remat.instance/3", "parameter_memory": "any", "optimizer_memory": "any"}
HOMES = list(itertools.product((0, 1), repeat=2))
"""Of parameters and of optimizer states: the device, or the host."""


@pytest.mark.parametrize("chains", [(1,), pytest.param(tuple(range(12)), marks=pytest.mark.slow)], ids=len)
def test_open_homes_against_all_homes(chains):
    """Of very short chains, all homes are tried, together with all other choices."""
    tried = 0
    for seed in chains:
        document = drawn(seed, longest=2) | OPEN
        peak = solve(document, "weight-offload").peak_memory["device"]
        for budget in (None, peak * 9 // 10, peak * 7 // 10):
            best = all_choices(document, budget, HOMES)
            found = remat.solve(
                document,
                algorithm="weight-offload",
                budget=budget,
                options={"evaluations": 32 ** len(document["stages"])},
            )
            assert (found.makespan is None) == (best is None)
            if best is not None:
                tried += 1
                assert found.makespan <= best
    assert tried >= len(chains)


@pytest.mark.parametrize("chains", [range(2, 3), pytest.param(range(8), marks=pytest.mark.slow)], ids=len)
@pytest.mark.parametrize("algorithm", ["weight-offload", "offmate"])
def test_open_homes_are_never_slower_than_states_at_the_host(algorithm, chains):
    """Parameters on the device and states at the host are the search's own first choice."""
    faster = tried = 0
    for seed in chains:
        fixed = drawn(seed, longest=5)
        peak = solve(fixed, algorithm).peak_memory["device"]
        for budget in (2 * peak, peak, peak * 8 // 10):
            own, free = (
                remat.solve(document, algorithm=algorithm, budget={"device": budget}, options={"evaluations": 40})
                for document in (fixed, fixed | OPEN)
            )
            if own.makespan is None:
                continue
            assert free.makespan <= own.makespan
            assert referee.check(fixed | OPEN, free.to_dict()).ok
            faster, tried = faster + (free.makespan < own.makespan), tried + 1
    assert tried >= 2 * len(chains)
    assert faster > 0


@pytest.mark.parametrize("algorithm", ["weight-offload", "offmate"])
def test_states_stay_on_a_device_that_can_hold_everything(algorithm):
    """Three stages of F 2, B 4 and updates of 1: a transfer takes longer than all of them, and nothing moves."""
    document = chain(*(stage(2, 4, 400, optimizer=1200) for _ in range(3)), **OPEN)
    found = solve(document, algorithm)
    assert found.makespan == 3 * (2 + 4 + 1)
    assert set(found.report.transferred.values()) <= {0}
    assert not found.notes
    assert next(decision_words(found)) == "parameters: size 1,200 in device; optimizer states: size 3,600 in device"


def test_parameters_live_at_the_host_where_no_others_fit():
    """A device that holds the parameters of two of four stages."""
    layers = [stage(2, 2, 4, output=0, saved=0, optimizer=8) for _ in range(4)]
    document = chain(*layers, master_copy=True, input_size=0, **OPEN)
    found = solve(document, "weight-offload", budget=12)
    assert found.peak_memory["device"] <= 12
    homes = found.to_dict()["initial"]
    assert any("host" in homes[f"w{index}"] for index in range(1, 5))
    assert referee.check(document | {"machine": machine(device=12)}, found.to_dict()).ok


def test_neither_memory_holds_all_states():
    """Four stages with states of 12: 48 bytes fit neither on a device of 40 nor at a host of 36."""
    document = chain(*(stage(2, 2, 2, output=0, saved=0) for _ in range(4)), input_size=0, **OPEN)
    small = document | {"machine": machine(device=40, host=36)}
    found = solve(small, "weight-offload")
    assert found.makespan is not None
    assert found.peak_memory["device"] <= 40
    assert found.peak_memory["host"] <= 36


@pytest.mark.parametrize("seed", seeds(1, 5))
def test_never_worse_than_the_rules(seed):
    for home, rule in (("device", "zero-offload"), ("host", "l2l")):
        document = drawn(seed, longest=4, parameters=home)
        both = ({}, {"recompute": True}, {"recompute": False}, {"activations": "device"})
        own = cache(partial(solve, document, "weight-offload"))
        for options in both if rule == "l2l" else ({}, {"recompute": True}):
            peak = solve(document, rule, **options).peak_memory["device"]
            for budget in (peak, peak - 2):
                other = remat.solve(document, algorithm=rule, budget=budget, options=options)
                if other.columns is not None:
                    assert own(budget).makespan <= other.makespan


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_the_least_budget_that_it_names_is_enough(seed):
    for home in ("device", "host"):
        document = drawn(seed, parameters=home)
        refused = solve(document, "weight-offload", budget=1)
        least = refused.least_budget
        assert refused.columns is None
        if least.sufficient:
            assert solve(document, "weight-offload", budget=least.size).columns is not None


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_traffic_follows_from_the_choices(seed):
    """Parameters at the host come once, those that leave twice; gradients go where the update is."""
    document = drawn(seed, parameters="host")
    problem = make_problem(remat.load(document), budget=None)
    setting = Setting(problem, "weight-offload")
    stages = document["stages"]
    for pattern in range(4):
        chosen = [Choice(bool((i + pattern) % 2), pattern // 2) for i in range(len(stages))]
        outcome = dispatch(setting.graph, setting.machine, Training(setting, chosen).program)
        report = check(setting.graph, setting.machine, outcome.steps)
        assert report.ok, report.violations
        coming = sum(s["parameter_size"] * (1 + chosen[i].streams) for i, s in enumerate(stages))
        if pattern // 2:
            leaving = sum(map(gradient_of, stages))
        else:  # updates on the device: optimizer states come and go, new parameters go
            leaving = sum(s["parameter_size"] + s["optimizer_size"] for s in stages)
            coming += sum(s["optimizer_size"] for s in stages)
        assert report.transferred == {"device->host": leaving, "host->device": coming}
        assert report.makespan == outcome.makespan


def test_without_a_processor_at_the_host_the_device_updates():
    document = chain(stage(), stage(), parameters="host") | {"machine": machine(host_processor=False)}
    result = solve(document, "weight-offload")
    # 8 bytes of parameters and 24 of optimizer states come and go at 2 a time unit.
    assert result.report.transferred == {"device->host": 32, "host->device": 32}
    (crossing,) = [bound for bound in result.bounds if bound.source == "parameters that must cross the links"]
    assert (crossing.value, crossing.scope) == (16, "all schedules")
    assert 16 <= result.lower_bound <= result.makespan


def test_in_one_memory_nothing_moves():
    document = chain(stage(), stage())
    for key in ("machine", "parameter_memory", "optimizer_memory"):
        del document[key]
    result = solve(document, "weight-offload")
    assert result.status.value == "optimal"
    assert result.makespan == 14
    assert "device" not in result.peak_memory


def test_through_the_host_to_a_third_level():
    """Optimizer states on a disk behind the host, whose processor updates: they take two hops where needed."""
    document = chain(stage(), stage(), parameters="host")
    document["machine"] = machine()
    document["machine"]["memories"].append({"name": "disk"})
    document["machine"]["links"] += [
        {"source": "host", "target": "disk", "bandwidth": 1},
        {"source": "disk", "target": "host", "bandwidth": 1},
    ]
    document["optimizer_memory"] = "disk"
    result = solve(document, "weight-offload")
    assert result.report.transferred["disk->host"] == result.report.transferred["host->disk"] == 24
    assert result.peak_memory["disk"] == 24


@pytest.mark.parametrize("evaluations", few(60, 300))
def test_half_duplex_and_synchronous_links(evaluations):
    makespans = []
    for channel in (None, "bus", "gpu"):
        document = chain(*[stage() for _ in range(4)], parameters="host")
        for link in document["machine"]["links"]:
            link["channel"] = channel or f"{link['source']} out"
            link["latency"] = 1
        makespans.append(solve(document, "weight-offload", budget=30, evaluations=evaluations).makespan)
    assert makespans[0] <= makespans[1] <= makespans[2]
    assert makespans[0] < makespans[2]


@pytest.mark.parametrize("evaluations", few(60, 300))
def test_it_reports_what_gets_better_and_stops_when_asked(evaluations):
    document = drawn(7, longest=8, parameters="host")  # eight stages
    problem = make_problem(remat.load(document), budget=46)
    algorithm = find("weight-offload", "chain")
    seen = []
    context = Context(listener=lambda progress: seen.append(progress.makespan))
    options = algorithm.load_options()(evaluations=evaluations)
    whole = algorithm.load()(problem, options, context)
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] == whole.makespan
    stopped = Context(listener=lambda progress: setattr(stopped, "interrupted", True))
    early = algorithm.load()(problem, options, stopped)
    assert early.termination == "interrupted"
    assert seen[0] >= early.makespan >= whole.makespan


@pytest.mark.slow
@pytest.mark.parametrize("home", ["device", "host"])
def test_auto_is_no_worse_where_there_are_several_memories(home):
    document = chain(stage(), stage(), parameters=home)
    found, alone = remat.solve(document), remat.solve(document, algorithm="weight-offload")
    assert found.makespan <= alone.makespan
    assert found.lower_bound >= alone.lower_bound
    for key in ("machine", "parameter_memory", "optimizer_memory"):
        del document[key]
    assert remat.solve(document).status == "optimal"
