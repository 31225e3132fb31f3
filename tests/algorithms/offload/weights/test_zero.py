"""Ranks that partition states: the papers' figures, timelines by hand, and drawn chains with both verifiers."""

import itertools
import random

import pytest

import remat
from remat.generate import generate
from remat.report.text.facts import facts_lines
from remat.report.text.schedule_view import to_dict
from remat.solving.problem_setup import make_problem
from remat.solving.verifying import examine
from remat_algorithms.offload.swaps.dispatch import Dispatched, dispatch
from remat_algorithms.offload.weights.parameters import Choice
from remat_algorithms.offload.weights.training_program import Manner, Training
from remat_algorithms.offload.weights.zero_family import setting_of
from tests.algorithms.offload.trained import chain, drawn, machine, stage
from tests.oracles import cycles, referee
from tests.seeds import seeds

BYTES = {"adam": 12, "adam8": 6, "momentum": 8}
"""Bytes of an optimizer's states per parameter at 16 bit, a master copy included."""

ACTIVATIONS = ("host", "device", "nvme")

FIGURES = [
    # parameters, ranks, stage, optimizer, bytes on a device
    (7500000000, 64, 0, "adam", 120000000000),
    (7500000000, 64, 1, "adam", 31406250000),
    (7500000000, 64, 2, "adam", 16640625000),
    (7500000000, 64, 2, "adam8", 15937500000),
    (7500000000, 64, 3, "adam", 1875000000),
    (1500000000, 8, 0, "momentum", 18000000000),
    (1500000000, 8, 1, "adam", 8250000000),
    (1500000000, 8, 1, "adam8", 7125000000),
    (1500000000, 8, 3, "adam8", 1875000000),
    (1500000000, 8, 3, "momentum", 2250000000),
    (175000000000, 1024, 0, "momentum", 2100000000000),
    (175000000000, 1024, 1, "adam", 702050781250),
    (175000000000, 1024, 1, "adam8", 701025390625),
    (175000000000, 1024, 2, "adam", 352392578125),
    (124439808, 7, 1, "adam", 711084618),
    (7500000001, 48, 0, "adam8", 75000000010),
    (7500000001, 48, 1, "adam", 31875000005),
    (124439808, 7, 2, "adam", 497759232),
    (7500000001, 48, 3, "adam", 2500000001),
    (124439808, 7, 3, "adam8", 177771155),
]


def of_ranks(document, ranks, zero, *, bandwidth=2, **more):
    """Return a chain as one of several ranks has it, over a link from the device to itself."""
    way = {"source": "device", "target": "device", "bandwidth": bandwidth, "channel": "network"}
    document["machine"] = document["machine"] | {"links": [*document["machine"]["links"], way]}
    return document | {"schema": "remat.instance/3", "sharding": {"data": ranks, "zero": zero, **more}}


def on_the_device(document):
    return document | {"parameter_memory": "device", "optimizer_memory": "device"}


def solve(document, algorithm, **options):
    """Solve, and let the oracles' referee judge the schedule, too."""
    result = remat.solve(document, algorithm=algorithm, options=options)
    verdict = referee.check(document, result.to_dict())
    assert verdict.ok, verdict.violations
    assert verdict.makespan == pytest.approx(result.report.makespan, rel=1e-12)
    assert verdict.peaks == result.peak_memory
    assert verdict.transferred == result.report.transferred
    return result


def started(result):
    """Return the start of each task, of the last run of those that run twice."""
    return {step.task: step.start for step in result.steps if hasattr(step, "task")}


# --- the papers' figures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("parameters", "ranks", "zero", "optimizer", "size"), FIGURES)
def test_bytes_on_a_device(parameters, ranks, zero, optimizer, size):
    """A rank's share of one stage is rounded up once, as a whole."""
    state = BYTES[optimizer] * parameters
    document = chain(stage(parameters=2 * parameters, optimizer=state), master_copy=True)
    document["schema"] = "remat.instance/3"
    terms = remat.show(document | {"sharding": {"data": ranks, "zero": zero}}).terms
    assert sum(term.size for term in terms if term.name in ("parameters", "gradients", "optimizer states")) == size


