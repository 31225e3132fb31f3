"""Test recorded joint graphs without PyTorch: rules, emission and costs, against a symbolic machine."""

import json
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import remat
from remat.bridges.torch.costs import costs_document, devices, key_of, read_costs, static_bytes
from remat.bridges.torch.document import instance_document
from remat.bridges.torch.graph_emission import emit
from remat.bridges.torch.joint import BOUNDARY, Joint
from remat.bridges.torch.optimizers import Trained, read_optimizer
from remat.bridges.torch.recording import Recording, Role, TorchError, digests, first_difference
from remat.generate.devices import platform
from remat.instance import digest
from tests import places
from tests.bridges.torch.symbolic import Machine

FOLDER = places.ROOT / "tests" / "data" / "torch"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


def recorded(name):
    return Recording.from_document(json.loads((FOLDER / f"{name}.json").read_text()))


JOINTS = {name: Joint(recorded(name)) for name in NAMES}
INSTANCES = {name: remat.load(instance_document(joint, read_costs(None))) for name, joint in JOINTS.items()}


def in_order(joint):
    return [task.name for task in joint.tasks.values() if not task.from_mask]


def computed(joint, runs):
    """Results, writes and peak of the two graphs of a schedule on the symbolic machine."""
    emitted = emit(joint, runs)
    machine = Machine(joint.recording)
    machine.run(emitted)
    return machine


def test_recordings_are_read_as_they_were_written():
    assert NAMES == ["attention", "conv", "mlp", "named", "shared"]
    for name in NAMES:
        recording = recorded(name)
        again = Recording.from_document(json.loads(json.dumps(recording.to_document())))
        assert again == recording
        assert again.fingerprint == recording.fingerprint
    assert len({recorded(name).fingerprint for name in NAMES}) == len(NAMES)
    with pytest.raises(TorchError, match="expected a recorded joint graph"):
        Recording.from_document({"schema": "remat.instance/1"})


def test_instances_say_where_tasks_come_from_and_what_values_are():
    instance, joint = INSTANCES["conv"], JOINTS["conv"]
    tasks = {task.id: task for task in instance.tasks}
    first = next(node for node in joint.recording.nodes if node.operator == "aten.convolution.default")
    origin = tasks[first.name].origin
    assert (origin.module, origin.op, origin.source) == ("net.0.0", first.operator, first.source)
    value = next(value for value in instance.values if value.id == first.name)
    assert (tuple(value.shape), value.dtype) == ((16, 8, 8, 8), "float32")
    assert value.size == 4 * 16 * 8 * 8 * 8
    plain = instance_document(joint, read_costs(None))
    for entry in (*plain["tasks"], *plain["values"]):
        for key in ("origin", "shape", "dtype"):
            entry.pop(key, None)
    assert digest(remat.load(plain)) == digest(instance)


def test_fingerprints_know_arguments_and_no_names():
    document = recorded("conv").to_document()
    renamed = json.loads(json.dumps(document).replace('"addmm', '"other'))
    assert Recording.from_document(renamed).fingerprint == recorded("conv").fingerprint
    changed = json.loads(json.dumps(document).replace("1e-05", "2e-05"))
    other = Recording.from_document(changed)
    assert other.fingerprint != recorded("conv").fingerprint
    lines = digests(recorded("conv").lines)
    assert first_difference(other, lines).endswith("in the plan aten._native_batch_norm_legit_functional.default")
    assert "here, " in first_difference(recorded("conv"), lines[:-2])


def test_what_may_run_again():
    fixed = {name: {t.node for t in joint.tasks.values() if not t.again} - {""} for name, joint in JOINTS.items()}
    assert fixed["mlp"] == {"native_dropout", "native_dropout_1", "native_dropout_2", "native_dropout_3"} | returned(
        "mlp"
    )
    assert fixed["named"] == {"randn_like", "randn_like_1", "rand"} | returned("named")
    assert fixed["attention"] == returned("attention")
    writes = {task for task in JOINTS["conv"].tasks if task.startswith("copy_")}
    assert len(writes) == 9
    counters = {n.name for n in JOINTS["conv"].recording.nodes if n.operator == "aten.add.Tensor"}
    assert fixed["conv"] == writes | counters | returned("conv")
    second = "_native_batch_norm_legit_functional_1"
    assert second in fixed["shared"]
    assert "_native_batch_norm_legit_functional" not in fixed["shared"]


def returned(name):
    joint = JOINTS[name]
    made = {task.node for task in joint.tasks.values() if joint.returned.intersection(task.writes)}
    assert made
    return made


def test_dropout_has_its_mask_for_an_alternative():
    joint = JOINTS["mlp"]
    task = joint.tasks["native_dropout@mask"]
    assert task.from_mask
    assert set(joint.tasks["native_dropout"].writes) >= {"native_dropout.0", "native_dropout.1", *task.writes}
    assert "native_dropout.1" in task.reads
    entry = next(task for task in INSTANCES["mlp"].tasks if task.id == "native_dropout@mask")
    assert not entry.required


