"""docs/reference/graphs.md and the first example of docs/explanation/dag-auto.md show what the commands print."""

import json
import re
import shlex
from pathlib import Path

import pytest
from pydantic import BaseModel

from remat.cli.main import main
from remat.instance.dag import DagInstance
from remat.instance.tasks import Parallel, Task, Value
from tests import places
from tests.oracles import referee

FOLDER = places.DOCS / "reference"
PAGE = (FOLDER / "graphs.md").read_text()
SHOWN = r"^    \$ remat (.*)\n((?:    .*\n)+)"


def assert_prints(command, shown, capsys):
    capsys.readouterr()
    assert main(shlex.split(command)) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown.splitlines() if line[4:] not in [*printed, "..."]] == []


def test_the_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("graph.json").write_text(PAGE.split("```json\n", 1)[1].split("```", 1)[0])
    page = PAGE.split("## Fields")[0]
    commands = re.findall(SHOWN, page, re.MULTILINE)
    assert [command.split()[0] for command, _ in commands] == ["solve"]
    for command, shown in commands:
        assert_prints(command, shown, capsys)


def test_the_example_of_several_devices(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = PAGE.split("## Several devices")[1]
    instance, plan = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    Path("devices.json").write_text(instance)
    Path("devices_plan.json").write_text(plan)
    (found,) = re.findall(SHOWN, page, re.MULTILINE)
    assert_prints(*found, capsys)
    steps = [step | {"start": start} for step, start in zip(json.loads(plan)["steps"], (0, 10, 60, 80), strict=True)]
    assert referee.check(in_bytes(json.loads(instance)), json.loads(plan) | {"steps": steps}).ok


def in_bytes(document):
    """Return a document with its sizes as numbers, and bandwidths per millisecond."""
    text = re.sub(r'"(\d+)GB/s"', lambda match: str(int(match[1]) * 10**6), json.dumps(document))
    units = {"GB": 10**9, "MB": 10**6}
    return json.loads(re.sub(r'"(\d+)(GB|MB)"', lambda match: str(int(match[1]) * units[match[2]]), text))


def test_the_example_of_dag_auto(capsys):
    command, shown = re.findall(SHOWN, (places.DOCS / "explanation" / "dag-auto.md").read_text(), re.MULTILINE)[0]
    # Several plans are the quickest; their peaks differ.
    assert_prints(command, re.sub(r" +peak memory .*\n", "", shown), capsys)


@pytest.mark.parametrize(
    ("heading", "model"),
    [("the instance", DagInstance), ("a value", Value), ("a task", Task), ("`parallel`", Parallel)],
)
def test_fields_and_defaults(heading, model):
    table = PAGE.split(f"| {heading} | default | |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    shown = {}
    for row in table.splitlines():
        names, default = row.split("|")[1:3]
        shown |= dict.fromkeys(re.findall(r"`(\w+)`", names), default.strip(" `"))
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    assert shown.keys() == fields.keys()
    for name, field in fields.items():
        if name == "units":
            assert ", ".join(field.default.model_dump().values()) == shown[name]
        elif field.is_required() or name in ("schema", "kind"):
            assert shown[name] == ""
        else:
            default = field.default
            said = default.model_dump(exclude_defaults=True) if isinstance(default, BaseModel) else default
            assert json.loads(shown[name]) == json.loads(json.dumps(said))


@pytest.mark.parametrize("link", re.findall(r"\]\(([a-z/.-]+\.md)[#)]", PAGE))
def test_links_lead_to_files(link):
    assert (FOLDER / link).is_file()
