"""Plans of pipelines run by several gloo processes: PyTorch's own gradients, the plan's order, the plan's memory."""

import collections

import pytest
import torch
from torch import nn

import remat
import remat.torch
from remat.bridges.torch.pipeline.layers import trace_layers
from remat.bridges.torch.pipeline.plans import read_plan
from tests.torch import pipeline_ranks as ranks

LIMIT = 30
"""Seconds within which a failure must end all ranks."""


def instance_for(devices, *, halves=False, dropout=0.2):
    tokens, targets = (one[: ranks.SAMPLES] for one in ranks.batch())
    measured = remat.torch.pipeline(
        ranks.model(dropout),
        (tokens,),
        blocks="blocks.*",
        loss=lambda logits: ranks.loss(logits, targets),
        halves=halves,
        devices=devices,
        micro_batches=ranks.BATCHES,
        repeats=1,
    )
    return with_even_times(measured)


def with_even_times(instance):
    """Return a measured pipeline with times that give the same plans on every machine."""
    times = {"forward_time": 2, "backward_time": 4}
    if instance.layers[0].is_split:
        times = {"forward_time": 2, "backward_time": 2, "weight_time": 2}
    return instance.model_copy(update={"layers": tuple(one.model_copy(update=times) for one in instance.layers)})


def recomputed(document, *, ahead=False):
    """Let each stage recompute its first layer for odd micro-batches and its last one for all, perhaps ahead."""
    document = {**document, "stages": [dict(stage) for stage in document["stages"]]}
    odd = list(range(1, ranks.BATCHES, 2))
    for stage in document["stages"]:
        first, last = stage["layers"]["from"], stage["layers"]["to"]
        stage["recompute"] = [{"layers": [first], "micro_batches": odd}, {"layers": [last]}]
    if ahead:
        orders = {}
        for device, listed in document["orders"].items():
            orders[device] = []
            for cell in listed:
                orders[device] += [f"R{cell[1:]}", cell] if cell.startswith("B0") else [cell]
        document["orders"] = orders
    return document


def activations(instance, document):
    """Return the verified peak of each device, without parameters, gradients and states."""
    report = remat.verify(instance, document)
    assert report.ok, report.violations
    layers = instance.each_layer()
    found = {}
    for device in document["orders"]:
        found[device] = report.peaks[device].size
        for stage in document["stages"]:
            if stage["device"] == device:
                held = layers[stage["layers"]["from"] - 1 : stage["layers"]["to"]]
                found[device] -= sum(one.parameter_size + one.parameter_gradient_size for one in held)
    return list(found.values())


def cells_of(document):
    """Return the operations of each device as PyTorch names them, with stages in the order of their layers."""
    ordered = sorted(range(len(document["stages"])), key=lambda stage: document["stages"][stage]["layers"]["from"])
    number = {stage: index for index, stage in enumerate(ordered)}
    halved = any(cell.startswith("W") for listed in document["orders"].values() for cell in listed)
    letters = {"F": "F", "R": "R", "W": "W", "BW": "B", "B": "I" if halved else "B"}
    found = []
    for listed in document["orders"].values():
        parts = [cell.partition(".") for cell in listed]
        split = [(head.rstrip("0123456789"), head.lstrip("FBWR"), batch) for head, _, batch in parts]
        found.append([f"{number[int(stage)]}{letters[kind]}{batch}" for kind, stage, batch in split])
    return found


def most_held(cells):
    """Return the largest number of micro-batches between their forward and the end of their backward, by stage."""
    now, most = collections.Counter(), collections.Counter()
    for cell in cells:
        kind, stage = next(letter for letter in cell if letter.isalpha()), int(cell.split(cell.strip("0123456789"))[0])
        now[stage] += {"F": 1, "B": -1, "W": -1}.get(kind, 0)
        most[stage] = max(most[stage], now[stage])
    return dict(most)


def executed(tmp_path, count, cases):
    torch.multiprocessing.spawn(ranks.run, args=(count, str(tmp_path), cases), nprocs=count)
    return [torch.load(tmp_path / f"{rank}.pt") for rank in range(count)]


PASSED = 4 * ranks.SAMPLES * ranks.LENGTH * ranks.WIDTH
"""Bytes of what a stage passes to the next one."""


def passing_bytes(document, device):
    """Bytes of an activation and of a gradient at each boundary of each stage of a device."""
    stages = [stage for stage in document["stages"] if stage["device"] == device]
    ends = sum((stage["layers"]["from"] > 1) + (stage["layers"]["to"] < ranks.BLOCKS) for stage in stages)
    return ends * 2 * PASSED


