"""Small cases in which the fuzzer once found something: nothing may be found in them."""

import pytest

import remat
from remat.solving.problem_setup import make_problem
from remat_algorithms.parallel.pipeline import period_program
from remat_algorithms.parallel.pipeline.layer_blocks import blocks_of
from remat_algorithms.parallel.pipeline.period_search import unit_of
from tests.fuzz.cases import Case, Solve
from tests.fuzz.judging import answer
from tests.fuzz.trial import judge

LARGE = 2**53 + 1
"""A whole number that no float is."""


def pipeline(layers, devices=1, **more):
    """Return a pipeline on equal devices."""
    cluster = {"devices": [{"name": "gpu", "count": devices}], **more.pop("cluster", {})}
    head = {"schema": "remat.instance/3", "kind": "pipeline", "micro_batches": 2}
    return {**head, "layers": layers, "cluster": cluster, **more}


def stream(tasks, machine, values=(), **more):
    """Return a stream of one sample."""
    head = {"schema": "remat.instance/3", "kind": "dag", "stream": 1}
    return {**head, "tasks": tasks, "values": list(values), "machine": machine, **more}


def nothing_in(document, budget, *algorithms, **more):
    solves = tuple(Solve(name, budget, **more) for name in algorithms)
    answers, findings = judge(Case(1, document, solves))
    assert not findings
    return answers


def test_whole_times_beyond_floats_repeat_without_overlap():
    layer = {"forward_time": LARGE, "backward_time": LARGE, "weight_time": LARGE, "repeat": 2}
    document = pipeline([layer], weights="double", update_every=6)
    answers = nothing_in(document, None, "1f1b-star", "madpipe", "pipedream-2bw", "pipeline-ilp", "tarnawski-dp")
    assert all(given.result.makespan == 6 * LARGE for given in answers)


def test_steps_shorter_than_the_tolerance_of_their_period_are_listed_in_turn():
    times = [(5 * 10**9, 10**9, 0), (0, 9 * 10**8, 10**10), (0, 36 * 10**8, 0), (36 * 10**5, 2 * 10**8, 10**10)]
    times += [(8 * 10**9, 4 * 10**12, 4 * 10**8), (10**12, 10**9, 0)]
    layers = [
        {"forward_time": forward, "backward_time": backward} | ({"weight_time": weight} if weight else {})
        for forward, backward, weight in times
    ]
    names = "gpu0", "gpu1", "gpu2"
    machine = {
        "memories": [{"name": name} for name in names],
        "processors": [{"name": name, "memory": name, "type": "gpu"} for name in names],
        "links": [
            {"source": "gpu0", "target": "gpu1"},
            {"source": "gpu1", "target": "gpu0"},
            {"source": "gpu1", "target": "gpu2", "delay": 2**61 + 2**59},
            {"source": "gpu2", "target": "gpu1"},
        ],
    }
    document = pipeline(layers, 3, weights="double", update_every=9, micro_batches=3)
    result = remat.solve(document, machine=machine, algorithm="pipedream-2bw")
    assert result.makespan > 2**60


def test_parameters_that_exceed_a_budget_by_far_are_no_error():
    layer = {"forward_time": 10**15, "backward_time": 10**9, "saved_size": 10**6, "parameter_size": 10**15}
    result = remat.solve(pipeline([layer] * 3, 3, weights="double", update_every=9), algorithm="pipeline-ilp", budget=1)
    assert result.columns is None


def test_steps_of_a_program_are_few_beside_its_longest_transfer():
    """In steps of 1, the solver raises starts one by one up to 10^16, and counts no work meanwhile."""
    layer = {"forward_time": 1, "backward_time": 4, "saved_size": 2**52, "output_size": 2**52, "parameter_size": 2**50}
    document = pipeline([layer] * 3, 3, weights="double", update_every=9, cluster={"levels": [{"bandwidth": 1}]})
    loaded = remat.load(document)
    blocks = blocks_of(make_problem(loaded), loaded, 8)
    assert blocks.time_of_one > 2**52
    assert blocks.time_of_one / unit_of(blocks) < 2**41


def short_beside_long():
    """Return a pipeline with operations a million times shorter than others, which takes seconds in ns."""
    layer = {"forward_time": 5 * 10**12, "backward_time": 4 * 10**13, "saved_size": 978}
    short = {"forward_time": 4_688_441, "backward_time": 342, "saved_size": 10**11, "output_size": 65}
    return pipeline([layer, short, layer, short], 2, weights="stash", cluster={"levels": [{"bandwidth": 5}]})


