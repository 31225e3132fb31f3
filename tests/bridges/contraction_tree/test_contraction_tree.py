"""Contractions of tensors: sizes and work by brute force, peaks as cotengra counts them, broken documents."""

from __future__ import annotations

import json
import random
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

import remat
from remat.bridges.contraction_tree import document, import_tree
from remat.errors import InstanceError, OptionError
from tests.cli.helpers import Run

# A chain of three matrices: (ab)(bc)(cd).
CHAIN: dict[str, Any] = {"inputs": ["ab", "bc", "cd"], "output": "ad", "sizes": {"a": 2, "b": 3, "c": 5, "d": 7}}


def drawn(seed: int, tensors: int = 8) -> dict[str, Any]:
    """A connected network, a path that contracts pairs, and hyperedges."""
    draw = random.Random(seed)
    letters = [chr(97 + k) for k in range(12)]
    inputs = [sorted({letters[k % 12], *draw.sample(letters, 2)}) for k in range(tensors)]
    path = []
    left = tensors
    while left > 1:
        path.append(sorted(draw.sample(range(left), 2)))
        left -= 1
    used = {index for term in inputs for index in term}
    output = draw.sample(sorted(used), 1)
    return {"inputs": inputs, "output": output, "sizes": {k: draw.randint(1, 4) for k in letters}, "path": path}


def peak_in_order(given: dict[str, Any]) -> int:
    """The peak of the path, as `ContractionTree.peak_size` counts: inputs from the start, parts freed at the end."""
    size = given["sizes"]
    live = [frozenset(term) for term in given["inputs"]]
    held = peak = sum(prod(size[k] for k in term) for term in live)
    for step in given["path"]:
        parts = [live[k] for k in step]
        live = [term for k, term in enumerate(live) if k not in step]
        rest = frozenset(given["output"]).union(*live)
        made = frozenset().union(*parts) & rest
        held += prod(size[k] for k in made)
        peak = max(peak, held)
        held -= sum(prod(size[k] for k in term) for term in parts)
        live.append(made)
    return peak


def test_a_chain_of_matrices() -> None:
    made = import_tree(CHAIN | {"path": [[0, 1], [0, 1]]})
    assert [task["time"] for task in made["tasks"]] == [2 * 3 * 5, 2 * 5 * 7]
    assert [task["size"] for task in made["tasks"]] == [10, 14]
    assert made["tasks"][1]["reads"] == ["t2", "c0"]
    assert made["outputs"] == ["c1"]
    counted_on = import_tree(CHAIN | {"ssa_path": [[0, 1], [3, 2]]})
    assert [task["size"] for task in counted_on["tasks"]] == [10, 14]
    assert import_tree(CHAIN | {"path": [[0, 1, 2]]}, entry_bytes=8)["tasks"][0]["size"] == 14 * 8


@pytest.mark.parametrize("seed", range(4))
def test_the_path_in_its_order_has_the_peak_that_cotengra_counts(seed: int) -> None:
    given = drawn(seed)
    instance = remat.load(import_tree(given))
    result = remat.solve(instance, algorithm="keep-all")
    assert max(result.peak_memory.values()) == peak_in_order(given)
    best = remat.least_budget(instance, time_limit="0.2s")
    assert max(best.peak_memory.values()) <= peak_in_order(given)


def test_trees_of_cotengra_and_opt_einsum_become_documents() -> None:
    tree = SimpleNamespace(
        inputs=(("a", "b"), ("b", "c")),
        output=("a", "c"),
        size_dict={"a": 2, "b": 3, "c": 4},
        get_path=lambda: ((0, 1),),
    )
    made = document(tree)
    assert made["path"] == [[0, 1]]
    info = SimpleNamespace(input_subscripts="ab,bc", output_subscript="ac", size_dict=tree.size_dict)
    assert document(info, [(0, 1)]) == made
    json.dumps(made)
    assert import_tree(made)["tasks"][0]["time"] == 24
    with pytest.raises(OptionError, match=r"expected a ContractionTree of cotengra"):
        document(info)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "$.path: give either path or ssa_path"),
        ({"path": [[0, 1], [0, 1]], "ssa_path": []}, "give either"),
        ({"path": []}, "$.path: expected a list of 1 to"),
        ({"path": [[0, 1]]}, "2 tensors are left"),
        ({"path": [[0, 9]]}, "$.path[0]: there is no tensor [0, 9]"),
        ({"path": [[0, 0]]}, "$.path[0]: expected a list of different numbers"),
        ({"path": [[0, True]]}, "$.path[0]"),
        ({"ssa_path": [[0, 1], [0, 2]]}, "$.ssa_path[1]: there is no tensor [0, 2]"),
        ({"path": [[0, 1], [0, 1]], "sizes": {"a": 2}}, "$.inputs[0]: index 'b' has no size"),
        ({"path": [[0, 1], [0, 1]], "sizes": {"a": 0}}, "$.sizes.a: expected a whole number from 1"),
        ({"path": [[0, 1], [0, 1]], "sizes": 3}, "$.sizes: expected an object"),
        ({"path": [[0, 1], [0, 1]], "output": [3]}, "$.output: expected a list of indices"),
        ({"path": [[0, 1], [0, 1]], "inputs": []}, "$.inputs: expected a list of 1"),
        ({"path": [[0]], "inputs": ["a"], "output": "d"}, "$.output: index 'd' is in no tensor"),
        (
            {"path": [[0, 1], [0, 1]], "sizes": dict.fromkeys("abcd", 2**40)},
            "$.path[0]: a contraction of more than 2^62 products",
        ),
        ({"schema": "x"}, "$.schema: expected a contraction"),
        ({"tree": 1}, "$.tree: unknown key"),
    ],
)
def test_broken_documents_have_their_path(change: dict[str, Any], said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        import_tree(CHAIN | change)
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_the_command_imports_a_contraction_tree(run: Run, tmp_path: Any) -> None:
    path = tmp_path / "tree.json"
    path.write_text(json.dumps(CHAIN | {"path": [[0, 1], [0, 1]]}))
    assert run("import", "contraction-tree", path, "--bytes", 4).document["units"]["memory"] == "B"
