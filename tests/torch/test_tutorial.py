"""The tutorial on PyTorch models prints what it shows."""

import re
import runpy
import sys

from tests import places

PAGE = (places.DOCS / "tutorials" / "pytorch.md").read_text(encoding="utf-8")


def test_the_tutorial_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    train, program = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    (tmp_path / "run.py").write_text(program, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        runpy.run_path(str(tmp_path / "run.py"), run_name="__main__")
    finally:
        sys.modules.pop("train", None)
    shown = PAGE.split("This prints\n", 1)[1].split("-->\n", 1)[1].split("\n\n", 1)[0]
    printed = capsys.readouterr().out
    # The solver has 30 s, so a slow machine may plan more recomputation than the page shows.
    assert [plain(line) for line in printed.splitlines()] == [plain(line.strip()) for line in shown.splitlines()]


def plain(line):
    """Return a line without its figures."""
    return re.sub(r"[0-9.]+", "0", line)