def test_programs_have_few_steps_where_whole_times_are_long():
    """The solver explains conflicts step by step and counts no work: 28 s with 2^20 steps, 3 s with 2^16."""
    loaded = remat.load(short_beside_long())
    blocks = blocks_of(make_problem(loaded), loaded, 8)
    assert 2**16 <= blocks.least_period / unit_of(blocks) < 2**17


def test_the_work_of_a_program_limits_those_of_its_first_pattern(monkeypatch):
    works, program = [], period_program._Program

    def noted(asked, period):
        works.append(asked.work)
        return program(asked, period)

    monkeypatch.setattr(period_program, "_Program", noted)
    remat.solve(short_beside_long(), algorithm="pipeline-ilp", budget=2 * 10**11, options={"work": 0.02})
    assert set(works) == {0.02}


@pytest.mark.parametrize("time", [LARGE, 3 * LARGE, 22517998136852483, 27021597764222979])
def test_bounds_of_streams_are_no_floats_above_whole_times(time):
    machine = {"memories": [{"name": "m"}], "processors": [{"name": "p", "memory": "m"}]}
    document = stream([{"id": "t", "time": time, "writes": []}], machine)
    names = "placement-bound", "placement-replicated", "tarnawski-dp", "tarnawski-ip"
    for given in nothing_in(document, None, *names):
        assert given.result.makespan == time


def test_bounds_of_streams_are_not_negative():
    machine = {
        "memories": [{"name": "host"}, {"name": "a"}, {"name": "b"}],
        "processors": [{"name": "p", "memory": "a"}, {"name": "q", "memory": "b", "type": "slow"}],
        "links": [
            {"source": "host", "target": "a"},
            {"source": "host", "target": "b"},
            {"source": "a", "target": "host", "bandwidth": 0.5},
            {"source": "b", "target": "host"},
        ],
    }
    tasks = [
        {"id": "t", "time": {"slow": 1}, "writes": ["v"]},
        {"id": "u", "time": {"slow": 0}, "reads": ["v"], "writes": []},
    ]
    document = stream(tasks, machine, [{"id": "v", "size": 2**51 + 6}])
    nothing_in(document, {"a": 1}, "placement-bound", "tarnawski-dp", "tarnawski-ip")


@pytest.mark.parametrize("budget", [3, 4, None])
@pytest.mark.parametrize("name", ["1f1b", "eager-1f1b", "gpipe"])
def test_transfers_begin_before_operations_of_the_same_instant(name, budget):
    layers = [
        {"forward_time": 0, "backward_time": 0, "output_size": 1},
        {"forward_time": 0, "backward_time": 1},
    ]
    nothing_in(pipeline(layers, 2, cluster={"levels": [{"latency": 1}]}), budget, name)


@pytest.mark.parametrize("name", ["gems", "zb-v", "chimera", "1f1b"])
def test_operations_of_no_length_where_transfers_have_latency(name):
    layer = {"forward_time": 3.0, "backward_time": 0.0, "output_size": 1, "repeat": 8}
    levels = [{"devices": 2, "bandwidth": 1, "latency": 2.5, "delay": 2.5}, {}]
    nothing_in(pipeline([layer], 4, cluster={"levels": levels}, copies=2), 5, name)


def test_plans_in_which_nothing_can_leave():
    document = {
        "schema": "remat.instance/2",
        "kind": "dag",
        "tasks": [{"id": "t", "time": 1, "writes": ["v"]}, {"id": "u", "time": 1, "writes": []}],
        "values": [{"id": "i", "size": 5}, {"id": "j", "size": 5}, {"id": "v", "size": 4}],
        "inputs": ["i", "j"],
        "machine": {
            "memories": [{"name": "device"}, {"name": "host"}],
            "processors": [{"name": "gpu", "memory": "device", "count": 2}],
            "links": [{"source": "device", "target": "host"}, {"source": "host", "target": "device"}],
        },
    }
    for seed in range(4):
        nothing_in(document, {"device": 13}, "dag-offload-best", options={"iterations": 5}, seed=seed)


