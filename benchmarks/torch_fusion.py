"""The fusion model against the kernels that Inductor generates: how many, and with which operators.

    <python with torch> -m benchmarks.torch_fusion [--networks llama gpt2 resnet diffusion mlp] [--scale small]

Each network is compiled along the order of Inductor's own partition. A kernel of the model is a group, together with
what it computes for itself of the values that only the backward reads. `same` counts the generated kernels that have
exactly the operators of a group (views and constants left out); `bytes` is the model's peak over that of the generated
code.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from benchmarks.harness import table
from benchmarks.torch_networks import NETWORKS, compiler_of, network

SHOWN = ("llama", "gpt2", "resnet", "diffusion", "mlp")
IGNORED = ("aten.full", "prims.iota", "aten.scalar_tensor", "prims.convert_element_type", "aten.expand", "aten.clone")
CONVOLUTIONS = "aten.convolution_backward.default"
Signature = tuple[str, ...]


class Comparison:
    """One network: the groups of the model, and the nodes of Inductor's scheduler."""

    def __init__(self, name: str, scale: str) -> None:
        self.torch: Any = compiler_of()
        self.inductor: Any = import_module("remat.bridges.torch.inductor")
        self.capture: Any = import_module("remat.bridges.torch.capture")
        self.module, self.args = network(name, scale)
        self.scheduled: list[list[tuple[bool, Signature]]] = []
        self.captured: Any = None
        self.peaks = (0, 0)

    def run(self) -> None:
        """Compile, and note what the scheduler makes of it."""
        emission: Any = import_module("remat.bridges.torch.graph_emission")
        graphs: Any = import_module("remat.bridges.torch.graphs")
        config: Any = import_module("torch._inductor.config")
        face: Any = import_module("remat")

        def partition(joint: Any, given: Any, *, num_fwd_outputs: int, **options: Any) -> Any:
            self.captured = self.capture.Captured(None, joint, num_fwd_outputs, (), None)
            self.inductor.fuse(self.captured, given, num_fwd_outputs, **options)
            runs = self.captured.members(self.captured.reference)
            return graphs.build(self.captured, emission.emit(self.captured.joint, runs))

        def backend(graph: Any, inputs: list[Any]) -> Any:
            compiler = self.inductor.Compiler(graph, inputs)
            compiled = compiler.compile(partition)
            instance = self.captured.instance()
            model = face.schedule_of(instance, list(self.captured.reference)).peak_memory["memory"]
            self.peaks = (model, compiler.account().peak)
            return compiled

        def note(nodes: list[Any]) -> list[Any]:
            return self._note(nodes)  # the configuration copies a method together with its object

        self.torch._dynamo.reset()
        with self.capture.dynamo_settings(), config.patch(_post_fusion_custom_pass=note, fx_graph_cache=False):
            self.torch.compile(self.module, backend=backend, dynamic=False)(*self.args)

    def _note(self, nodes: list[Any]) -> list[Any]:
        """Note the operators of each kernel."""
        intermediate: Any = import_module("torch._inductor.ir")
        found: list[tuple[bool, Signature]] = []
        for node in nodes:
            if type(node).__name__ == "NopKernelSchedulerNode" or isinstance(node.node, intermediate.MultiOutput):
                continue
            parts = [part.node for part in node.get_nodes() if part.node is not None]
            origins = {origin for part in parts for origin in part.get_origins() if origin.op == "call_function"}
            names, library = [str(origin.target) for origin in origins], bool(node.is_extern())
            if library or names:  # no copy of an argument
                # What a kernel reads from the backward of a convolution is one of its origins, too.
                found.append((library, _signature(name for name in names if library or name != CONVOLUTIONS)))
        self.scheduled.append(found)
        return nodes

    def modelled(self) -> Iterator[list[tuple[bool, Signature]]]:
        """Yield the kernels of forward and backward as the model has them."""
        joint, fusion = self.captured.joint, self.captured.fusion
        turn = self.captured.reference.index("@backward")
        for part in (self.captured.reference[:turn], self.captured.reference[turn + 1 :]):
            found: list[tuple[bool, Signature]] = []
            inlined: dict[str, tuple[str, ...]] = {}
            for name in part:
                group = fusion.groups[name]
                if not group.members:  # copies for convolutions
                    continue
                if not group.required:
                    inlined.update(dict.fromkeys(group.task.writes, group.members))
                    continue
                library = fusion.kinds.get(group.task.node) == "library" and len(group.members) == 1
                members = set(group.members)
                for value in group.task.reads:
                    if library and value in inlined:
                        found.append((False, self._operators(inlined.pop(value))))
                    elif value in inlined:
                        members.update(inlined[value])
                if not joint.nodes[group.task.node].effect:
                    found.append((library, self._operators(members)))
            yield found

    def _operators(self, members: Any) -> Signature:
        nodes = self.captured.joint.nodes
        return _signature(nodes[member].operator for member in members)


def _signature(operators: Any) -> Signature:
    views: Any = import_module("torch").ops.aten
    plain = (name for name in operators if not name.startswith(IGNORED) and "getitem" not in name)
    found = []
    for name in plain:
        packet = getattr(views, name.split(".")[1], None) if name.startswith("aten.") else None
        schema = getattr(getattr(packet, "default", None), "_schema", None)
        if schema is None or not any(kept.alias_info is not None for kept in schema.returns):
            found.append(name)
    return tuple(sorted(found))


def run(arguments: list[str] | None = None) -> None:
    """Compare, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_fusion")
    parser.add_argument("--networks", nargs="*", choices=tuple(NETWORKS), default=SHOWN)
    parser.add_argument("--scale", choices=("small", "full"), default="full")
    asked = parser.parse_args(arguments)
    rows: list[tuple[str, ...]] = []
    for name in asked.networks:
        comparison = Comparison(name, asked.scale)
        comparison.run()
        for part, model, real in zip(("forward", "backward"), comparison.modelled(), comparison.scheduled, strict=True):
            mine, its = (Counter(key for library, key in kernels if not library) for kernels in (model, real))
            counts = [f"{sum(library for library, _ in kernels)}" for kernels in (model, real)]
            same = sum((mine & its).values())
            share = f"{comparison.peaks[0] / comparison.peaks[1]:.3f}" if part == "forward" else ""
            rows.append((name, part, *counts, f"{mine.total()}", f"{its.total()}", f"{same}", share))
            sys.stderr.write(f"{rows[-1]}\n")
    head = ("network", "", "library: model", "Inductor", "kernels: model", "Inductor", "same", "bytes")
    table("The fusion model", head, rows)


if __name__ == "__main__":
    run()
