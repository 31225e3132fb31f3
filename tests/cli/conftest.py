"""Running the command line in process, on small instances and a zoo of the test's own."""

from __future__ import annotations

import io
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from remat.cli.main import main
from remat.plugin import registry
from remat.plugin.registry import Algorithm
from tests.cli.helpers import CHAIN, Outcome, Run, Save, Zoo


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line with `stdin` as its standard input."""
    monkeypatch.delenv("REMAT_DEBUG", raising=False)
    monkeypatch.delenv("_REMAT_COMPLETE", raising=False)

    def call(*arguments: object, stdin: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


@pytest.fixture
def save(tmp_path: Any) -> Save:
    """Write a document (or text, or bytes) to a file, and return its path."""

    def write(content: Any, name: str = "instance.json") -> str:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def tiny(save: Save) -> str:
    """Path of a chain that needs 9 to 20 units or so."""
    return save(CHAIN, "tiny.json")


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> Zoo:
    """Register an algorithm given as a function."""
    module = types.ModuleType("zoo_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    known = dict(registry._registered())
    monkeypatch.setattr(registry, "_registered", lambda: known)

    def register(name: str, solve: Callable[..., Any], options: type[Any] | None = None, **more: Any) -> None:
        attribute = name.replace("-", "_")
        setattr(module, attribute, solve)
        if options is not None:
            setattr(module, f"{attribute}_options", options)
            more["options"] = f"{module.__name__}:{attribute}_options"
        settings = {"kinds": ("taskgraph",), "summary": "of a test", "guarantee": "heuristic"} | more
        known[name] = Algorithm(name=name, solver=f"{module.__name__}:{attribute}", **settings)

    return register


@pytest.fixture
def searches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches for what a host takes try a tenth of their changes in the fast runs, whoever asks them."""
    from remat_algorithms.offload.weights import offmate, weight_offload

    if request.node.get_closest_marker("slow") is not None:
        return
    for module in (offmate, weight_offload):

        def brief(problem: Any, options: Any, context: Any, solve: Callable[..., Any] = module.solve) -> Any:
            return solve(problem, options.model_copy(update={"evaluations": options.evaluations // 10}), context)

        monkeypatch.setattr(module, "solve", brief)