def test_memory_equals_the_table_of_the_paper():
    """7.5e9 parameters on 64 devices, in a hundred stages: 120, 31.4, 16.6 and 1.9 GB, at the end of the backward."""
    count = 75_000_000
    layers = [stage(parameters=2 * count, optimizer=12 * count, output=0, saved=0) for _ in range(100)]
    found = []
    for zero in range(4):
        document = on_the_device(chain(*layers, master_copy=True, input_size=0))
        document = document | {"schema": "remat.instance/3", "sharding": {"data": 64, "zero": zero}}
        facts = remat.show(document)
        lasting = [term.size for term in facts.terms if term.name in ("parameters", "gradients", "optimizer states")]
        found.append(sum(lasting))
        # Beside these there are two buckets at most, and as many gathered stages.
        beside = facts.no_recompute_peak - found[-1]
        assert 0 <= beside <= {0: 0, 1: 0, 2: 2, 3: 4}[zero] * 2 * count
    assert found == [120_000_000_000, 31_406_250_000, 16_640_625_000, 1_875_000_000]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_ranks_send_the_bytes_of_their_stage_of_zero(ranks):
    """A rank sends (d - 1) / d of twice the parameters' bytes a step; three times in stage 3 but for the last layer."""
    layers = [stage(parameters=24 * (k + 1)) for k in range(4)]
    total, last = sum(layer["parameter_size"] for layer in layers), layers[-1]["parameter_size"]
    for zero in range(4):
        document = of_ranks(on_the_device(chain(*layers, master_copy=True)), ranks, zero)
        sent = solve(document, "zero").report.transferred["device->device"]
        gathered = {0: 2 * total, 1: 2 * total, 2: 2 * total, 3: 3 * total - last}[zero]
        assert sent * ranks == (ranks - 1) * gathered
    kept = solve(document, "zero", keep=True).report.transferred["device->device"]
    assert kept * ranks == (ranks - 1) * 2 * total


# --- by hand ----------------------------------------------------------------------------------------------------------


def three(zero, **more):
    """Return three stages of F 2, B 4, 4 bytes of parameters; two ranks gather or reduce them in 1, add up in 2."""
    return of_ranks(on_the_device(chain(stage(), stage(), stage(), master_copy=True)), 2, zero, **more)


def test_adding_up_by_hand():
    """Backwards end at 10, 14, 18; exchanges follow each of them, updates the last one."""
    result = solve(three(0), "zero")
    starts = started(result)
    assert [starts[name] for name in ("A3", "A2", "A1")] == [10, 14, 18]
    assert [starts[name] for name in ("U3", "U2", "U1")] == [18, 19, 20]
    assert result.makespan == 21
    # At the end of the backward, all of it: 3 x (4 + 4 + 12), and y0.
    assert result.peak_memory["device"] >= 60


@pytest.mark.parametrize("zero", [1, 2])
def test_shared_states_by_hand(zero):
    """Gradients are reduced in 1, updates take half of the time, and new parameters are gathered behind them."""
    result = solve(three(zero), "zero")
    starts = started(result)
    assert [starts[name] for name in ("A3", "A2", "A1")] == [10, 14, 18]
    assert [starts[name] for name in ("U3", "U2", "U1")] == [18, 18.5, 19]
    assert [starts[name] for name in ("P3", "P2", "P1")] == [19, 20, 21]
    assert result.makespan == 22


def test_gathered_parameters_by_hand():
    """Each stage is gathered while the one before runs: for F at 0, 1 and 3, for B at 7 and, behind A3, at 12."""
    result = solve(three(3), "zero")
    runs = [(step.task, step.start) for step in result.steps if hasattr(step, "task")]
    assert [start for task, start in runs if task in ("P1", "P2", "P3")] == [0, 1, 3, 7, 12]
    starts = started(result)
    assert [starts[name] for name in ("Fe1", "Fe2", "Fe3", "B3", "B2", "B1")] == [1, 3, 5, 7, 11, 15]
    assert [starts[name] for name in ("A3", "A2", "A1")] == [11, 15, 19]
    assert result.makespan == 20.5
    assert result.report.recompute_time == 2
    alone = solve(three(3), "zero", prefetch=False)
    assert [started(alone)[name] for name in ("Fe1", "Fe2", "Fe3")] == [1, 4, 7]
    kept = solve(three(3), "zero", keep=True)
    assert kept.report.recompute_time == 0
    assert kept.peak_memory["device"] > result.peak_memory["device"]