@pytest.mark.parametrize("name", NAMES)
def test_the_boundary_parts_forward_and_backward(name):
    joint = JOINTS[name]
    names = list(joint.tasks)
    turn = names.index(BOUNDARY)
    assert all(joint.tasks[task].phase == "forward" for task in names[:turn])
    assert all(joint.tasks[task].phase == "backward" for task in names[turn + 1 :])
    assert joint.tasks[BOUNDARY].once
    writers = {value: task for task in joint.tasks.values() for value in task.writes}
    for task in joint.tasks.values():
        effect = task.node and joint.nodes[task.node].effect
        assert not effect or any(writers[value] is task for value in joint.tasks[BOUNDARY].reads)


@pytest.mark.parametrize("name", NAMES)
def test_views_are_no_values(name):
    joint = JOINTS[name]
    views = [node.name for node in joint.recording.nodes if joint.is_view(node.name)]
    assert views
    assert not set(views) & set(joint.values)
    given = {t.storage for n in joint.recording.nodes if n.role is Role.INPUT for t in n.tensors if t}
    made = sum(size for storage, size in enumerate(joint.recording.storages) if storage not in given)
    assert sum(joint.values.values()) == made


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [1, 0.7, 0.45])
def test_emission_does_what_the_schedule_says(name, share):
    joint, instance = JOINTS[name], INSTANCES[name]
    kept = remat.solve(instance, algorithm="keep-all")
    budget = int(share * kept.peak_memory["memory"])
    plan = remat.solve(instance, algorithm="dag-auto", budget=budget, options={"iterations": 3})
    if plan.columns is None:
        assert share < 1
        return
    runs = [step.task for step in plan.steps if hasattr(step, "task")]
    emitted = emit(joint, runs)
    left = [*emitted.forward.runs, BOUNDARY, *emitted.backward.runs]
    for index, task in enumerate(runs):
        if left and left[0] == task:
            left.pop(0)
        else:
            assert task in runs[index + 1 :], "a run whose values nobody reads, since it is done again, and no other"
    assert not left
    machine, right = computed(joint, runs), computed(joint, in_order(joint))
    assert machine.results == right.results
    assert machine.peak == plan.peak_memory["memory"]
    for part in (emitted.forward, emitted.backward):
        read = {other for line in part.lines for _, other in line.reads} | set(part.outputs)
        acts = {line.name for line in part.lines if line.run and joint.nodes[line.node].effect}
        assert {line.name for line in part.lines} <= read | acts


@st.composite
def reruns(draw):
    """Draw a network, and an order of its tasks that reruns recomputable tasks after their inputs."""
    name = draw(st.sampled_from(NAMES))
    joint = JOINTS[name]
    runs, done = [], []
    for task in in_order(joint):
        again = [known for known in done if joint.tasks[known].again]
        masks = [f"{known}@mask" for known in done if f"{known}@mask" in joint.tasks]
        if again:
            runs += draw(st.lists(st.sampled_from([*again, *masks]), max_size=2))
        runs.append(task)
        done.append(task)
    return name, runs


@settings(max_examples=60, derandomize=True, database=None, deadline=None)
@given(reruns())
def test_whatever_may_run_again_changes_nothing(drawn):
    name, runs = drawn
    judged = remat.schedule_of(INSTANCES[name], runs)
    machine = computed(JOINTS[name], runs)
    assert machine.results == computed(JOINTS[name], in_order(JOINTS[name])).results
    assert machine.peak <= judged.peak_memory["memory"]


@pytest.mark.parametrize("name", NAMES)
def test_whatever_may_not_run_again_would_change_something(name):
    """The symbolic machine sees each draw that is drawn again; of what is returned a rerun would be harmless."""
    joint, right = JOINTS[name], computed(JOINTS[name], in_order(JOINTS[name])).results
    turn = in_order(joint).index(BOUNDARY) + 1
    for task in joint.tasks.values():
        if task.again or task.phase != "forward" or task.name in returned(name):
            continue
        runs = [*in_order(joint)[:turn], task.name, *in_order(joint)[turn:]]
        with pytest.raises(remat.RematError):
            remat.schedule_of(INSTANCES[name], runs)
        if joint.nodes[task.node].random:
            assert computed(joint, runs).results != right, task.name


def test_a_buffer_is_read_before_it_is_written():
    joint = JOINTS["conv"]
    names = in_order(joint)
    write = next(name for name in names if name.startswith("copy_"))
    for wrong in ([name for name in names if name != write], [*names, write]):
        with pytest.raises(remat.RematError):
            remat.schedule_of(INSTANCES["conv"], wrong)
    with pytest.raises(TorchError, match="exactly once"):
        emit(joint, names[:5])


def refused(name, change, match):
    document = recorded(name).to_document()
    change({node["name"]: node for node in document["nodes"]}, document)
    with pytest.raises(TorchError, match=match):
        Joint(Recording.from_document(document))