def check_step(found, case, expected):
    for rank, (seen, cells) in enumerate(zip(found, cells_of(case["plan"]), strict=True)):
        assert seen["same names"]
        assert seen["losses"]
        assert seen["differ"] == []
        assert seen["order"] == cells
        assert seen["held"] == most_held(cells)
        # Buffers of what arrives early, and gradients that are not known to have arrived, come on top.
        device = list(case["plan"]["orders"])[rank]
        assert seen["live"] <= expected[rank] + passing_bytes(case["plan"], device) + 64, (rank, seen["live"], expected)


def case_of(plan, dropout=0.2):
    return {"plan": plan, "dropout": dropout}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """All cases of two ranks, in one pair of processes."""
    whole, halves = instance_for(2), instance_for(2, halves=True)
    still = instance_for(2, dropout=0)
    plain = remat.solve(whole, algorithm="1f1b").to_dict()
    bubbles = remat.solve(halves, algorithm="zb-h1").to_dict()
    woven = remat.solve(still, algorithm="interleaved-1f1b").to_dict()
    other = remat.solve(whole, algorithm="gpipe").to_dict()
    four = remat.solve(instance_for(4), algorithm="1f1b").to_dict()
    cases = {
        "1f1b": (whole, case_of(plain)),
        "1f1b, recomputed": (whole, case_of(recomputed(plain))),
        "1f1b, recomputed ahead": (whole, case_of(recomputed(plain, ahead=True))),
        "zb-h1": (halves, case_of(bubbles)),
        "zb-h1, recomputed": (halves, case_of(recomputed(bubbles))),
        "interleaved-1f1b": (still, case_of(woven, 0)),
    }
    module, args, kwargs = ranks.normalised()
    parts = [one[:6] for one in args], {"mask": kwargs["mask"][:6]}
    four_layers = remat.torch.pipeline(module, *parts, blocks="blocks.*", devices=2, micro_batches=8, repeats=1)
    with_loss = recomputed(remat.solve(with_even_times(four_layers), algorithm="1f1b").to_dict())
    refused = {
        "module": {"module": with_loss},
        "tied": {"tied": plain},
        "ranks": {"plans": [four] * 2},
        "unequal": {"plans": [plain, other]},
        "no plan": {"plans": [plain, "missing.json"]},
        "blocks": {"plans": [plain] * 2, "blocks": {1: "layers.*"}},
        "odd batch": {"plans": [plain] * 2, "odd": True},
        "failure": {"plans": [plain] * 2, "fails": 1},
    }
    given = {name: case for name, (_, case) in cases.items()} | refused
    return cases, executed(tmp_path_factory.mktemp("two"), 2, given)


NAMES = ("1f1b", "1f1b, recomputed", "1f1b, recomputed ahead", "zb-h1", "zb-h1, recomputed", "interleaved-1f1b")


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_run_a_plan_with_the_gradients_of_1f1b(two, name):
    cases, found = two
    instance, case = cases[name]
    check_step([own[name] for own in found], case, activations(instance, case["plan"]))


def test_the_live_peak_is_the_planned_one(two):
    cases, found = two
    for name in NAMES[:3]:
        expected = activations(cases[name][0], cases[name][1]["plan"])
        for rank, bound in enumerate(expected):
            assert abs(found[rank][name]["live"] - bound) <= PASSED + 64, (name, rank, found[rank][name]["live"], bound)
    assert found[0][NAMES[1]]["live"] < 0.9 * found[0][NAMES[0]]["live"]


def test_a_module_that_returns_its_loss_trains_as_without_stages(two):
    found = [own["module"] for own in two[1]]
    for own in found:
        assert own["gradients"] == []
        assert own["buffers"] == []
        assert own["losses"] is own["last"]
    names = sorted(name for own in found for name in own["parameters"])
    assert names == sorted(name for name, _ in ranks.Normalised().named_parameters())
    assert sum(own["written"] for own in found) == 3 * 4


def test_ranks_that_share_a_parameter_add_its_gradients(two):
    found = [own["tied"] for own in two[1]]
    for own in found:
        assert own["held"]
        assert own["moved"]
        assert max(own["errors"].values()) < 1e-6
    assert torch.equal(found[0]["copy"], found[1]["copy"])


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("ranks", ["the plan uses 4 devices, and the process group has 2 ranks"] * 2),
        ("unequal", ["ranks 0 and 1 have different plans"] * 2),
        ("no plan", ["rank 1: *missing.json*", "*missing.json*"]),
        ("blocks", ["rank 1: no submodule is named 'layers.[*]'*", "no submodule is named 'layers.[*]'*"]),
        ("odd batch", ["rank 0 failed: an argument of a micro-batch is int64[[]1, 8], *int64[[]2, 8]"] * 2),
        ("failure", ["rank 1 failed: ValueError: no third micro-batch"] * 2),
    ],
)
def test_what_one_rank_refuses_ends_all_with_one_line(two, name, messages):
    from fnmatch import fnmatchcase

    for own, wanted in zip(two[1], messages, strict=True):
        assert fnmatchcase(own[name]["message"], wanted), own[name]
        assert "\n" not in own[name]["message"]
        assert own[name]["seconds"] < LIMIT