def test_buckets_go_together():
    """Two stages of 4 bytes fill a bucket of 8: A2 reduces those of the last two, A1 what is left."""
    result = solve(three(2, bucket=8), "zero")
    starts = started(result)
    assert (starts["A2"], starts["A1"]) == (14, 18)
    assert "A3" not in starts


def test_sums_in_another_type():
    """fp32 sums of bf16 gradients: the backward makes half the bytes, which are reduced, or added up as it runs."""
    wide = stage(parameter_gradient_size=8, bucket_size=4, saved=0, output=0)
    for zero, expected in ((0, 4 + 8 + 12 + 4), (2, 4 + 4 + 4 + 6)):
        document = of_ranks(on_the_device(chain(wide, master_copy=True, input_size=0)), 2, zero)
        assert solve(document, "zero").peak_memory["device"] == expected


def test_a_link_that_packs_by_hand():
    """Compressed to a quarter, 4 bytes at 2 per time unit take 1 instead of 2; packing at 8 overlaps."""
    ways = [
        {"source": source, "target": target, "bandwidth": 2, "ratio": 0.25, "codec": 8}
        for source, target in (("device", "host"), ("host", "device"))
    ]
    document = chain(stage(), stage(), stage(), master_copy=True, parameter_memory="device")
    document |= {"schema": "remat.instance/3", "machine": machine() | {"links": ways}}
    result = solve(document, "zero-offload")
    assert [started(result)[name] for name in ("U3", "U2", "U1")] == [11, 15, 19]
    assert result.makespan == 22
    # Values are what they are, wherever they lie; the link's time alone is less.
    assert result.report.transferred == {"device->host": 12, "host->device": 12}


# --- drawn ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(10, 300))
def test_both_judges_agree(seed):
    """With any level of ZeRO and any homes, with or without an end of steps."""
    chance = random.Random(f"ranks {seed}")
    document = drawn(seed, longest=4)
    ranks, zero = chance.randint(1, 4), chance.randint(0, 3)
    document = of_ranks(document, ranks, zero if ranks > 1 else 0, bandwidth=chance.randint(1, 3))
    document["sharding"]["bucket"] = chance.choice((0, 0, 8))
    for given in document["stages"]:
        given |= chance.choice(({}, {"bucket_size": chance.randint(0, 9)}))
    if chance.random() < 0.4:
        document["machine"] = document["machine"] | {
            "memories": [*document["machine"]["memories"], {"name": "nvme"}],
            "links": [
                *document["machine"]["links"],
                {"source": "host", "target": "nvme", "bandwidth": 2, "ratio": 0.5},
                {"source": "nvme", "target": "host", "bandwidth": 1, "codec": 4},
            ],
        }
    far = "nvme" if len(document["machine"]["memories"]) > 2 else "host"
    algorithm, parameters, states, options = chance.choice(
        [
            ("zero", "device", "device", {"keep": chance.random() < 0.5, "early": chance.random() < 0.5}),
            ("zero", "device", "device", {"prefetch": False, "recompute": True}),
            ("zero-offload", "device", "host", {"prefetch": chance.random() < 0.5}),
            ("zero-infinity", chance.choice(("host", far)), far, {"activations": chance.choice(ACTIVATIONS)}),
            ("l2l", "host", "host", {"recompute": chance.choice((True, False))}),
            ("granular-offload", "any", "any", {}),
            ("weight-offload", "device", "host", {"evaluations": 20}),
            ("weight-offload", "any", "any", {"evaluations": 20}),
        ]
    )
    document |= {"parameter_memory": parameters, "optimizer_memory": states}
    late = 1 if document["master_copy"] and all(given["optimizer_size"] for given in document["stages"]) else 0
    if algorithm != "weight-offload" and chance.random() < 0.4:
        document["staleness"] = chance.randint(0, late)
    result = solve(document, algorithm, **options)
    if "staleness" in document:
        broken, peaks = cycles.steady(document, result.to_dict())
        assert not broken
        assert peaks == dict(result.report.steady.peaks)
    budget = result.peak_memory["device"] * 3 // 4
    less = remat.solve(document, algorithm=algorithm, options=options, budget=budget)
    if less.columns is not None:
        assert referee.check(document, less.to_dict()).ok


