"""Chains that rotor prints."""

from __future__ import annotations

from typing import Any

import pytest

import remat
from remat.bridges.rotor.importing import import_chain
from remat.errors import InstanceError
from tests.cli.helpers import Run

# As `print(chain)` writes it: two stages and the loss.
PRINTED = "[(1.5, 2.0, 10, 10, 3, 4), (2, 3, 20, 50, 0, 1), (None, 0.5, 30, 35, None, 2)]"


def write(tmp_path: Any, text: str) -> str:
    path = tmp_path / "chain.txt"
    path.write_text(text)
    return str(path)


def test_the_printed_chain_of_rotor_is_read(tmp_path: Any) -> None:
    made = import_chain(write(tmp_path, PRINTED))
    assert made["input_size"] == 10
    assert made["stages"] == [
        {
            "forward_time": 1.5,
            "backward_time": 2.0,
            "output_size": 20,
            "saved_size": 30,
            "forward_workspace": 3,
            "backward_workspace": 4,
        },
        {
            "forward_time": 2,
            "backward_time": 3,
            "output_size": 30,
            "saved_size": 5,
            "forward_workspace": 0,
            "backward_workspace": 1,
        },
    ]
    assert made["loss"] == {"time": 0.5, "workspace": 2}
    assert remat.solve(remat.load(made)).makespan == pytest.approx(9.0)
    json = PRINTED.replace("(", "[").replace(")", "]").replace("None", "null")
    assert import_chain(write(tmp_path, json))["stages"] == made["stages"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a list of entries of six numbers at line 1"),
        ("__import__('os')", "expected a list of entries"),
        ("[" * 10**5, "expected a list of entries"),
        ("[]", "at least two entries, not a list of 0"),
        ("[(1, 2), (1, 2)]", "entry 0: expected six numbers, not a list of 2"),
        (PRINTED.replace("1.5", "-1"), "entry 0: forward time: "),
        (PRINTED.replace("1.5", "None"), "entry 0: forward time: expected a number >= 0, not null"),
        (PRINTED.replace("50", "19"), "entry 1: 19 bytes saved include the output, so they are at least 20"),
        (PRINTED.replace("50", "50.5"), "entry 1: saved size: 50.5 is not a whole number of bytes"),
        (PRINTED.replace("50", "1e40"), "entry 1: saved size: "),
    ],
)
def test_broken_chains_have_their_entry(tmp_path: Any, text: str, said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        import_chain(write(tmp_path, text))
    assert said in str(caught.value)
    assert len(str(caught.value)) <= 300


def test_the_command_imports_a_chain_of_rotor(run: Run, tmp_path: Any) -> None:
    made = run("import", "rotor", write(tmp_path, PRINTED), "--time-unit", "s", "--name", "net").document
    assert (made["units"]["time"], made["name"]) == ("s", "net")
