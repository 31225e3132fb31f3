from __future__ import annotations

import json
from typing import Any

import pytest

import remat
from remat.generate import generate, generate_rows
from remat.generate.document import Rows
from remat.generate.networks.operations import Device
from remat.generate.networks.transformer import PRESETS, activation_bytes, architecture
from remat.generate.networks.transformer_step import transformer_step
from tests.generate.test_dag import check_structure

TINY = {"layers": 2, "hidden": 16, "heads": 4, "sequence": 8, "vocabulary": 32, "batch": 1}
LLAMA = {"preset": "llama-70b", **TINY, "key_heads": 2, "feedforward": 48}
STYLES = [TINY, {**TINY, "flash": False}, {**TINY, "dropout": False}, LLAMA, {**LLAMA, "flash": False}]
MODES = [
    {},
    {"parameters": "static"},
    {"gradients": "accumulate"},
    {"parameters": "static", "gradients": "accumulate"},
    {"parameters": "host"},
    {"parameters": "host", "optimizer": "sgd", "dtype": "fp32"},
]


def written(made: dict[str, Any]) -> dict[str, Any]:
    """Spell the short form of values out, and let a task write the inputs."""
    values = [*made["values"], *({"id": t["id"], "size": t["size"]} for t in made["tasks"] if "size" in t)]
    tasks = [{"writes": [task["id"]], **task} for task in made["tasks"]]
    inputs = [value if isinstance(value, str) else value["value"] for value in made["inputs"]]
    first = {"id": "start", "time": 0, "reads": [], "writes": inputs}
    return {**made, "values": values, "tasks": [first, *tasks]}


def made_of(made: dict[str, Any]) -> dict[str, Any]:
    """Make all rows of a document."""
    return {key: list(value) if isinstance(value, Rows) else value for key, value in made.items()}


def made_with(**parameters: Any) -> dict[str, Any]:
    return generate("dag", "transformer", **parameters)


def phase_time(made: dict[str, Any], phase: str) -> float:
    return sum(task["time"] for task in made["tasks"] if task.get("phase") == phase)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("micro_batches", [1, 3])
def test_graphs_are_well_formed_training_steps(style: dict[str, Any], mode: dict[str, Any], micro_batches: int) -> None:
    made = made_with(**style, **mode, micro_batches=micro_batches)
    whole = written(made)
    inputs = whole["tasks"][0]["writes"]
    # Tasks that write nothing have no short form.
    check_structure({**whole, "tasks": [task for task in whole["tasks"] if task["writes"]]})
    assert len(inputs) == len(set(inputs))
    outputs = [value if isinstance(value, str) else value["value"] for value in made["outputs"]]
    assert set(outputs) <= {value["id"] for value in whole["values"]}
    remat.load(json.loads(json.dumps(made)))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("mode", MODES[:4])
def test_keeping_everything_verifies(style: dict[str, Any], mode: dict[str, Any]) -> None:
    made = made_with(**style, **mode, micro_batches=2)
    result = remat.solve(remat.load(made), algorithm="keep-all")
    assert result.makespan == pytest.approx(sum(task["time"] for task in made["tasks"]))


def test_the_large_step_has_72_kernels_a_layer() -> None:
    made = made_with(preset="llama-70b")
    assert len(made["tasks"]) == 80 * 72 + 21
    assert len(transformer_step(preset="llama-70b", micro_batches=176)["tasks"]) == 176 * 5781
    assert transformer_step(preset="llama-70b", parameters="static")["static_memory"] == 2 * 68_976_648_192


def test_rows_are_made_when_they_are_asked_for() -> None:
    made = generate_rows("dag", "transformer", preset="llama-70b", micro_batches=1700)
    assert isinstance(made["tasks"], Rows)
    assert next(iter(made["tasks"]))["id"] == "m1.embedding"
    assert made_of(transformer_step(**TINY))["tasks"] == made_with(**TINY)["tasks"]
    for key in ("tasks", "values"):
        for parameters in ({**TINY, **mode, "micro_batches": 3} for mode in MODES):
            rows = transformer_step(**parameters)[key]
            assert len(list(rows)) == len(rows)


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [("llama-70b", 68_976_648_192), ("llama-7b-like", 6_738_415_616), ("gpt2-xl", 1_557_611_200)],
)
def test_parameters_at_the_host_are_the_published_ones(preset: str, parameters: int) -> None:
    made = transformer_step(preset=preset, parameters="host")
    sizes = {value["id"]: value["size"] for value in made["values"]}
    assert sum(size for name, size in sizes.items() if name.startswith("W.")) == 2 * parameters
    assert sum(size for name, size in sizes.items() if name.startswith("O.")) == 12 * parameters
    assert sum(task["size"] for task in made["tasks"] if task["id"].endswith((".dW", ".db"))) >= 2 * parameters


@pytest.mark.parametrize(("layers", "hidden"), [(2, 512), (4, 1024)])
def test_flops_are_the_published_formula(layers: int, hidden: int) -> None:
    batch, sequence, vocabulary = 2, 256, 1000
    made = transformer_step(
        layers=layers,
        hidden=hidden,
        heads=8,
        sequence=sequence,
        vocabulary=vocabulary,
        batch=batch,
        flash=False,
        flops=1.0,
        bandwidth=1e300,
    )
    forward = layers * (24 * batch * sequence * hidden**2 + 4 * batch * sequence**2 * hidden)
    forward += 2 * batch * sequence * hidden * vocabulary
    assert phase_time(made, "forward") == pytest.approx(forward)
    assert phase_time(made, "backward") == pytest.approx(2 * forward)


