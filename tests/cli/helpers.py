"""Shared helpers of the command-line tests: an instance, and the outcome of a call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CHAIN = {
    "schema": "remat.instance/1",
    "kind": "chain",
    "name": "tiny",
    "units": {"time": "unit", "memory": "unit"},
    "input_size": 2,
    "stages": [
        {"forward_time": 1, "backward_time": 2, "output_size": 3, "saved_size": 4},
        {"forward_time": 2, "backward_time": 3, "output_size": 2, "saved_size": 1},
        {"forward_time": 1, "backward_time": 1, "output_size": 4, "saved_size": 2},
    ],
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    def assert_refused(self, *parts: str) -> None:
        """Assert one line on standard error, exit code 2, and an empty standard output."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.startswith("Error: ")
        assert self.err.count("\n") == 1
        assert "Traceback" not in self.err
        for part in parts:
            assert part in self.err


Run = Callable[..., Outcome]
Save = Callable[..., str]
Zoo = Callable[..., None]