def test_a_process_group_is_needed():
    with pytest.raises(remat.torch.TorchError, match=r"^the process group is not initialised: [^\n]*$"):
        remat.torch.stages(ranks.model(), {}, (ranks.batch()[0],), blocks="blocks.*")


class Side(nn.Module):
    """Passes a mask from its arguments and a table from a buffer to its blocks."""

    def __init__(self, *, writes="", branches=False, blocks=3):
        super().__init__()
        self.words = nn.Embedding(9, 6)
        self.register_buffer("table", torch.linspace(0, 1, 6))
        self.blocks = nn.ModuleList(nn.Bilinear(6, 6, 6) for _ in range(3))
        self.head = nn.Linear(6, 9)
        self.writes, self.branches, self.called = writes, branches, blocks

    def forward(self, tokens, mask=None, *, scale=2):
        hidden, table = self.words(tokens), self.table.cos().expand(*tokens.shape, 6)
        if self.writes == "itself":
            self.table.add_(1)
        if self.writes == "in a list":
            torch._foreach_add_([self.table], 1)
        if self.writes == "as a keyword":
            torch.add(self.table, 1, out=self.table)
        if mask is None:
            raise ValueError
        if self.branches and hidden.sum().item() > 0:
            hidden = -hidden
        for block in self.blocks[: self.called]:
            hidden = block(hidden * mask, table.contiguous()) * scale
        return {"logits": self.head(hidden), "mask": mask}


def side_arguments():
    return (torch.randint(9, (2, 5)),), {"mask": torch.rand(2, 5, 1), "scale": 3}


def test_layers_compute_what_the_module_does():
    torch.manual_seed(0)
    module = Side()
    args, kwargs = side_arguments()
    layers = trace_layers(module, args, kwargs, "blocks.*")
    values = layers.flatten(args, kwargs)
    for layer in layers.modules:
        values = layer(*values)
    expected = module(*args, **kwargs)
    assert all(torch.equal(one, other) for one, other in zip(values, expected.values(), strict=True))
    # The table depends on a buffer only, so each layer computes it, and only mask and activation are passed on.
    assert [len(arriving) for arriving in layers.arriving] == [2, 2, 2]


@pytest.mark.parametrize(
    ("module", "blocks", "message"),
    [
        (Side(writes="itself"), "blocks.*", "writes its table outside its blocks"),
        (Side(writes="in a list"), "blocks.*", "writes its table outside its blocks"),
        (Side(writes="as a keyword"), "blocks.*", "writes its table outside its blocks"),
        (Side(branches=True), "blocks.*", "^torch[.]export cannot trace the module: [^\\n]+$"),
        (Side(blocks=2), "blocks.*", "does not call block blocks.2"),
        (Side(), ["blocks.*", "table_"], "no submodule is named 'table_'"),
        (Side(), ["blocks.1", "blocks.0", "blocks.2"], "calls block blocks.0 where blocks.1 is the next"),
    ],
)
def test_modules_that_are_no_sequence_of_layers_are_refused(module, blocks, message):
    args, kwargs = side_arguments()
    with pytest.raises(remat.torch.TorchError, match=message):
        trace_layers(module, args, kwargs, blocks)


def test_an_error_without_a_message_is_named():
    with pytest.raises(remat.torch.TorchError, match=r"^torch\.export cannot trace the module: ValueError$"):
        trace_layers(Side(), side_arguments()[0], {}, "blocks.*")


def test_devices_without_operations_are_no_ranks():
    base = {"forward_time": [2] * 4, "backward_time": 4, "saved_size": 8, "devices": 2, "micro_batches": 4}
    document = remat.solve(remat.pipeline(**base), algorithm="1f1b").to_dict()
    document["stages"][1]["recompute"] = [{"layers": [3]}]
    first, second = document["orders"].items()
    again = [part for cell in second[1] for part in ([f"R{cell[1:]}", cell] if cell[0] == "B" else [cell])]
    document["orders"] = dict([first, (second[0], again)])
    expected = read_plan(document, 4)
    document["orders"] = dict([("idle", []), first, ("idle, too", []), (second[0], again)])
    found = read_plan(document, 4)
    assert (found.rows, found.layout.home, found.ahead) == (expected.rows, (0, 1), expected.ahead)
    assert list(map(len, found.ahead)) == [0, 4]


def refused(document, message):
    with pytest.raises(remat.torch.TorchError, match=message) as caught:
        read_plan(document, 4)
    assert "\n" not in str(caught.value)


