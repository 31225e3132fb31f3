"""Contractions of a network of tensors become a task graph: a task is a contraction, a value is a tensor.

Inputs are resident from the start and may be freed after their contraction, as in `ContractionTree.peak_size` of
cotengra. A task takes one time unit per product. Sizes count entries or bytes.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from remat.bridges.placement_profiles.reading import Source, name_of, read_source, text
from remat.errors import InstanceError, OptionError
from remat.messages import brief
from remat.units import LARGEST_SIZE

SCHEMA = "remat.contraction/1"
KEYS = frozenset({"schema", "name", "inputs", "output", "sizes", "path", "ssa_path"})
MOST = 1_000_000


def document(tree: Any, path: Any = None) -> dict[str, Any]:
    """Return a contraction as a document of `remat.contraction/1`.

    Parameters
    ----------
    tree : cotengra.ContractionTree, or the `PathInfo` of opt_einsum
    path : sequence of sequences of int, optional
        The path of opt_einsum: what `contract_path` returns first. Default: the tree's own.

    Raises
    ------
    OptionError
        For another object.
    """
    if hasattr(tree, "get_path") and hasattr(tree, "size_dict"):
        inputs, output, steps = tree.inputs, tree.output, tree.get_path() if path is None else path
    elif hasattr(tree, "input_subscripts") and path is not None:
        inputs, output, steps = tree.input_subscripts.split(","), tree.output_subscript, path
    else:
        wanted = "a ContractionTree of cotengra, or a PathInfo of opt_einsum and its path"
        raise OptionError(f"expected {wanted}, not {type(tree).__name__}", argument="tree")
    return {
        "schema": SCHEMA,
        "inputs": [[str(index) for index in term] for term in inputs],
        "output": [str(index) for index in output],
        "sizes": {str(index): int(size) for index, size in tree.size_dict.items()},
        "path": [[int(k) for k in step] for step in steps],
    }


def import_tree(source: Source, *, name: str | None = None, entry_bytes: int | None = None) -> dict[str, Any]:
    """Make a task graph of a contraction.

    Parameters
    ----------
    source : path, open file or dict
        ``inputs``, ``output``, ``sizes`` of the indices, and a ``path`` (numbers in the list that is left, results at
        its end) or an ``ssa_path`` (numbers of tensors, results counted on).
    name : str, optional
    entry_bytes : int, optional
        Bytes of an entry; without it sizes count entries.

    Raises
    ------
    InstanceError
        If the document is not a contraction, or its path is not complete; the message has the path.
    """
    given = read_source(source)
    for key in given:
        if key not in KEYS:
            raise InstanceError(f"unknown key; known are {', '.join(sorted(KEYS))}", f"$.{key}")
    if given.get("schema", SCHEMA) != SCHEMA:
        raise InstanceError(f"expected a contraction ({SCHEMA}), not {brief(given['schema'])}", "$.schema")
    network = _Network(given, entry_bytes or 1)
    tasks = network.contractions(*_steps(given))
    units = {"time": "unit", "memory": "unit" if entry_bytes is None else "B"}
    return {
        "schema": "remat.instance/1",
        "kind": "dag",
        "name": name or text(given, "name", "$") or name_of(source, "contraction"),
        "description": f"{len(tasks):,} contractions of {len(network.terms):,} tensors",
        "source": f"imported by: remat import contraction-tree {name_of(source, 'contraction')}",
        "units": units,
        "values": [{"id": f"t{k}", "size": network.size(term)} for k, term in enumerate(network.terms)],
        "tasks": tasks,
        "inputs": [f"t{k}" for k in range(len(network.terms))],
        "outputs": [tasks[-1]["id"]],
    }


def _steps(given: dict[str, Any]) -> tuple[list[list[int]], bool]:
    """Return the steps, and whether numbers are counted on."""
    if ("path" in given) == ("ssa_path" in given):
        raise InstanceError("give either path or ssa_path", "$.path")
    key = "path" if "path" in given else "ssa_path"
    steps = given[key]
    if not isinstance(steps, list) or not steps or len(steps) > MOST:
        raise InstanceError(f"expected a list of 1 to {MOST:,} steps", f"$.{key}")
    for index, step in enumerate(steps):
        whole = isinstance(step, list) and all(isinstance(k, int) and not isinstance(k, bool) and k >= 0 for k in step)
        if not whole or not step or len(set(step)) != len(step):
            raise InstanceError("expected a list of different numbers of tensors", f"$.{key}[{index}]")
    return steps, key == "ssa_path"


class _Network:
    """The tensors of a contraction."""

    def __init__(self, given: dict[str, Any], element: int) -> None:
        self.element = element
        sizes = given.get("sizes")
        if not isinstance(sizes, dict):
            raise InstanceError("expected an object with the size of each index", "$.sizes")
        for index, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= LARGEST_SIZE:
                raise InstanceError(f"expected a whole number from 1 to 2^62, not {brief(size)}", f"$.sizes.{index}")
        self.sizes: dict[str, int] = sizes
        inputs = given.get("inputs")
        if not isinstance(inputs, list) or not 0 < len(inputs) <= MOST:
            raise InstanceError(f"expected a list of 1 to {MOST:,} tensors", "$.inputs")
        self.terms = [self._term(term, f"$.inputs[{k}]") for k, term in enumerate(inputs)]
        self.output = self._term(given.get("output", []), "$.output")
        missing = self.output.difference(*self.terms)
        if missing:
            raise InstanceError(f"index {brief(min(missing))} is in no tensor", "$.output")

    def _term(self, term: Any, path: str) -> frozenset[str]:
        listed = list(term) if isinstance(term, str) else term
        if not isinstance(listed, list) or not all(isinstance(index, str) for index in listed):
            raise InstanceError("expected a list of indices", path)
        for index in listed:
            if index not in self.sizes:
                raise InstanceError(f"index {brief(index)} has no size", path)
        return frozenset(listed)

    def size(self, term: frozenset[str]) -> int:
        """Bytes or entries of a tensor."""
        found = self.element * prod(self.sizes[index] for index in term)
        if found > LARGEST_SIZE:
            raise InstanceError(f"a tensor of {brief(found)} entries is larger than 2^62", "$.sizes")
        return found

    def contractions(self, steps: list[list[int]], counted_on: bool) -> list[dict[str, Any]]:
        """Return a task for each step."""
        key = "ssa_path" if counted_on else "path"
        live = {k: (f"t{k}", term) for k, term in enumerate(self.terms)}
        listed = list(live)
        counts = Counter(index for term in self.terms for index in term)
        counts.update(self.output)  # which nothing ever contracts
        tasks: list[dict[str, Any]] = []
        for number, step in enumerate(steps):
            try:
                chosen = [k if counted_on else listed[k] for k in step]
                parts = [live.pop(k) for k in chosen]
            except (IndexError, KeyError):
                raise InstanceError(f"there is no tensor {step}", f"$.{key}[{number}]") from None
            if not counted_on:
                for k in sorted(step, reverse=True):
                    del listed[k]
            for _, term in parts:
                counts.subtract(term)
            whole = frozenset().union(*(term for _, term in parts))
            made = frozenset(index for index in whole if counts[index])
            counts.update(made)
            name = f"c{number}"
            live[len(self.terms) + number] = (name, made)
            listed.append(len(self.terms) + number)
            work = prod(self.sizes[index] for index in whole)
            if work > LARGEST_SIZE:
                raise InstanceError("a contraction of more than 2^62 products", f"$.{key}[{number}]")
            row = {"id": name, "time": work, "reads": [part for part, _ in parts], "size": self.size(made)}
            tasks.append(row)
        if len(live) > 1:
            raise InstanceError(f"{len(live):,} tensors are left: the path does not contract everything", f"$.{key}")
        return tasks
