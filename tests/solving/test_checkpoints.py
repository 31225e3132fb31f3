"""Checkpoints in the words of a chain: inputs of recomputed stages that stay from the first forward to the second."""

import re

import pytest

import remat
from remat.solving.decisions.checkpoints import checkpoints_of
from remat.solving.decisions.words import decision_words


def recounted(result):
    """Walk the steps: stages whose second forward reads an input that was not dropped since the first one."""
    dropped, first, found = {}, {}, set()
    for number, step in enumerate(result.to_dict()["steps"]):
        named = re.fullmatch(r"Fe?([0-9]+)(\.[0-9]+)?", step.get("run", ""))
        if named is not None:
            stage = int(named[1])
            if stage not in first:
                first[stage] = number
            elif stage not in found and dropped.get(f"x{stage - 1}", -1) < first[stage]:
                found.add(stage)
            else:
                dropped[f"x{stage - 1}"] = number  # later runs decide nothing
        gone = step.get("drop", ())
        dropped |= dict.fromkeys([gone] if isinstance(gone, str) else gone, number)
    return found


@pytest.mark.parametrize("name", ["periodic", "revolve-chain", "chain-best", "rotor"])
@pytest.mark.parametrize("budget", ["60%", "80%"])
def test_checkpoints_are_those_of_the_steps(name, budget):
    result = remat.solve(remat.example("resnet50"), algorithm=name, budget=budget)
    stages = [stage for stage, _ in checkpoints_of(result)]
    assert stages
    assert set(stages) == recounted(result)


def test_the_sentence_names_what_is_kept():
    stages = [{"forward_time": 1, "backward_time": 2, "output_size": 4, "saved_size": 9}] * 6
    given = {"schema": "remat.instance/2", "kind": "chain", "input_size": 4, "stages": stages}
    result = remat.solve(given, algorithm="periodic", options={"segments": 2}, budget=None)
    words = list(decision_words(result))
    assert "checkpoint the input of stage 1 (4 B)" in words, words
    assert not any("checkpoint" in text for text in decision_words(remat.solve(given)))
