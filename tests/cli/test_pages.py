"""`--plot page.html` of `solve` and `show`."""

import json
import re


def test_from_the_command_line(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ("example:resnet50", "-b", "1GiB", "-a", "rotor", "-o", "s.json", "--plot", "plan.html")
    assert run("solve", *asked).code == 0
    assert run("show", "s.json", "--plot", "again.html").code == 0
    heads = [
        json.loads(re.search(r'id="head">(.*?)</script>', (tmp_path / name).read_text(), re.DOTALL)[1])
        for name in ("plan.html", "again.html")
    ]
    assert heads[0] == heads[1]
    failed = run("show", "s.json", "--plot", "again.html", "--view", "values")
    assert failed.code == 2
    assert "an .html page" in failed.err
