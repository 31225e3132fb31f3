"""`zero-offload` and `l2l`: timelines worked by hand, and the papers' formulas against verified figures."""

import pytest

import remat
from remat.errors import OptionError
from tests.algorithms.offload.trained import chain, drawn, gradient_of, machine, stage, tail
from tests.oracles import referee


def solve(document, algorithm, budget=None, **options):
    """Solve, and let the oracles' referee judge the schedule, too."""
    result = remat.solve(document, algorithm=algorithm, budget=budget, options=options)
    if result.columns is not None:
        verdict = referee.check(document, result.to_dict())
        assert verdict.ok, verdict.violations
        assert verdict.makespan == pytest.approx(result.makespan, rel=1e-12)
        assert verdict.peaks == result.peak_memory
        assert verdict.transferred == result.report.transferred
    return result


def timeline(result):
    """Return (what, start) of each step but drops: tasks by their names, copies with an arrow."""
    arrows = {"device": ">", "host": "<"}
    steps = [step for step in result.to_dict()["steps"] if "drop" not in step or "run" in step or "copy" in step]
    return [(step.get("run") or f"{step['copy']}{arrows[step['from']]}", step["start"]) for step in steps]


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_zero_offload_by_hand():
    """Three stages: F 2, B 4, 4 bytes of parameters and of gradients at 2 a time unit, updates 1 at half speed.

    The backwards end at 10, 14, 18; each gradient takes 2 out, each update 2, new parameters 2 back.
    """
    result = solve(chain(stage(), stage(), stage(), master_copy=True), "zero-offload")
    assert sorted(timeline(result), key=lambda item: (item[1], item[0])) == [
        *(("Fe1", 0), ("Fe2", 2), ("Fe3", 4), ("B3", 6), ("loss", 6)),
        *(("B2", 10), ("g3>", 10), ("U3", 12), ("B1", 14), ("g2>", 14), ("nw3<", 14)),
        *(("U2", 16), ("g1>", 18), ("nw2<", 18), ("U1", 20), ("nw1<", 22)),
    ]
    assert result.makespan == 24
    # At B3: x0..x3, s1..s3, y3, y2, all parameters and a gradient.
    assert result.peak_memory["device"] == 4 + 3 + 2 + 12 + 4
    # 36 bytes of optimizer states, plus at most one gradient and one stage's new parameters.
    assert result.peak_memory["host"] == 36 + 4 + 4


def test_l2l_by_hand():
    """The same stages with their parameters at the host: they come one stage ahead, and for B2 and B1 again."""
    result = solve(chain(stage(), stage(), stage(), parameters="host"), "l2l", activations="device")
    assert sorted(timeline(result), key=lambda item: (item[1], item[0])) == [
        *(("w1<", 0), ("Fe1", 2), ("w2<", 2), ("Fe2", 4), ("w3<", 4), ("Fe3", 6)),
        *(("B3", 8), ("loss", 8), ("w2<", 8), ("B2", 12), ("g3>", 12), ("w1<", 12), ("U3", 14)),
        *(("B1", 16), ("g2>", 16), ("U2", 18), ("g1>", 20), ("U1", 22)),
    ]
    assert result.makespan == 24
    # At B2: x0..x2, s1, s2, y2, y1; w2 and w1, g2 and (in transfer) g3.
    assert result.peak_memory["device"] == 3 + 2 + 2 + 8 + 8


def test_l2l_with_recomputation_by_hand():
    """Two stages: F1 F2 loss, then Fe2 B2 Fe1 B1; w2 stays from F2 on, w1 comes again while stage 2 is busy."""
    result = solve(chain(stage(), stage(), parameters="host"), "l2l", activations="device", recompute=True)
    assert sorted(timeline(result), key=lambda item: (item[1], item[0])) == [
        *(("w1<", 0), ("F1", 2), ("w2<", 2), ("F2", 4), ("Fe2", 6), ("loss", 6), ("w1<", 6)),
        *(("B2", 8), ("Fe1", 12), ("g2>", 12), ("B1", 14), ("U2", 14), ("g1>", 18), ("U1", 20)),
    ]
    assert result.makespan == 22
    assert result.report.recompute_time == 4