def all_places(document, budget):
    """Return the minimum makespan over all choices of stages with parameters at the host."""
    problem = make_problem(remat.load(document), budget=budget)
    setting = setting_of(problem, "granular-offload")
    assert setting.helper is not None
    here, there = Choice(home=0, state_home=0), Choice(True, setting.helper, home=1, state_home=1)
    best = None
    for away in itertools.product((False, True), repeat=len(setting.updated)):
        choices = [here] * len(setting.stages)
        for index, leaves in zip(setting.updated, away, strict=True):
            choices[index] = there if leaves else here
        training = Training(setting, choices, Manner(one_ahead=True))
        outcome = dispatch(training.graph, setting.machine, training.program)
        if isinstance(outcome, Dispatched) and (best is None or outcome.makespan < best):
            best = outcome.makespan
    return best


@pytest.mark.parametrize("chains", [range(16), pytest.param(range(16, 120), marks=pytest.mark.slow)], ids=len)
def test_granular_offloading_against_all_places(chains):
    """If any choice fits, one is found, with the fewest states at the host, which is close to the fastest."""
    ratios, missed = [], 0
    for seed in chains:
        document = drawn(seed, longest=4) | {"schema": "remat.instance/3", "master_copy": False}
        document |= dict.fromkeys(("parameter_memory", "optimizer_memory"), "any")
        peak = solve(document, "granular-offload").peak_memory["device"]
        for share in (10, 8, 6):
            best = all_places(document, peak * share // 10)
            found = remat.solve(document, algorithm="granular-offload", budget=peak * share // 10)
            if found.columns is None:
                missed += best is not None
                continue
            assert best <= found.makespan
            homes = found.to_dict()["initial"]
            assert all(homes.get(f"w{k}", where) == where for k in range(1, 5) if (where := homes.get(f"o{k}")))
            ratios.append(found.makespan / best)
    assert len(ratios) >= 2 * len(chains)
    assert missed == 0
    assert sum(ratios) / len(ratios) <= 1.03


# --- real models ------------------------------------------------------------------------------------------------------


def test_what_show_lists_adds_up_to_the_peak():
    """gpt2-xl on 8 ranks: the kinds that `remat show` lists are the referee's peak, to the byte; of few layers both."""
    for zero, more in [*((zero, {}) for zero in range(4)), *((zero, {"layers": 3}) for zero in range(4))]:
        given = {"preset": "gpt2-xl", "parameters": "device", "states": "device", "data": 8, "zero": zero} | more
        document = generate("chain", "transformer", **given)
        result = remat.solve(document, algorithm="zero")
        shown = to_dict(examine(document, result.to_dict()))["memories"]["device"]
        assert sum(shown["terms"].values()) == shown["peak"] == result.peak_memory["device"]
        assert not more or referee.check(document, result.to_dict()).peaks["device"] == shown["peak"]
        assert {"parameters", "optimizer states", "activations", "workspace"} <= shown["terms"].keys()
        lines = [text for label, text in facts_lines(remat.show(document)) if label == "at that peak"]
        assert len(lines) == 1


def test_layer_to_layer_takes_as_much_at_any_depth():
    """From 4 to 64 layers, activations at the host."""
    peaks = []
    for layers in (4, 8, 16, 32, 64):
        document = generate("chain", "transformer", batch=4, parameters="host", layers=layers)
        peaks.append(remat.solve(document, algorithm="l2l").peak_memory["device"])
    assert max(peaks) <= 1.01 * min(peaks)


@pytest.mark.parametrize("keep", [False, True])
def test_sixteen_gathers_or_the_bytes_of_keeping(keep):
    """Stage 3 with 16 micro-batches: each forward and each backward gathers its layer, or it stays for the step."""
    size, batches, layers = 6400, 16, 3
    sharding = {"data": 64, "zero": 3} | ({"keep": True} if keep else {})
    document = {
        "schema": "remat.instance/3",
        "kind": "pipeline",
        "micro_batches": batches,
        "layers": [
            {"repeat": layers, "forward_time": 2, "backward_time": 4, "parameter_size": size, "update_time": 64}
        ],
        "sharding": sharding,
        "cluster": {"devices": [{"name": "gpu", "count": 64}], "levels": [{"bandwidth": 10**6}]},
    }
    result = remat.solve(document, algorithm="1f1b")
    runs = [step.task for step in result.steps if hasattr(step, "task")]
    forwards = [task for task in runs if task.startswith("P2")]
    backwards = [task for task in runs if task.startswith("Q2")]
    assert (len(forwards), len(backwards)) == ((1, 0) if keep else (batches, batches))
    shown = to_dict(examine(document, result.to_dict()))["memories"]["gpu0"]["terms"]
    assert sum(shown.values()) == result.peak_memory["gpu0"]
    assert shown["gathered parameters"] == (layers * size if keep else shown["gathered parameters"])
    assert shown["gathered parameters"] <= (layers if keep else 2) * size


# --- what cannot be ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "path", "message"),
    [
        ({"sharding": {"data": 1, "zero": 2}}, "$.sharding.data", "over several ranks, but there is one"),
        ({"sharding": {"zero": 2}}, "$.sharding.data", "the key is missing"),
        ({"sharding": {"data": 2, "zero": 4}}, "$.sharding.zero", "a level of ZeRO, 0 to 3, not 4"),
        ({"sharding": {"data": 0}}, "$.sharding.data", "a count lies between 1"),
        ({"sharding": {"data": 2, "keep": True}}, "$.sharding.keep", "unknown key"),
        ({"staleness": -1}, "$.staleness", "a number of updates"),
        ({"staleness": 1, "master_copy": False}, "$.master_copy", "the newest parameters"),
        ({"parameter_memory": "disk"}, "$.parameter_memory", "unknown memory 'disk'"),
    ],
)
def test_contradictory_documents_are_refused(change, path, message):
    document = chain(stage(), master_copy=True, schema="remat.instance/3") | change
    with pytest.raises(remat.InstanceError, match=message) as caught:
        remat.load(document)
    assert path in str(caught.value)


def test_what_algorithms_refuse():
    shared = three(1)
    refused = [
        (shared, "keep-all", "collective"),
        (shared, "dag-auto", "collective"),
        (shared | {"optimizer_memory": "host"}, "zero", "optimizer_memory says 'host'"),
        (shared, "zero-infinity", "parameter_memory must be another memory"),
        (shared, "granular-offload", "must be 'any'"),
    ]
    for document, algorithm, message in refused:
        with pytest.raises(remat.OptionError, match=message):
            remat.solve(document, algorithm=algorithm)
    alone = machine(host_processor=False)
    for algorithm, homes in (("zero-infinity", "host"), ("granular-offload", "any")):
        document = chain(stage(), schema="remat.instance/3", machine=alone)
        document |= dict.fromkeys(("parameter_memory", "optimizer_memory"), homes)
        with pytest.raises(remat.OptionError, match="give a processor there"):
            remat.solve(document, algorithm=algorithm)


def test_prefixes_of_names_are_all_told_apart():
    """In a chain with every feature, name prefixes map to distinct kinds of values."""
    for zero, late in itertools.product(range(4), (False, True)):
        document = three(zero) | ({"staleness": 0} if late else {})
        graph = solve(document, "zero").graph
        kinds = {name.rstrip("0123456789"): graph.term(value) for value, name in enumerate(graph.values)}
        assert {letters for letters, kind in kinds.items() if kind == "activations"} == {"x", "s", "y"}


def test_gradients_of_one_bucket_wait_for_the_last_of_them():
    """With activations at the host, no backward waits for a gradient that is exchanged together with its own."""
    stages = [stage(bucket_size=4) for _ in range(4)]
    document = of_ranks(chain(*stages, parameters="host"), 4, 2, bucket=16)
    assert solve(document, "l2l", recompute=False).makespan is not None