def test_equal_storage_levels_are_told_apart_by_what_they_hold():
    levels = [{"name": "a", "slots": 2}, {"name": "b", "slots": 2}]
    head = {"schema": "remat.instance/2", "kind": "adjoint", "steps": [{}], "initial_state": "a"}
    nothing_in({**head, "storage": levels}, 0, "keep-all")


@pytest.mark.parametrize("name", ["1f1b", "eager-1f1b", "gpipe", "pipe-search", "auto"])
@pytest.mark.parametrize("budget", [None, 4])
def test_the_minimum_budget_of_a_pipeline_is_that_of_every_device(name, budget):
    layer = {"forward_time": 1, "backward_time": 2, "forward_workspace": 7, "repeat": 6}
    document = pipeline([layer], 3, cluster={"devices": [{"name": "gpu", "count": 3, "memory": 5}]})
    nothing_in(document, budget, name)


def test_whole_times_whose_sums_leave_int64():
    layers = [
        {"forward_time": 2**61 - 61, "backward_time": 3, "saved_size": 5, "output_size": 6},
        {"forward_time": 2**61 + 4, "backward_time": 2**61 + 4, "saved_size": 6, "output_size": 3},
    ]
    cluster = {"devices": [{"name": "gpu", "count": 3}], "levels": [{"latency": 2**60 + 7}]}
    nothing_in(pipeline(layers, cluster=cluster, micro_batches=1), 29, "tarnawski-dp", "1f1b", "pipe-search")


@pytest.mark.parametrize("algorithm", ["rotor", "rotor-float", "revolve-chain", "chain-exact", "periodic"])
def test_chains_whose_times_add_up_beyond_int64(algorithm):
    stages = [
        {"forward_time": 2**time - 1, "backward_time": 2**60 + time, "output_size": 1, "saved_size": 2}
        for time in (59, 60, 60, 61)
    ]
    document = {"schema": "remat.instance/2", "kind": "chain", "stages": stages, "input_size": 1}
    for budget in (None, 5, 6, 8):
        nothing_in(document, budget, algorithm)


def test_runs_of_no_length_at_the_seam_of_two_steps_of_training():
    stages = [
        {"forward_time": 0, "backward_time": 1, "output_size": 0, "parameter_size": 1},
        {"forward_time": 1, "backward_time": 1, "output_size": 0, "parameter_size": 1},
    ]
    head = {"schema": "remat.instance/3", "kind": "chain", "input_size": 0, "staleness": 0}
    nothing_in({**head, "stages": stages, "sharding": {"data": 2, "zero": 2}}, None, "zero")


def test_no_answer_names_a_class_that_is_not_its_own():
    machine = {
        "memories": [{"name": "gpu"}, {"name": "cpu memory"}],
        "processors": [{"name": "gpu", "memory": "gpu"}, {"name": "cpu", "memory": "cpu memory"}],
        "links": [{"source": "cpu memory", "target": "gpu"}, {"source": "gpu", "target": "cpu memory"}],
    }
    head = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 2, "state_size": 2}
    nothing_in({**head, "machine": machine}, 2, "walther-griewank")


def test_a_host_that_takes_far_longer_than_everything_else():
    layer = {"forward_time": 1.0, "backward_time": 1.0, "saved_size": 2**58, "output_size": 1}
    cluster = {"devices": [{"name": "gpu", "count": 2}], "host": {"bandwidth": 1}}
    for budget in (None, 3 * 2**58):
        case = Case(1, pipeline([layer, layer], 2, cluster=cluster))
        given = answer(case, Solve("optpipe", budget, {"work": 0.02}))
        assert given.found
        assert not given.findings


def test_a_micro_batch_that_takes_no_time_is_in_flight():
    layer = {"forward_time": 0.0, "backward_time": 0}
    nothing_in(pipeline([layer], weights="double", update_every=1), 0, "pipedream-2bw")


def test_layers_that_run_again_for_a_range_of_micro_batches():
    layers = [
        {"forward_time": 0, "backward_time": 0, "output_size": 1},
        {"forward_time": 0, "backward_time": 0, "saved_size": 4, "parameter_size": 2, "backward_workspace": 4},
    ]
    document = pipeline(layers, 2, micro_batches=3)
    for budget in (14, 16, 18, 20, 23):
        nothing_in(document, budget, "pipe-plan", options={"moves": 100})