# --- zero-offload: formulas -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_zero_offload_moves_each_gradient_and_each_parameter_once(seed):
    document = drawn(seed)
    result = solve(document, "zero-offload")
    stages = document["stages"]
    # Without a master copy the update reads the old parameters, and they go to the host, too.
    read = sum(s["parameter_size"] for s in stages if not (document["master_copy"] and s["optimizer_size"]))
    assert result.report.transferred == {
        "device->host": sum(map(gradient_of, stages)) + read,
        "host->device": sum(s["parameter_size"] for s in stages),
    }


def test_the_least_traffic_of_mixed_precision():
    """M parameters of two bytes cause 2M + 2M bytes of traffic per iteration; all model states take 16M."""
    count = 1000
    layers = [stage(parameters=2 * count, optimizer=12 * count) for _ in range(8)]
    result = solve(chain(*layers, master_copy=True), "zero-offload")
    total = 8 * count
    assert result.report.transferred == {"device->host": 2 * total, "host->device": 2 * total}
    states = sum(2 * layer["parameter_size"] + layer["optimizer_size"] for layer in layers)
    assert states == 16 * total


@pytest.mark.parametrize("length", [1, 2, 5, 12])
def test_zero_offload_keeps_parameters_and_one_gradient(length):
    """If gradients leave before the next one exists, the device holds 2M bytes and one gradient."""
    layers = [stage(parameters=6, output=0, saved=0) for _ in range(length)]
    result = solve(chain(*layers, master_copy=True, input_size=0), "zero-offload")
    assert result.peak_memory["device"] == 6 * length + 6
    # That is also the minimum budget, with the same makespan.
    again = solve(chain(*layers, master_copy=True, input_size=0), "zero-offload", budget=6 * length + 6)
    assert again.makespan == result.makespan
    less = remat.solve(chain(*layers, master_copy=True, input_size=0), algorithm="zero-offload", budget=6 * length + 5)
    assert (less.status.value, less.scope) == ("unknown", "the zero-offload schedule")
    assert (less.least_budget.size, less.least_budget.sufficient) == (6 * length + 6, True)


@pytest.mark.parametrize("seed", range(60))
def test_the_makespan_of_zero_offload_is_that_of_a_flow_shop(seed):
    document = drawn(seed, longest=12) | {"master_copy": True}
    for given in document["stages"]:
        given["optimizer_size"] = 8
    now = sum(s["forward_time"] for s in document["stages"]) + document["loss"]["time"]
    ends = []
    for given in reversed(document["stages"]):
        now += given["backward_time"]
        ends.insert(0, now)
    expected = tail(document, ends, comes_back=True)
    assert solve(document, "zero-offload").makespan == pytest.approx(expected, rel=1e-12)


# --- l2l: formulas ----------------------------------------------------------------------------------------------------


def l2l_makespan(document):
    """Play the double buffer: the next stage's parameters may come when this stage begins."""
    stages, up = document["stages"], document["machine"]["links"][1]["bandwidth"]
    begins = channel = now = 0
    for given in stages:
        channel = max(channel, begins) + given["parameter_size"] / up
        begins = max(now, channel)
        now = begins + given["forward_time"]
    begins, now = now, now + document.get("loss", {"time": 0})["time"]
    ends = []
    for index in reversed(range(len(stages))):
        if index < len(stages) - 1:
            channel = max(channel, begins) + stages[index]["parameter_size"] / up
            begins = max(now, channel)
        else:
            begins = now
        now = begins + stages[index]["backward_time"]
        ends.insert(0, now)
    return tail(document, ends, comes_back=False)


