"""The training script in examples/ runs, and its checkpoints change no gradient."""

import re
import runpy
import sys

from tests import places


def test_a_training_script_applies_decisions(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train_with_checkpoints.py", "--budget", "60%"])
    runpy.run_path(str(places.ROOT / "examples" / "train_with_checkpoints.py"), run_name="__main__")
    again, saved, equal, first, last = capsys.readouterr().out.splitlines()
    assert again != "segments that run again: []"
    without, with_them = map(float, re.findall(r"([\d.]+) MB", saved))
    assert with_them < without
    assert equal == "equal gradients: True"
    assert float(last.split()[-1]) < float(first.split()[-1])