def test_half_of_a_surrogate_pair_is_refused_in_one_line():
    layer = {"forward_time": 0, "tensor": {"\ud800": {"forward_time": 0}}}
    with pytest.raises(remat.InstanceError, match="surrogate"):
        remat.load(pipeline([layer]))


def test_chains_with_parameters_that_do_not_fit():
    stage = {"forward_time": 1, "backward_time": 1, "output_size": 4, "parameter_size": 3}
    machine = {"memories": [{"name": "dev"}], "processors": [{"name": "gpu", "memory": "dev"}]}
    head = {"schema": "remat.instance/3", "kind": "chain", "input_size": 2}
    answers = nothing_in({**head, "stages": [stage, stage], "machine": machine}, 5, "auto", time_limit=2.0)
    assert answers[0].result.least_budget.sufficient


def test_periods_that_leave_64_bits():
    layer = {"forward_time": 1, "backward_time": 2**60 + 6, "saved_size": 9, "weight_time": 2**60 + 7, "repeat": 4}
    document = pipeline([layer], 2, weights="double", update_every=2, micro_batches=1)
    nothing_in(document, 120, "madpipe", "pipeline-ilp", options={"work": 0.02})


def test_parameters_of_terabytes_fit_to_the_byte():
    document = pipeline([{"forward_time": 0, "parameter_size": 2**40}] * 2, weights="fixed", micro_batches=1)
    for budget in (2**40, 2**41 - 1):
        for given in nothing_in(document, budget, "tarnawski-dp", "auto", time_limit=2.0):
            assert given.result.least_budget.size == 2**41


def test_data_that_is_on_its_way_keeps_no_link_busy():
    machine = {
        "memories": [{"name": "gpu"}, {"name": "host"}],
        "processors": [{"name": "gpu", "memory": "gpu"}],
        "links": [{"source": "host", "target": "gpu", "delay": 100}, {"source": "gpu", "target": "host"}],
    }
    tasks = [{"id": name, "time": 1, "reads": [f"in{name}"], "writes": [f"out{name}"]} for name in "ab"]
    values = [{"id": f"{end}{name}", "size": 1} for end in ("in", "out") for name in "ab"]
    inputs = [{"value": f"in{name}", "memory": "host"} for name in "ab"]
    document = {"schema": "remat.instance/3", "kind": "dag", "tasks": tasks, "values": values, "inputs": inputs}
    nothing_in({**document, "machine": machine}, None, "auto", "tarnawski-latency", "dag-offload-best", time_limit=1.0)


def test_the_fullest_device_may_be_one_without_a_limit():
    layers = [{"forward_time": 1, "backward_time": 1, "saved_size": size} for size in (4, 90)]
    machine = {
        "memories": [{"name": "gpu0", "capacity": 3}, {"name": "gpu1"}],
        "processors": [{"name": f"gpu{k}", "memory": f"gpu{k}", "type": "gpu"} for k in range(2)],
        "links": [{"source": f"gpu{k}", "target": f"gpu{1 - k}"} for k in range(2)],
    }
    for given in nothing_in(pipeline(layers, 2), None, "gpipe", machine=machine):
        assert given.result.least_budget.size == 180


def test_one_rank_exchanges_nothing():
    layers = [{"forward_time": 1, "backward_time": 0, "parameter_size": 1, "update_time": 2}]
    nothing_in(pipeline(layers, sharding={"data": 1}), 2, "pipe-exact", "1f1b")


def test_recomputed_values_wait_for_readers_on_other_devices_of_their_memory():
    layers = [{"forward_time": 2, "backward_time": 1, "saved_size": 1, "weight_time": 1, "weight_saved_size": 4}]
    machine = {
        "memories": [{"name": "gpu0"}],
        "processors": [{"name": f"gpu{k}", "memory": "gpu0", "type": "gpu"} for k in range(2)],
    }
    nothing_in(pipeline([layers[0] | {"repeat": 4}], 2), 8, "pipe-plan", seed=3, time_limit=2.0, machine=machine)


def test_an_adjoint_without_recomputation_counts_for_the_minimum_of_the_working_memory():
    document = {
        "schema": "remat.instance/2",
        "kind": "adjoint",
        "steps": [{"state_size": 1}, {}, {"state_size": 2}],
        "state_size": 0,
        "machine": {
            "memories": [{"name": "dev"}, {"name": "host", "capacity": 2}],
            "processors": [{"name": "gpu", "memory": "dev"}],
            "links": [{"source": "host", "target": "dev"}, {"source": "dev", "target": "host"}],
        },
    }
    for budget in (0, 1):
        for given in nothing_in(document, budget, "walther-griewank"):
            assert given.result.least_budget.size == 2