@pytest.mark.parametrize("seed", range(60))
def test_the_makespan_and_the_traffic_of_l2l(seed):
    document = drawn(seed, longest=12, parameters="host")
    result = solve(document, "l2l", activations="device")
    assert result.makespan == pytest.approx(l2l_makespan(document), rel=1e-12)
    stages = document["stages"]
    twice = 2 * sum(s["parameter_size"] for s in stages) - stages[-1]["parameter_size"]
    assert result.report.transferred == {"device->host": sum(map(gradient_of, stages)), "host->device": twice}


@pytest.mark.parametrize(("forward", "backward", "link"), [(3, 5, 2), (2, 5, 3), (2, 2, 4), (6, 3, 3)])
@pytest.mark.parametrize("length", [2, 3, 7, 20])
def test_equal_stages_stream_at_the_rate_of_the_slower_of_link_and_stage(forward, backward, link, length):
    """Fluid condition: streaming costs nothing but its start and its end where link <= min(forward, backward)."""
    layers = [stage(forward, backward, 2 * link, output=0, saved=0, update=0, parameter_gradient_size=2)] * length
    result = solve(chain(*layers, parameters="host", input_size=0), "l2l", activations="device")
    steady = (length - 1) * (max(forward, link) + max(backward, link))
    assert result.makespan == link + steady + forward + backward + 1
    ideal = length * (forward + backward)
    if link <= min(forward, backward):
        assert result.makespan == ideal + link + 1


def test_the_memory_of_l2l_does_not_grow_with_depth():
    """Without activations: the parameters and gradients of two stages, 4 P bytes, at any depth."""
    for length in (3, 4, 10, 50):
        layers = [stage(parameters=6, output=0, saved=0) for _ in range(length)]
        result = solve(chain(*layers, parameters="host", input_size=0), "l2l", activations="device")
        assert result.peak_memory["device"] == 4 * 6
        # The update, in place, of one gradient while the next one arrives.
        assert result.peak_memory["host"] == length * (6 + 12) + 2 * 6


def test_what_l2l_stashes():
    """With recomputation the device holds each stage's input, one stage at work, and the parameters of two."""
    for length in (3, 10, 30):
        layers = [stage(parameters=6, output=5, saved=11) for _ in range(length)]
        document = chain(*layers, parameters="host", input_size=5)
        stash = 5 * (length - 1)  # at B of the stage before the last: x0..x_{L-2}
        result = solve(document, "l2l", activations="device", recompute=True)
        assert result.peak_memory["device"] == stash + (5 + 11 + 5 + 5) + 4 * 6
        # Without, everything at B of the last stage, of which there is no second gradient yet.
        kept = solve(document, "l2l", activations="device").peak_memory["device"]
        assert kept == 5 * (length + 1) + 11 * length + (5 + 5) + 3 * 6


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "change", "wrong"),
    [
        ("zero-offload", {"parameter_memory": "host"}, "keeps parameters in 'device'; parameter_memory says 'host'"),
        ("zero-offload", {"optimizer_memory": "device"}, "optimizer_memory must be another memory"),
        ("zero-offload", {"machine": machine(host_processor=False)}, "updates in 'host'; give a processor there"),
        ("l2l", {"parameter_memory": "device"}, "parameter_memory must be another memory"),
        ("l2l", {"parameter_memory": "host", "optimizer_memory": None}, "optimizer_memory must be another memory"),
        ("rotor", {}, "use weight-offload, zero, zero-offload or l2l"),
        ("rotor", {"machine": None, "parameter_memory": None, "optimizer_memory": None}, "use weight-offload"),
        (
            "store-all",
            {"machine": None, "parameter_memory": None, "optimizer_memory": None},
            "this algorithm does not support chains with parameters",
        ),
    ],
)
def test_bad_machines_and_homes(algorithm, change, wrong):
    document = {key: value for key, value in (chain(stage(), stage()) | change).items() if value is not None}
    with pytest.raises(OptionError, match=wrong):
        remat.solve(document, algorithm=algorithm)