def test_plans_that_pytorch_does_not_run_are_refused(tmp_path):
    base = {"forward_time": [2] * 4, "backward_time": 4, "saved_size": 8, "devices": 2, "micro_batches": 4}
    hosted = remat.pipeline(**base, host={"bandwidth": 1})
    refused(remat.solve(hosted, algorithm="pipeoffload", budget="60%"), "the plan has steps, .*without a host")
    periodic = remat.pipeline(**base, weights="stash", parameter_size=1)
    refused(remat.solve(periodic, algorithm="1f1b-star"), "the plan has a pattern")
    double = remat.pipeline(**base, copies=2)
    refused(remat.solve(double, algorithm="chimera"), "the plan has 2 copies of the model")
    none = remat.solve(remat.pipeline(**base), algorithm="1f1b", budget=1)
    refused(none, "there is no plan: infeasible")
    none.save(tmp_path / "none.json")
    refused(tmp_path / "none.json", "there is no plan: infeasible")
    shorter = remat.pipeline(**(base | {"forward_time": [2] * 3}))
    refused(remat.solve(shorter, algorithm="1f1b"), "the plan has 3 layers, and the module 4 blocks")
    refused({"schema": "remat.schedule/2", "stages": [], "orders": {}}, "the plan is not for 4 layers")


def test_the_measured_pipeline_has_the_bytes_of_the_module():
    torch.manual_seed(0)
    module, args, kwargs = ranks.normalised()
    module(*args, **kwargs)["loss"].backward()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    gradients = [one.grad.clone() for one in module.parameters()]
    state = torch.get_rng_state()
    found = remat.torch.pipeline(
        module, args, kwargs, blocks="blocks.*", optimizer="adamw", devices=2, micro_batches=4, link="1GB/s", repeats=1
    )
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert all(torch.equal(one.grad, other) for one, other in zip(module.parameters(), gradients, strict=True))

    samples, width = 8 * 6, ranks.WIDTH
    trained = 4 * (width * width + 3 * width)
    for layer in found.each_layer()[:-1]:
        # Activation, mask, and the labels that only the last layer reads.
        assert layer.output_size == samples * (4 * width + 4 + 8)
        assert layer.parameter_size == trained + 4 * 2 * width + 8
        assert layer.parameter_gradient_size == trained
        assert layer.optimizer_size == 2 * trained
        assert layer.weight_time == 0
        # Saved: what normalisation and GELU read, and the statistics of the batch.
        assert layer.saved_size == samples * 4 * 2 * width + 2 * 4 * width
        assert layer.forward_time >= 1
        assert layer.backward_time >= 1
    assert [layer.name for layer in found.each_layer()] == [f"blocks.{number}" for number in range(4)]


@pytest.mark.slow
def test_four_ranks_run_four_kinds_of_orders(tmp_path):
    whole, halves = instance_for(4), instance_for(4, halves=True)
    still, still_halves = instance_for(4, dropout=0), instance_for(4, halves=True, dropout=0)
    cases = {
        "1f1b": (whole, case_of(remat.solve(whole, algorithm="1f1b").to_dict())),
        "zb-h1": (halves, case_of(remat.solve(halves, algorithm="zb-h1").to_dict())),
        "interleaved-1f1b": (still, case_of(remat.solve(still, algorithm="interleaved-1f1b").to_dict(), 0)),
        "pipe-search": (
            still_halves,
            case_of(
                remat.solve(still_halves, algorithm="pipe-search", budget="90%", options={"moves": 300}).to_dict(), 0
            ),
        ),
        "plan": (
            planned := remat.plan(still, budget="75%", options={"moves": 300}),
            case_of(planned.result.to_dict(), 0),
        ),
    }
    found = executed(tmp_path, 4, {name: case for name, (_, case) in cases.items()})
    for name, (instance, case) in cases.items():
        instance = getattr(instance, "instance", instance)
        check_step([own[name] for own in found], case, activations(instance, case["plan"]))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "at", "told"), [(4, "step", "rank "), (2, "start", "another rank has ended: ")])
def test_a_rank_that_dies_ends_the_others(tmp_path, count, at, told):
    plan = remat.solve(instance_for(count), algorithm="1f1b").to_dict()
    context = torch.multiprocessing.get_context("spawn")
    started = [
        context.Process(target=ranks.run_and_die, args=(rank, count, str(tmp_path), plan, at), daemon=True)
        for rank in range(count)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [3 if rank == 1 else 0 for rank in range(count)]
    for rank in {*range(count)} - {1}:
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["message"].startswith(told)
        assert "RuntimeError: [" in found["message"]  # gloo's message: the connection is closed, or a read failed
        assert found["seconds"] < LIMIT