def test_flops_of_groups_and_gates() -> None:
    # 2 FLOP for each parameter of a matrix and each token, and 4*b*s^2*h of attention a layer.
    model = PRESETS["llama-70b"]
    made = transformer_step(preset="llama-70b", flops=1.0, bandwidth=1e300)
    norms = (2 * model.layers + 1) * model.hidden
    matrices = model.parameters - norms - model.vocabulary * model.hidden
    attention = 4 * model.sequence**2 * model.hidden * model.layers
    forward = 2 * model.sequence * matrices + attention
    assert phase_time(made, "forward") == pytest.approx(forward)
    # Tiled attention makes its scores once more.
    assert phase_time(made, "backward") == pytest.approx(2 * forward + attention / 2)


def kept_at_the_loss(made: dict[str, Any]) -> int:
    """Bytes made before the loss's backward that are read after it."""
    whole = written(made)
    size = {value["id"]: value["size"] for value in whole["values"]}
    middle = next(place for place, task in enumerate(whole["tasks"]) if task.get("phase") == "backward")
    early = {value for task in whole["tasks"][1:middle] for value in task["writes"]}
    late = {value for task in whole["tasks"][middle:] for value in task["reads"]}
    return sum(size[value] for value in early & late)


@pytest.mark.parametrize("flash", [False, True])
def test_activations_of_a_layer_are_the_published_formula(flash: bool) -> None:
    sequence, hidden, heads = 64, 128, 8
    shape = {"hidden": hidden, "heads": heads, "sequence": sequence, "dtype": "fp16", "flash": flash}
    kept = [kept_at_the_loss(transformer_step(layers=layers, **shape)) for layers in (1, 2)]
    norms = 2 * 2 * 4 * sequence  # mean and deviation of two norms, which the paper neglects
    rows = 4 * heads * sequence if flash else 0  # FlashAttention's statistics
    expected = activation_bytes(batch=1, sequence=sequence, hidden=hidden, heads=heads, flash=flash)
    assert kept[1] - kept[0] == expected + norms + rows


def test_micro_batches_are_alike_and_share_only_parameters_and_gradients() -> None:
    made = made_with(**LLAMA, gradients="accumulate", micro_batches=3)

    def renamed(number: int) -> list[dict[str, Any]]:
        own = [task for task in made["tasks"] if task["id"].startswith(f"m{number}.")]
        before = f"m{number - 1}." if number > 1 else "buffer."
        text = json.dumps(own).replace(f'"m{number}.', '"').replace(f'"{before}', '"held.').replace(".dW", "")
        loaded: list[dict[str, Any]] = json.loads(text)
        return loaded

    assert renamed(1) == renamed(2) == renamed(3)
    numbers = [task["id"].partition(".")[0] for task in made["tasks"]]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_gradients_are_added_up_in_place(micro_batches: int) -> None:
    plain, added = (
        remat.solve(remat.load(made_with(**TINY, gradients=mode, micro_batches=micro_batches)), algorithm="keep-all")
        for mode in ("none", "accumulate")
    )
    # Biases and matrices apart, tied logits and embedding together: the parameters, 2 bytes each.
    gradients = (
        2
        * architecture(
            "gpt2-small", {k: TINY.get(k) for k in ("layers", "hidden", "heads", "sequence", "vocabulary")}, None
        ).parameters
    )
    assert max(added.peak_memory.values()) == max(plain.peak_memory.values()) + gradients


def test_a_tied_matrix_has_one_gradient_of_two_kernels() -> None:
    tasks = {task["id"]: task for task in made_with(**TINY, parameters="host", micro_batches=2)["tasks"]}
    assert "m1.head.dW" not in str(tasks["m1.head.dW"]["reads"])
    assert "in_place" not in tasks["m1.head.dW"]
    assert tasks["m1.embedding.dW"]["reads"][-1] == "m1.head.dW"
    assert tasks["m2.head.dW"]["reads"][-1] == "m1.embedding.dW"
    assert tasks["update.embedding"]["reads"] == ["m2.embedding.dW", "O.embedding"]


def test_a_step_with_its_host_by_hand() -> None:
    """Everything comes to the device, all kernels run, gradients go to the host, whose processor updates."""
    made = made_with(**TINY, parameters="host", micro_batches=2)
    updates = [task for task in made["tasks"] if task["id"].startswith("update.")]
    at_host = [value["value"] for value in made["inputs"] if isinstance(value, dict)]
    steps: list[dict[str, Any]] = [
        {"copy": value, "from": "host", "to": "device"} for value in at_host if value.startswith("W.")
    ]
    steps += [{"run": task["id"]} for task in made["tasks"] if task not in updates]
    for task in updates:
        steps += [{"copy": value, "from": "device", "to": "host"} for value in task["reads"] if value.startswith("m2.")]
        steps.append({"run": task["id"], "on": ["cpu"]})
    verified = remat.verify(remat.load(made), {"schema": "remat.schedule/1", "steps": steps})
    assert verified.ok, verified.violations
    # 2 bytes of each gradient, 12 of the state read and written, 2 of the parameter written.
    device = Device(312e12, 1.555e12)
    parameters = sum(value["size"] for value in made["values"] if value["id"].startswith("W.")) / 2
    assert sum(task["time"] for task in updates) == pytest.approx(28 * parameters / device.bandwidth)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"parameters": "host", "gradients": "none"}, "gradients none leave the updates of parameters at the host"),
        ({"parameters": "device"}, "parameters must be one of none, static, host, not 'device'"),
        ({"preset": "llama-70b", "micro_batches": 2000}, "micro_batches must be at most 1,729, not 2000"),
        ({"key_heads": 5}, "key_heads 5 do not divide the 12 heads; give key_heads that do"),
        ({"batch": 10**13}, "make the batch, the model or the number of micro-batches smaller"),
        ({"parameters": "host", "host_speed": 2}, "host_speed must be at most 1, not 2"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        transformer_step(**parameters)