@pytest.mark.parametrize(
    ("algorithm", "change"),
    [
        ("l2l", {"machine": machine() | {"links": []}, "parameter_memory": "host"}),
        ("weight-offload", {"machine": machine(host_processor=False) | {"links": []}}),
    ],
)
def test_states_that_no_link_reaches_are_a_proof(algorithm, change):
    found = remat.solve(chain(stage(), stage()) | change, algorithm=algorithm)
    assert (found.status, found.scope) == ("infeasible", "all schedules")
    assert "link" in found.notes[0]


@pytest.mark.parametrize("algorithm", ["zero-offload", "l2l", "weight-offload"])
def test_chains_without_parameters_are_refused(algorithm):
    bare = {"forward_time": 1, "backward_time": 1, "output_size": 1}
    with pytest.raises(OptionError, match="parameter_size"):
        remat.solve(chain(bare, bare), algorithm=algorithm)


def test_another_machine_without_the_memory():
    other = {"memories": [{"name": "device"}], "processors": [{"name": "gpu", "memory": "device"}]}
    with pytest.raises(OptionError, match="'host'"):
        remat.solve(chain(stage()), algorithm="zero-offload", machine=other)


def test_a_host_that_is_too_small():
    document = chain(stage(), stage(), master_copy=True)
    result = remat.solve(document, algorithm="zero-offload", budget={"host": 27})
    assert result.scope is not None
    assert result.machine.memories[result.least_budget.memory].name == "host"
    again = solve(document | {"machine": machine(host=result.least_budget.size)}, "zero-offload")
    assert again.peak_memory["host"] <= result.least_budget.size


# --- outside the algorithms -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["keep-all", "checkmate", "dag-auto", "dtr", "chen-sqrt", "dag-order-exact"])
def test_algorithms_for_task_graphs_take_parameters_in_one_memory(algorithm):
    document = chain(*[stage(output=2, saved=3) for _ in range(4)], static_memory=5)
    for key in ("machine", "parameter_memory", "optimizer_memory"):
        del document[key]
    result = solve(document, algorithm)
    # All parameters and states, x0..x4, s1..s4, y4, y3 and a gradient; minimum-memory schedules stay below it.
    assert result.peak_memory["memory"] <= 5 + 4 * 16 + (1 + 4 * 2) + 4 * 3 + 2 * 2 + 4
    assert result.makespan >= 4 * (2 + 4 + 1)
    names = [step["run"] for step in result.to_dict()["steps"] if "run" in step]
    assert sorted(name for name in names if name.startswith("U")) == ["U1", "U2", "U3", "U4"]


def test_actions_name_updates():
    from remat.report.text.actions import actions

    told = list(actions(solve(chain(stage(), stage(), parameters="host"), "l2l", activations="device")))
    assert [line for line in told if not line.startswith(("checkpoint", "discard", "restore"))] == [
        *("save 1", "save 2", "loss", "backward 2", "backward 1", "update 2", "update 1")
    ]
    assert "restore w1 from host" in told
    assert "checkpoint g1 to host" in told
    shared = {"schema": "remat.instance/3", "optimizer_memory": "device", "sharding": {"data": 2, "zero": 3}}
    told = list(actions(solve(chain(stage(), stage()) | shared, "zero")))
    assert [told.count(line) for line in ("gather 1", "gather 2", "exchange 1", "update 1")] == [2, 1, 1, 1]


def test_parameters_do_not_grow_with_the_batch():
    from remat.instance.batch_size import scaled

    grown = scaled(remat.load(chain(stage(), stage(optimizer=0), master_copy=True)), 3)
    assert [s.parameter_size for s in grown.stages] == [4, 4]
    assert [s.optimizer_size for s in grown.stages] == [12, 0]
    assert [(s.update_time, s.forward_time, s.output_size) for s in grown.stages] == [(1, 6, 3)] * 2
    assert (grown.master_copy, grown.parameter_memory, grown.optimizer_memory) == (True, "device", "host")
