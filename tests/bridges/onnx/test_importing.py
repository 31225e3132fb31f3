"""Test task graphs of ONNX models from plain data: work, views, saved values, and refusals."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

import remat
from remat.bridges.onnx.importing import Imported, import_graph
from remat.bridges.onnx.model import Graph, Node, Tensor
from remat.bridges.onnx.operators import RULES, flops
from remat.errors import InstanceError
from remat.generate.devices import rates
from tests.cli.helpers import Run

Shape = tuple[int, ...]


def graph(
    nodes: list[tuple[str, str, str]],
    shapes: dict[str, Shape | None],
    *,
    parameters: str = "",
    inputs: str = "x",
    outputs: str = "y",
    integers: str = "",
    **attributes: Any,
) -> Graph:
    """A graph of (operator, inputs, outputs), names separated by spaces."""
    made = tuple(
        Node(f"n{k}", operator, tuple(reads.split()), tuple(writes.split()), attributes)
        for k, (operator, reads, writes) in enumerate(nodes)
    )
    tensors = {
        name: Tensor(shape, 8 if name in integers.split() else 4, name not in integers.split())
        for name, shape in shapes.items()
    }
    return Graph("g", made, tensors, tuple(inputs.split()), tuple(outputs.split()), frozenset(parameters.split()), {})


def made(given: Graph, **options: Any) -> Imported:
    found = import_graph(given, file="g.onnx", **options)
    remat.load(found.document)
    return found


def tasks(found: Imported) -> dict[str, dict[str, Any]]:
    return {task["id"]: task for task in found.document["tasks"]}


MLP = graph(
    [("Gemm", "x w b", "h"), ("Relu", "h", "r"), ("Reshape", "r s", "v"), ("Gemm", "v u", "y")],
    {
        "x": (8, 16),
        "w": (16, 32),
        "b": (32,),
        "h": (8, 32),
        "r": (8, 32),
        "s": (2,),
        "v": (4, 64),
        "u": (64, 2),
        "y": (4, 2),
    },
    parameters="w b u s",
    integers="s",
)


def test_inference_of_a_perceptron() -> None:
    found = made(MLP)
    assert list(tasks(found)) == ["n0", "n1", "n3"]
    assert tasks(found)["n3"]["reads"] == ["r"]  # through the view
    assert found.flops == 2 * 8 * 16 * 32 + 2 * 4 * 64 * 2
    assert found.document["static_memory"] == 4 * (16 * 32 + 32 + 64 * 2) + 2 * 8
    a100 = rates("A100", "fp32")
    traffic = 4 * (8 * 16 + 8 * 32 + 16 * 32 + 32)
    assert tasks(found)["n0"]["time"] == pytest.approx(
        1e6 * max(2 * 8 * 16 * 32 / a100.flops, traffic / a100.bandwidth)
    )
    assert found.document["outputs"] == ["y"]


def test_a_training_step_of_a_perceptron() -> None:
    found = made(MLP, training=True)
    listed = tasks(found)
    assert list(listed) == ["n0", "n1", "n3", "loss", "loss.backward", "n3.backward", "n1.backward", "n0.backward"]
    assert listed["n3.backward"]["reads"] == ["d.y", "r"]
    assert listed["n3.backward"]["writes"] == ["d.r", "dW.u"]
    assert listed["n1.backward"]["reads"] == ["d.r", "r"]  # its output
    assert listed["n0.backward"]["reads"] == ["d.h", "x"]
    assert listed["n0.backward"]["writes"] == ["dW.w", "dW.b"]  # the input of the model has no gradient
    assert found.document["outputs"] == ["loss", "dW.u", "dW.w", "dW.b"]


@pytest.mark.parametrize(
    ("operator", "shapes", "attributes", "expected"),
    [
        ("Conv", {"x": (2, 6, 8, 8), "w": (4, 3, 3, 3), "y": (2, 4, 8, 8)}, {}, 2 * 2 * 4 * 64 * 27),
        ("ConvTranspose", {"x": (2, 6, 8, 8), "w": (6, 4, 2, 2), "y": (2, 4, 16, 16)}, {}, 2 * 2 * 6 * 64 * 16),
        ("Gemm", {"x": (5, 7), "w": (5, 3), "y": (7, 3)}, {"transA": 1}, 2 * 7 * 3 * 5),
        ("MatMul", {"x": (2, 3, 5, 7), "w": (7, 4), "y": (2, 3, 5, 4)}, {}, 2 * 2 * 3 * 5 * 4 * 7),
        ("Einsum", {"x": (2, 3), "w": (3, 5), "y": (2, 5)}, {"equation": "ij, jk -> ik"}, 2 * 2 * 3 * 5),
        ("LSTM", {"x": (9, 2, 6), "w": (1, 16, 6), "y": (9, 1, 2, 4)}, {}, 2 * 9 * 2 * 16 * (6 + 4)),
        ("Relu", {"x": (4,), "w": (4,), "y": (4,)}, {}, 0),
        ("Conv", {"x": (2, 6), "w": None, "y": (2, 4)}, {}, 0),
    ],
)
def test_the_work_of_products(operator: str, shapes: Any, attributes: dict[str, Any], expected: int) -> None:
    given = graph([(operator, "x w", "y")], shapes, **attributes)
    assert flops(given, given.nodes[0]) == expected


def test_gradients_of_several_readers_are_added_up_in_place() -> None:
    found = made(
        graph(
            [("Mul", "x w", "a"), ("Tanh", "a", "b"), ("Sigmoid", "a", "c"), ("Add", "b c", "s"), ("Add", "s a", "y")],
            dict.fromkeys("xwabcsy", (4,)),
            parameters="w",
        ),
        training=True,
    )
    listed = tasks(found)
    sums = [task for task in listed.values() if task.get("in_place")]
    assert len(sums) == 2  # three readers of a
    assert listed["n1.backward"]["reads"][0] == listed["n2.backward"]["reads"][0] == "d.y"  # through both sums
    assert listed["n0.backward"]["reads"] == [sums[-1]["writes"][0], "x"]


def test_backwards_read_only_what_they_need() -> None:
    shapes: dict[str, Shape | None] = {"x": (2, 4, 8, 8), "w": (4, 4, 3, 3), "c": (2, 4, 8, 8), "s": (4,), "o": (4,)}
    shapes |= {"m": (4,), "v": (4,), "n": (2, 4, 8, 8), "p": (2, 4, 4, 4), "y": (2, 4, 4, 4), "k": None}
    found = made(
        graph(
            [
                ("Conv", "x w", "c"),
                ("BatchNormalization", "c s o m v", "n"),
                ("MaxPool", "n", "p"),
                ("Dropout", "p", "y k"),
            ],
            shapes,
            parameters="w s o m v",
        ),
        training=True,
    )
    listed = tasks(found)
    assert listed["n1"]["writes"] == ["n", "n1.statistics"]
    assert listed["n1.backward"]["reads"] == ["d.n", "n1.statistics", "c"]
    assert listed["n1.backward"]["writes"] == ["d.c", "dW.s", "dW.o"]
    assert listed["n2.backward"]["reads"] == ["d.p", "n2.mask", "n"]
    sizes = {value["id"]: value["size"] for value in found.document["values"]}
    assert (sizes["n1.statistics"], sizes["n2.mask"], sizes["n3.mask"]) == (32, 8 * 128, 128)
    assert found.unknown == ("k",)


def test_embeddings_products_and_literals() -> None:
    shapes: dict[str, Shape | None] = {
        "x": (3,),
        "e": (50, 8),
        "h": (3, 8),
        "half": (),
        "s": (3, 8),
        "q": (3, 3),
        "y": (3, 3),
    }
    found = made(
        graph(
            [
                ("Constant", "", "half"),
                ("Gather", "e x", "h"),
                ("Mul", "h half", "s"),
                ("MatMul", "s h", "q"),
                ("Neg", "q", "y"),
            ],
            shapes | {"ht": (8, 3)},
            parameters="e",
            integers="x",
        ),
        training=True,
    )
    listed = tasks(found)
    assert listed["n1.backward"]["reads"][-1] == "x"
    assert listed["n1.backward"]["writes"] == ["dW.e"]
    assert [name.partition(".2")[0] for name in listed["n2.backward"]["writes"]] == ["d.h"]  # none of the literal
    assert set(listed["n3.backward"]["reads"][1:]) == {"s", "h"}


@pytest.mark.parametrize(
    ("given", "training", "said"),
    [
        (graph([("Relu", "x", "a"), ("Relu", "a", "y")], {"x": (1,), "a": None, "y": (1,)}), False, "the shape of 'a'"),
        (graph([("Relu", "x", "y")], {"x": None, "y": (1,)}), False, "the shape of 'x' (an input) is unknown"),
        (graph([("Relu", "x", "y")], {"x": (2**61,), "y": (2**61,)}), False, "'x' has more than 2^62 bytes"),
        (graph([("Relu", "x", "y"), ("Relu", "x", "y")], {"x": (1,), "y": (1,)}), False, "which already exists"),
        (graph([("Reshape", "x", "x")], {"x": (1,)}), False, "which already exists"),
        (graph([("Relu", "z", "y")], {"x": (1,), "y": (1,), "z": (1,)}), False, "which no earlier node writes"),
        (
            graph([("FFT", "x", "y")], {"x": (1,), "y": (1,)}),
            True,
            "g.onnx: FFT 'n0' has no training rule; rules are for",
        ),
        (graph([("ArgMax", "x", "y")], {"x": (4,), "y": (1,)}, integers="y"), True, "no floating output"),
    ],
)
def test_what_cannot_be_imported_is_named(given: Graph, training: bool, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        import_graph(given, file="g.onnx", training=training)
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_dimensions_without_a_value_are_listed() -> None:
    given = Graph("g", MLP.nodes, MLP.tensors, MLP.inputs, MLP.outputs, MLP.parameters, {"batch": "x"})
    with pytest.raises(InstanceError, match=r"dimensions of inputs are unknown: batch \(of x\); give each a value"):
        import_graph(given, file="g.onnx")


def test_rules_say_one_thing() -> None:
    for operator, rule in RULES.items():
        assert not (rule.passes and (rule.inputs or rule.outputs or rule.product)), operator


@pytest.mark.skipif(find_spec("onnx") is not None, reason="onnx is installed")
def test_the_package_is_an_extra(run: Run, tmp_path: Any) -> None:
    run("import", "onnx", tmp_path / "x.onnx").assert_refused("pip install 'remat[onnx]'")
    assert "pip install 'remat[onnx]'" in " ".join(run("import").out.split())
    run("import", "onnx", "x.onnx", "--dim", "batch=many").assert_refused("--dim: expected NAME=N")