def test_bounds_of_moments_are_below_whole_times_that_no_float_holds():
    times = [45035996273704957, 18014398509481986, 54043195528445962]
    steps = [{"forward_time": time} for time in times]
    steps[2]["backward_time"] = 27021597764222979
    steps += [{"backward_time": 9007199254740998}, {"backward_time": 45035996273704966, "state_size": 1}]
    levels = [{"name": "ram", "slots": 3, "write_time": 27021597764222982}, {"name": "disk", "slots": 0}]
    document = {"schema": "remat.instance/2", "kind": "adjoint", "steps": steps, "storage": levels}
    options = {"iterations": 5, "moves": 5000, "window": 1000, "work": 0.001}
    (given,) = nothing_in(document, 0, "adjoint-best", options=options, seed=1)
    assert given.result.makespan == 270215977642229801


def test_prices_of_bytes_are_exact_beside_a_large_adjoint():
    """A state beside an adjoint of 2^53 bytes vanishes in a float."""
    document = {"schema": "remat.instance/2", "kind": "adjoint", "steps": 3, "adjoint_size": 2**53}
    document["storage"] = [{"name": "level1", "bandwidth": 5}]
    (given,) = nothing_in(document, 1, "adjoint-best", seed=2)
    assert given.result.makespan == 5.4


def test_an_input_that_stays_begins_where_it_must_end():
    document = {
        "schema": "remat.instance/3",
        "kind": "dag",
        "tasks": [{"id": "other", "time": 0, "writes": []}],
        "values": [{"id": "i0", "size": 0}],
        "inputs": [{"value": "i0", "memory": "any"}],
        "outputs": [{"value": "i0", "memory": "m1"}],
        "machine": {"memories": [{"name": "m0"}, {"name": "m1"}], "processors": [{"name": "p0", "memory": "m0"}]},
    }
    for given in nothing_in(document, None, "tarnawski-latency", "auto", time_limit=1.0):
        assert given.found
    document["tasks"][0]["reads"] = ["i0"]
    (given,) = nothing_in(document, None, "tarnawski-latency", time_limit=1.0)
    assert not given.found
    document["inputs"][0]["copies"] = 2
    assert nothing_in(document, None, "tarnawski-latency", time_limit=1.0)[0].found


def test_starts_beyond_int64_of_offloaded_pipelines_are_floats():
    layers = [
        {"forward_time": 1, "backward_time": 0, "output_size": 4, "backward_workspace": 4},
        {"forward_time": 2**60 - 3, "backward_time": 2**61, "saved_size": 6, "output_size": 2, "backward_workspace": 4},
    ]
    cluster = {
        "devices": [{"name": "gpu", "memory": 27}],
        "levels": [{"bandwidth": 2, "latency": 2**60, "devices": 2}, {"latency": 2**59}],
        "host": {"bandwidth": 5},
    }
    nothing_in(pipeline(layers, cluster=cluster), None, "pipe-plan", options={"moves": 100}, seed=1)


def test_values_that_float_times_free_late_stay_in_turn():
    times = [
        (27021597764222979, 422212440, 0, {"saved_size": 5, "gradient_size": 3}),
        (45035996273704965, 54043195528445958, 4, {"saved_size": 6}),
        (54043195528445958, 27021597764222979, 0, {"forward_workspace": 6}),
        (9, 9007199254740993, 1, {}),
    ]
    stages = [
        {"forward_time": forward, "backward_time": backward, "output_size": size} | more
        for forward, backward, size, more in times
    ]
    machine = {
        "memories": [{"name": "b"}, {"name": "a"}],
        "processors": [{"name": "gpu", "memory": "b"}, {"name": "slow", "memory": "b", "speed": 1}],
        "links": [
            {"source": "a", "target": "b", "bandwidth": 3, "channel": "gpu"},
            {"source": "b", "target": "a", "channel": "gpu"},
        ],
    }
    document = {"schema": "remat.instance/2", "kind": "chain", "input_size": 0, "stages": stages, "machine": machine}
    document["input_gradient"] = False
    nothing_in(document, {"b": 19}, "autoswap", "offload-dp", "pofo", time_limit=3.0, seed=1)