def test_unsupported_recordings_are_refused():
    def in_place(nodes, _):
        nodes["relu"] |= {"mutates": nodes["relu"]["inputs"], "effect": True}

    def reads_late(nodes, _):
        write = nodes["copy_"]
        nodes["threshold_backward"]["inputs"] = [*nodes["threshold_backward"]["inputs"], write["mutates"][0]]

    def returns_gradient(_, document):
        document["outputs"][0] = document["gradients"][0]

    refused("conv", in_place, "writes into an intermediate result")
    refused("conv", reads_late, "reads in the backward a buffer that the forward overwrites")
    refused("conv", returns_gradient, "the forward returns .* which the backward computes")


def test_a_device_of_ones_own(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"devices": {"MINE": {"flops": {"bf16": 2e12}, "bandwidth": 1e11}}}')
    costs = read_costs(f"roofline:{path}#MINE-bf16")
    assert (costs.rate, costs.bandwidth) == (2e12, 1e11)


def test_costs_follow_the_roofline_or_the_file():
    recording = recorded("attention")
    node = next(node for node in recording.nodes if node.operator == "aten.addmm.default")
    roofline = read_costs("roofline:T4-fp16")
    assert (roofline.rate, roofline.bandwidth) == (65e12, 320e9)
    assert roofline.time(node) == 1
    assert read_costs("roofline:T4").rate == 8.1e12
    assert read_costs(roofline) is roofline
    measured = read_costs(costs_document("cpu", {key_of(node): (17, 100)}))
    assert (measured.time(node), measured.workspace(node)) == (17, 100)
    for wrong in ("roofline:T5", "roofline:T4-fp12"):
        with pytest.raises(remat.OptionError):
            read_costs(wrong)
    with pytest.raises(remat.InstanceError, match="expected measured costs"):
        read_costs({"schema": "remat.instance/1"})
    for name, entry in devices().items():
        assert entry["source"]
        assert min(*entry["flops"].values(), entry["bandwidth"] * 10, entry["memory"] * 100) > 1e12
        assert platform(name) == ("xla" if name.startswith("TPU") else "cuda")
    wanted = "RTX-3090 RTX-4090 RTX-5090 L40S A10 A6000 B200 MI300X MI325X TPU-v5p"
    assert devices().keys() >= set(wanted.split())


def test_what_an_optimizer_keeps_and_what_its_step_takes():
    trained = [Trained(4 * prod(shape), shape) for shape in ((300,), (100, 80), (5000,), (2, 60, 90))]
    whole = sum(tensor.size for tensor in trained)
    for name, states, taken in (
        ("sgd", 0, 0),
        ("momentum-foreach", whole, 0),
        ("adam", 2 * whole, 2 * 43200 + 20000),
        ("adamw-loop", 2 * whole, 2 * 43200 + 20000),
        ("adamw-foreach", 2 * whole, whole),
        ("adamw-fused", 2 * whole, 0),
        ("adafactor", 4 * (300 + 180 + 5000 + 120 + 180), 43200 + 20000),
        ("adam8", 8 * 300 + 2 * (8000 + 5000 + 10800) + 8 * (32 + 20 + 43) + 2048, 20 * 10800),
    ):
        optimizer = read_optimizer(name)
        assert (optimizer.state_bytes(trained), optimizer.step_bytes(trained, "cpu")) == (states, taken), name
    assert read_optimizer("adam").step_bytes(trained, "cuda") == whole
    assert read_optimizer("adamw8").step_bytes(trained, "cuda") == 0
    narrow = [Trained(2 * 10800, (2, 60, 90))]
    assert read_optimizer("adamw8").step_bytes(narrow, "cpu") == 24 * 10800
    assert dict(read_optimizer("adam").others(trained, "cuda")) == {"adam-fused": 0, "adam-loop": 2 * 43200 + 20000}
    assert read_optimizer("sgd").step_bytes([], "cpu") == read_optimizer("adam8").state_bytes([]) == 0
    for wrong in ("adamw-", "adamw-fast", "adafactor-fused"):
        with pytest.raises(remat.OptionError, match=f"there is no '{wrong}'; known are ada"):
            read_optimizer(wrong)


def test_an_optimizer_in_a_file(tmp_path):
    path = tmp_path / "optimizer.json"
    path.write_text('{"schema": "remat.optimizer/1", "states": 1, "step_copies": 0.5, "step_tensors": 2}')
    optimizer, trained = read_optimizer(str(path)), [Trained(100, (25,)), Trained(40, (10,))]
    assert (optimizer.state_bytes(trained), optimizer.step_bytes(trained, "cpu")) == (140, 70 + 200)
    assert optimizer.called("cuda") == ""
    assert not list(optimizer.others(trained, "cuda"))


def test_what_lies_in_memory_throughout():
    split = static_bytes(recorded("attention"), "adamw")
    assert split == {"parameter": 3264, "buffer": 0, "input": 6144, "constant": 0, "optimizer": 6528}
    assert static_bytes(recorded("conv"))["buffer"] > 0
    with pytest.raises(remat.OptionError, match="adamw"):
        static_bytes(recorded("conv"), "lion")
