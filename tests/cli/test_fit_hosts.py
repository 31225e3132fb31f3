"""A host for models that are trained in part, and machines whose host computes nothing."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import remat
from remat.cli import fit_remedies
from remat.generate.models.architecture import Model
from remat.generate.models.chains import chain
from remat.solving.result import Result
from tests.cli.helpers import Run, Save
from tests.cli.test_fit_model import CONFIG, SMALL, verdict_of

LORA = ("--batch", 2, "--sequence", 256, "--reserve", "1MB", "--device", "A10", "--budget", "3.5MB")
LORA += ("--lora", "rank=2", "--loss-chunks", 16)


def quickly(model: Model, options: dict[str, Any], available: int, host: int | None, deadline: float) -> Result | None:
    """Solve with one quick algorithm, in place of all that auto runs."""
    given: dict[str, Any] = fit_remedies.of_values(options) | {"config": model}
    instance = remat.load(chain(**given))
    budget = {"device": available + int(options["reserve"]), "host": host}
    found = remat.solve(instance, algorithm="pofo", budget=budget)
    return found if found.report is not None else None


def test_a_model_that_is_trained_in_part_offloads_activations(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(fit_remedies, "_solved", quickly)
    path = save(CONFIG, "config.json")
    alone = run("fit", path, *LORA, "--format", "json")
    assert alone.code == 4
    (remedy,) = [one for one in alone.document["remedies"] if "at_host" in one]
    assert remedy["kind"] == "a host for activations; parameters, gradients and optimizer states stay on the device"
    with_host = run("fit", path, *LORA, "--host", "30MB", "-o", "hosted.json")
    assert with_host.code == 0
    assert verdict_of(with_host.out)[0].startswith("fits with a host of 30 MB")
    make, solve = (shlex.split(command)[1:] for command in remedy["commands"])
    assert run(*make).code == 0
    made, hosted = (json.loads(Path(name).read_text()) for name in ("step.json", "hosted.json"))
    assert [one["name"] for one in made["machine"]["processors"]] == ["gpu"]
    assert made["machine"] == hosted["machine"]
    assert made["stages"] == hosted["stages"]
    solved = run(*solve, "--algorithm", "pofo", "--format", "json")
    assert solved.document["overhead"] == pytest.approx(remedy["extra_time_share"])


def test_a_host_that_computes_nothing_is_no_processor(run: Run, save: Save, tmp_path: Path) -> None:
    path, made = save(CONFIG, "config.json"), str(tmp_path / "step.json")
    asked = ("generate", "chain", "--config", path, "--sequence", "32", "--parameters", "any", "--states", "any")
    assert run(*asked, "--host-speed", "0", "-o", made).code == 0
    machine = json.loads(Path(made).read_text())["machine"]
    assert [one["name"] for one in machine["processors"]] == ["gpu"]
    assert [one["name"] for one in machine["memories"]] == ["device", "host"]
    run(*asked, "--host-speed", "-1").assert_refused("host-speed must be at least 0")


@pytest.mark.parametrize("more", [("--step", "foreach"), ("--optimizer", "none")])
def test_whatever_keeps_parameters_static_still_offloads_activations(
    run: Run, save: Save, more: tuple[str, ...]
) -> None:
    found = run("fit", save(CONFIG, "config.json"), *SMALL, *more, "--host", "30MB")
    assert "a host is not planned" not in found.out


def test_a_host_that_is_not_needed_is_mentioned_with_the_commands_that_use_it(
    run: Run, save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("fit", save(CONFIG, "config.json"), *LORA[:-5], "3.9MB", *LORA[-4:])
    told = run(*asked, "--host", "30MB")
    assert told.code == 0
    assert " recomputed, with " in verdict_of(told.out)[0]
    (note,) = [line for line in told.out.splitlines() if "no host is needed" in line]
    make, solve = (shlex.split(command)[1:] for command in note.partition("recompute less: ")[2].split("; "))
    assert run(*make).code == 0
    assert run(*solve, "--algorithm", "pofo").code == 0
    assert "no host is needed" not in run(*asked).out
