"""docs/out_of_core.md shows what the commands print."""

import re
import shlex
from pathlib import Path

from remat.cli.main import main
from tests import places

PAGE = (places.DOCS / "out_of_core.md").read_text()


def test_the_page_shows_true_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names, blocks = re.findall(r"`(\w+\.json)`[^`]*?:\n", PAGE), re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert names == ["disk.json", "tree.json"]
    for name, block in zip(names, blocks, strict=True):
        Path(name).write_text(block)
    commands = re.findall(r"^    \$ remat (.*)\n((?:    .*\n)+)", PAGE, re.MULTILINE)
    assert len(commands) == 2
    for command, shown in commands:
        assert main(shlex.split(command)) == 0
        printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
        assert [line for line in map(str.strip, shown.splitlines()) if line not in printed] == []