def with_less_and_more(document, less, more):
    """Solve with little and with more memory; return both makespans."""
    nothing_in(document, less, "auto", time_limit=5.0)
    return [remat.solve(document, budget=budget, time_limit=5.0).makespan for budget in (less, more)]


def test_more_memory_is_never_worse_for_a_tree():
    document = {"schema": "remat.instance/2", "kind": "tree", "parent": [4, 2, -1, 0, 2, 2, 1], "orientation": "out"}
    document["output_size"] = [0, 4, 1, 0, 5, 1, 3]
    processors = [{"name": "gpu", "memory": "gpu"}, {"name": "slow", "memory": "gpu", "speed": 0.25}]
    document["machine"] = {"memories": [{"name": "gpu"}], "processors": processors}
    assert with_less_and_more(document, 11, 12) == [6, 6]


def test_more_memory_is_never_worse_for_a_stream():
    names = ["m0", "m1", "m2"]
    links = [("m2", "m0", 0.5, {}), ("m1", "m2", 1, {}), ("m0", "m1", 0.5, {}), ("m1", "m0", 5, {})]
    links += [("m0", "m2", 1000, {"delay": 4}), ("m2", "m1", 1000, {"latency": 3, "delay": 2})]
    machine = {
        "memories": [{"name": "m0", "static": 4}, {"name": "m1"}, {"name": "m2"}],
        "processors": [{"name": f"p{k}", "memory": name} for k, name in enumerate(names)],
        "links": [{"source": one, "target": two, "bandwidth": speed} | more for one, two, speed, more in links],
    }
    machine["processors"][1]["type"] = "fast"
    times = {"fast": 2, "slow": 2}
    tasks = [{"id": "t0", "time": 6, "writes": ["v0"]}, {"id": "t3", "time": times, "reads": ["v0"], "writes": []}]
    less, more = with_less_and_more(stream(tasks, machine, [{"id": "v0", "size": 3}]), {"m0": 5}, {"m0": 9})
    assert more <= less


def test_more_memory_is_never_worse_with_three_processors():
    tasks = [
        {"id": "t0", "time": 1, "writes": ["v0"], "workspace": 6},
        {"id": "t2", "time": 4, "writes": ["v2"]},
        {"id": "t3", "time": 90, "reads": ["v0"], "writes": ["v3"], "recomputable": False},
        {"id": "t4", "time": 1, "reads": ["v0"], "writes": ["v4"], "workspace": 4},
        {"id": "t7", "time": 1, "writes": ["v7"], "recomputable": False, "once": True},
        {"id": "t8", "time": 1, "reads": ["v7"], "writes": []},
        {"id": "t10", "time": 5, "writes": ["v10"], "in_place": True},
    ]
    sizes = {"v0": 30, "v2": 27, "v3": 15, "v4": 48, "v7": 38, "v10": 20}
    document = {"schema": "remat.instance/2", "kind": "dag", "tasks": tasks, "outputs": []}
    document["values"] = [{"id": name, "size": size} for name, size in sizes.items()]
    processor = {"name": "gpu", "memory": "device", "count": 3}
    document["machine"] = {"memories": [{"name": "device"}], "processors": [processor]}
    less, more = with_less_and_more(document, 82, 84)
    assert more <= less


@pytest.mark.parametrize("budget", [0, 1, 2])
def test_an_input_may_arrive_where_nothing_runs(budget):
    links = [{"source": "host", "target": "m"}, {"source": "m", "target": "host"}]
    machine = {"memories": [{"name": "m"}, {"name": "host"}], "processors": [{"name": "p", "memory": "m"}]}
    document = {"schema": "remat.instance/3", "kind": "dag", "values": [{"id": "i0", "size": 2}], "outputs": ["i0"]}
    document |= {"tasks": [{"id": "t0", "time": 0, "writes": [], "required": False}], "machine": machine}
    document |= {"inputs": [{"value": "i0", "memory": "host"}], "machine": machine | {"links": links}}
    names = ("autoswap", "capuchin", "offload-greedy", "superneurons", "swapadvisor", "tflms", "auto")
    for given in nothing_in(document, budget, *names, time_limit=3.0):
        assert given.solve.budget != budget or given.found == (budget == 2)
