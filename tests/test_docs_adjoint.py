"""docs/how-to/adjoint.md shows what its blocks print, and what its commands answer."""

import contextlib
import importlib.util
import io
import re
import shlex

import pytest

import remat
from remat.cli.main import main
from tests import places

FOLDER = places.DOCS / "how-to"
PAGE = (FOLDER / "adjoint.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_python_blocks_print_what_their_comments_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the blocks write files
    names, printed = {}, io.StringIO()
    installed = importlib.util.find_spec("checkpoint_schedules") is not None
    blocks = [block for block in BLOCKS if installed or "to_checkpoint_schedules" not in block]
    assert len(blocks) >= 4
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, names)
    lines = printed.getvalue().splitlines()
    assert len(lines) >= 5
    for line in lines:
        assert f"# {line}\n" in PAGE
    # The adjoint of the loop, straight on.
    state, expected = 1.0, 1.0
    for step in range(1000):
        expected *= 1.0 if step == 999 else 1 + 0.002 * state
        last = state
        state += 0.001 * state * state
    assert f"{expected * (1 + 0.002 * last):.4f}" in PAGE


def test_streamed_algorithms_are_listed():
    listed = re.search(r"These algorithms can be streamed: (.*?)\.", PAGE, flags=re.DOTALL)
    assert listed is not None
    named = set(re.findall(r"`([a-z-]+)`", listed.group(1)))
    assert named == {algorithm.name for algorithm in remat.algorithms(kind="adjoint") if algorithm.stream}


@pytest.mark.slow  # `make docs-test` runs it, too
def test_the_shell_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = PAGE.split("    remat generate", 1)[1].split("\n\n", 1)[0]
    commands = [line for line in ("remat generate" + block).replace("\\\n", " ").splitlines() if line.strip()]
    assert len(commands) == 5
    answers = []
    for command in commands:
        words = shlex.split(command, comments=True)
        assert words[0] == "remat"
        capsys.readouterr()
        assert main(words[1:]) == 0
        answers.append(capsys.readouterr().out)
    shown = PAGE.split("    algorithm       h-revolve", 1)[1].split("\n\n", 1)[0]
    for line in ("    algorithm       h-revolve" + shown).splitlines():
        assert line.strip() == "..." or line[4:] in answers[1]
    assert "9405 s" in answers[2]
    assert answers[3].startswith("checkpoint x0 to disk\nadvance 0 -> 20\n")
    assert "verdict         ok" in answers[4]


@pytest.mark.parametrize("link", re.findall(r"\]\(([a-z_/.-]+\.md)\)", PAGE))
def test_links_lead_to_files(link):
    assert (FOLDER / link).is_file()
