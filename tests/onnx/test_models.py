"""ONNX files: the light models of the package, dimensions, broken files, and training steps against the generators."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import remat
from remat.bridges.onnx.importing import import_model
from remat.errors import InstanceError, OptionError
from remat.generate import generate
from tests.cli.helpers import Run

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

# Operators that run, GFLOP of a forward, and tensors of unknown shape.
MODELS = {
    "bvlc_alexnet": (24, 1.31, 2),
    "densenet121": (668, 5.67, 0),
    "inception_v1": (143, 2.86, 1),
    "inception_v2": (371, 4.04, 0),
    "resnet50": (176, 8.18, 0),
    "shufflenet": (203, 0.25, 0),
    "squeezenet": (66, 0.70, 1),
    "vgg19": (46, 39.26, 2),
    "zfnet512": (22, 2.96, 0),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_onnx_are_imported(name: str) -> None:
    operators, work, unknown = MODELS[name]
    found = import_model(str(LIGHT / f"light_{name}.onnx"))
    assert f": {operators:,} operators, {work:.2f} GFLOP" in found.document["description"]
    assert len(found.unknown) == unknown
    remat.load(found.document)


@pytest.mark.parametrize(
    ("name", "family", "options"),
    [
        ("resnet50", "resnet", {}),
        ("vgg19", "vgg", {"depth": "19"}),
    ],
)
def test_training_steps_are_those_of_the_published_layers(name: str, family: str, options: dict[str, Any]) -> None:
    imported = remat.load(import_model(str(LIGHT / f"light_{name}.onnx"), training=True).document)
    published = remat.load(generate("dag", family, batch=1, **options))
    ours, theirs = (remat.solve(each, algorithm="keep-all") for each in (imported, published))
    peaks = [max(each.peak_memory.values()) for each in (ours, theirs)]
    assert peaks[0] == pytest.approx(peaks[1], rel=0.05)
    assert ours.makespan * 1e-6 == pytest.approx(theirs.makespan, rel=0.05)


def model(*, shape: Any = ("batch", 4), nodes: Any = None, outputs: Any = ("batch", 2)) -> Any:
    weight = helper.make_tensor("w", TensorProto.FLOAT, (4, 2), [0.5] * 8)
    nodes = nodes or [helper.make_node("MatMul", ["x", "w"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)
    return helper.make_model(helper.make_graph(nodes, "tiny", [x], [y], [weight]))


def save(tmp_path: Path, content: Any, name: str = "m.onnx") -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return str(path)


def test_named_dimensions_need_values(tmp_path: Path) -> None:
    path = save(tmp_path, model())
    found = import_model(path, dimensions={"batch": 32})
    assert found.flops == 2 * 32 * 4 * 2
    with pytest.raises(InstanceError, match=r"dimensions of inputs are unknown: batch \(of x\)"):
        import_model(path)
    with pytest.raises(OptionError, match=r"dim: the model has no dimension 'time'; it has batch"):
        import_model(path, dimensions={"batch": 3, "time": 4})
    packed = save(tmp_path, gzip.compress(model(shape=(3, 4), outputs=(3, 2)).SerializeToString()), "m.onnx.gz")
    assert import_model(packed).flops == 2 * 3 * 4 * 2


def test_elementwise_operators_of_an_inference_overwrite_their_inputs(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Softmax", ["a"], ["b"], name="softmax"),
        helper.make_node("ReduceSum", ["b"], ["c"], name="sum", keepdims=1),
        helper.make_node("Add", ["b", "c"], ["d"], name="broadcast"),
        helper.make_node("Mul", ["a", "d"], ["y"], name="product"),
    ]
    path = save(tmp_path, model(shape=(8, 4), outputs=(8, 4), nodes=nodes))
    tasks = import_model(path).document["tasks"]
    assert [task["id"] for task in tasks if task.get("in_place")] == ["relu", "product"]
    training = import_model(path, training=True).document["tasks"]
    assert not any(task.get("in_place") for task in training if task["phase"] == "forward")


def test_old_files_may_have_initializers_that_are_no_inputs(tmp_path: Path) -> None:
    content = model(shape=(3, 4), outputs=(3, 2))
    content.graph.output[0].type.tensor_type.ClearField("shape")
    content.ir_version = 3
    assert import_model(save(tmp_path, content)).flops == 2 * 3 * 4 * 2


def test_control_flow_is_refused(tmp_path: Path) -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, (1,))],
    )
    node = helper.make_node("If", ["x"], ["y"], name="branch", then_branch=inner, else_branch=inner)
    with pytest.raises(InstanceError, match=r"If 'branch': control flow"):
        import_model(save(tmp_path, model(shape=(1,), outputs=(1,), nodes=[node])))


@pytest.mark.parametrize("data", [b"", b"\x00", b"not a model", b"\x0a\xff\xff\xff\xff\xff", bytes(range(256)) * 10])
def test_broken_files_get_one_line(run: Run, tmp_path: Path, data: bytes) -> None:
    run("import", "onnx", save(tmp_path, data)).assert_refused("no ONNX model")


def test_wrong_shapes_get_one_line(run: Run, tmp_path: Path) -> None:
    run("import", "onnx", save(tmp_path, model(shape=(3, 5), outputs=(3, 2)))).assert_refused(
        "shapes cannot be inferred"
    )


def test_the_command_imports_an_onnx_model(run: Run, tmp_path: Path) -> None:
    path = save(tmp_path, model())
    document = run("import", "onnx", path, "--dim", "batch=8", "--training", "--device", "H100", "--name", "t").document
    assert (document["name"], document["outputs"]) == ("t", ["loss", "dW.w"])
    outcome = run("import", "onnx", LIGHT / "light_vgg19.onnx")
    assert outcome.err == "Note: 2 unused tensors of unknown shape are left out: r41, r45\n"
    run("import", "onnx", path, "--dim", "batch=0").assert_refused("--dim")
    run("import", "onnx", path, "--dim", "batch=8", "--device", "H99").assert_refused("--device")
