"""Completion is installed with one command, once."""

import shutil
import subprocess

import pytest

from remat.cli.completion import LINES


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", ".config/fish/config.fish")]
)
def test_it_is_added_once(run, tmp_path, monkeypatch, shell, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ZDOTDIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("alias x=y")
    outcome = run("completion", "--install")
    assert outcome.code == 0
    assert str(path) in outcome.out
    assert path.read_text() == f"alias x=y\n{LINES[shell]}\n"
    assert "already" in run("completion", shell, "--install").out
    assert path.read_text().count(LINES[shell]) == 1
    assert run("completion").out == f"{LINES[shell]}\n"


def test_links_stay_links(run, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "kept").write_text("")
    (tmp_path / ".bashrc").symlink_to(tmp_path / "kept")
    assert run("completion", "bash", "--install").code == 0
    assert (tmp_path / ".bashrc").is_symlink()
    assert (tmp_path / "kept").read_text() == f"{LINES['bash']}\n"


def test_unknown_shells_and_unwritable_files_are_refused(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    assert "bash, fish, zsh" in run("completion").err
    assert run("completion").code == 2
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").mkdir()
    outcome = run("completion", "bash", "--install")
    assert outcome.code == 2
    assert "cannot write" in outcome.err


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_takes_the_line():
    done = subprocess.run(
        ["bash", "-c", f"remat() {{ echo 'complete -F _x remat'; }}; {LINES['bash']}; complete -p remat"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "complete -F _x remat"
