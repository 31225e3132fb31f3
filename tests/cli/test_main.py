from __future__ import annotations

import errno
import io
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

import remat
from remat.cli import main as main_module
from remat.cli.io_session import ExitCode
from remat.cli.main import COMMANDS, HELP, RESERVED, main
from tests.cli.helpers import CHAIN, Run, Save, Zoo

HEAVY = ("numpy", "pydantic", "networkx", "ortools", "pulp", "rich", "importlib.metadata", "dataclasses", "numba")


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_teaches_by_examples(run: Run, arguments: list[str]) -> None:
    outcome = run(*arguments)
    assert outcome.code == 0
    assert "remat solve example:resnet50 --budget 1GiB" in outcome.out
    assert all(name in outcome.out for name in COMMANDS)
    assert not any(f"  {name}  " in outcome.out for name in RESERVED)
    assert "remat completion --install" in outcome.out


def test_help_imports_nothing_but_click() -> None:
    code = (
        "import sys\nfrom remat.cli.main import main\nassert main(['--help']) == 0\n"
        f"sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    answer = python(code)
    assert answer.returncode == 0
    assert answer.stderr == ""
    assert "Usage: remat" in answer.stdout


@pytest.mark.parametrize("arguments", [["solve", "--help"], ["generate", "tree", "--help"], ["verify", "--help"]])
def test_help_of_a_command_imports_no_solver(arguments: list[str]) -> None:
    heavy = ("networkx", "ortools", "pulp", "rich", "numpy", "pydantic", "remat_algorithms")
    answer = python(
        f"import sys\nfrom remat.cli.main import main\nassert main({arguments!r}) == 0\n"
        f"sys.stderr.write(' '.join(name for name in {heavy!r} if name in sys.modules))"
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_every_command_of_the_table_exists(run: Run) -> None:
    for name in COMMANDS:
        outcome = run(name, "--help")
        assert outcome.code == 0
        assert outcome.out.startswith(f"Usage: remat {name}")


def test_version_is_printed(run: Run) -> None:
    assert run("--version").out == f"remat {remat.__version__}\n"


def test_module_is_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["remat", "--version"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("remat", run_name="__main__")
    assert (stop.value.code, capsys.readouterr().out) == (0, f"remat {remat.__version__}\n")


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_are_refused(run: Run, name: str) -> None:
    run(name, "x.json").assert_refused(f"{name!r} is reserved for a later release")


def test_unknown_command_gets_a_suggestion(run: Run) -> None:
    run("slove", "x.json").assert_refused("unknown command 'slove'", "did you mean 'solve'?")
    run("zzzz").assert_refused("it is one of solve, verify, compare, plan, sweep, diff, show, decisions, algorithms")


def test_unknown_options_get_a_suggestion(run: Run, tiny: str) -> None:
    run("--frob").assert_refused("--frob", "remat --help")
    run("solve", tiny, "--budgt", "3").assert_refused("--budgt", "--budget", "remat solve --help")
    run("solve").assert_refused("INSTANCE", "remat solve --help")
    run("solve", tiny, "other").assert_refused("other")


def test_internal_errors_are_one_line(run: Run, tiny: str, zoo: Zoo) -> None:
    def crash(problem: object, options: object, context: object) -> None:
        raise RuntimeError("first\nsecond")

    zoo("crash", crash)
    outcome = run("solve", tiny, "-a", "crash")
    assert outcome.code == ExitCode.INTERNAL
    assert outcome.err.count("\n") == 1
    assert "crash failed: RuntimeError: first second (a bug in the algorithm" in outcome.err
    assert "run it again with -v" in outcome.err


def test_internal_errors_with_traceback(run: Run, tiny: str, zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(problem: object, options: object, context: object) -> None:
        raise RuntimeError("deep")

    zoo("crash", crash)
    outcome = run("solve", tiny, "-a", "crash", "-v")
    assert outcome.code == ExitCode.INTERNAL
    assert "Traceback" in outcome.err
    assert outcome.err.splitlines()[-1].startswith("Error: crash failed: RuntimeError: deep (a bug in the algorithm")
    monkeypatch.setenv("REMAT_DEBUG", "1")
    assert main(["solve", tiny, "-a", "crash"]) == ExitCode.INTERNAL


def caused(error: BaseException, cause: BaseException) -> BaseException:
    """Return an error with a cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (caused(RuntimeError("Error calling __set_name__"), KeyboardInterrupt()), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (MemoryError(), 1, "out of memory"),
        (click.ClickException("odd"), 2, "odd"),
        (BrokenPipeError(), 141, ""),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "cannot write the output: No space left on device"),
    ],
)
def test_outcomes_have_exit_codes(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fail(*arguments: object) -> int:
        raise error

    monkeypatch.setattr(main_module, "_run", fail)
    outcome = run("solve")
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err == (f"Error: {message}\n" if message else "")


@pytest.mark.parametrize("code", [0, None, 3, "goodbye"])
def test_an_algorithm_does_not_choose_the_exit_code(run: Run, tiny: str, zoo: Zoo, code: object) -> None:
    def leave(problem: Any, options: Any, context: Any, budgets: Any = None) -> Any:
        sys.exit(code)  # type: ignore[arg-type]

    zoo("leaver", leave)
    for command in (("solve",), ("sweep",), ("solve", "--max-overhead", "20%")):
        outcome = run(*command, tiny, "-a", "leaver")
        assert outcome.code == ExitCode.INTERNAL
        assert outcome.out == ""
        assert f"leaver asked to end the program, with code {code!r} (a bug in the algorithm" in outcome.err
    with pytest.raises(RuntimeError, match="leaver asked to end the program"):
        remat.solve(tiny, algorithm="leaver")


def test_options_do_not_choose_the_exit_code_either(run: Run, tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remat.plugin.selection.candidates", lambda *_, **more: sys.exit(0))
    outcome = run("solve", tiny)
    assert (outcome.code, outcome.out) == (ExitCode.INTERNAL, "")
    assert "asked to end the program, with code 0" in outcome.err


HOSTILE = "a\x1b[31m\x9b31m\u202egnp\x7f\x00\r=1+1"


def test_json_and_tables_steer_no_terminal(run: Run, save: Save) -> None:
    stages = [stage | {"name": HOSTILE} for stage in CHAIN["stages"][:1]] + CHAIN["stages"][1:]
    path = save({**CHAIN, "name": HOSTILE, "stages": stages})
    formats = {"solve": ("table", "json"), "show": ("table", "json"), "sweep": ("table", "csv"), "compare": ("json",)}
    for command, listed in formats.items():
        for format_ in listed:
            more = ("-a", "keep-all") if command != "show" else ()
            outcome = run(command, path, *more, "--format", format_, "-v")
            assert outcome.code == 0
            assert (outcome.out + outcome.err).replace("\n", "").isprintable(), (command, format_)
            if format_ == "json" and command == "solve":
                assert json.loads(outcome.out)["instance"]["name"] == HOSTILE


def test_messages_show_no_control_characters(run: Run, save: Save) -> None:
    run("show", save({**CHAIN, "a\x1b[31m\nb": 1})).assert_refused("$.a\\u001b[31m\\nb: unknown key")


def test_standard_error_that_is_gone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    assert main(["zzzz"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    "command", [["show", "--schema"], ["solve", "example:lecture_l5", "-a", "keep-all", "-qo", "-"]]
)
def test_full_and_closed_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", Full())
        assert main(command) == ExitCode.USAGE
        patched.setattr(sys, "stdout", None)
        assert main(command) == ExitCode.USAGE
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Error: cannot write to standard output: No space left on device",
        "Error: cannot write to standard output: it is closed",
    ]


def test_a_closed_standard_input_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["show", "-"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "Error: cannot read standard input: it is closed\n"


def test_reader_that_leaves_early_is_no_error() -> None:
    words = [sys.executable, "-m", "remat", "generate", "chain", "--family", "random", "--length", "20000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == ExitCode.BROKEN_PIPE


def test_warnings_are_lines(run: Run, tiny: str, zoo: Zoo) -> None:
    import warnings

    from remat.plugin.proposal import Proposal

    def warn(problem: object, options: object, context: object) -> Proposal:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("mind\nthe gap", stacklevel=1)
        return Proposal()

    zoo("warn", warn)
    assert "Warning: mind the gap\n" in run("solve", tiny, "-a", "warn").err
    assert run("solve", tiny, "-a", "warn", "-q").err == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("remat s", {"solve", "show", "sweep"}),
        ("remat solve x -a keep", {"keep-all"}),
        ("remat algorithms keep", {"keep-all"}),
        ("remat solve example:lecture", {"example:lecture_l5"}),
        ("remat show some", {"some"}),
        ("remat algorithms --kind ", {"chain", "adjoint", "dag", "tree", "pipeline", "join"}),
        ("remat generate chain --family ran", {"random"}),
        ("remat generate chain --family random --max-w", {"--max-workspace"}),
        ("remat generate chain --family nonsense --max-w", set()),
        ("remat nonsense x", set()),
    ],
)
def test_words_are_completed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, expected: set[str]
) -> None:
    monkeypatch.setenv("_REMAT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        main()
    assert {line.partition(",")[2] for line in capsys.readouterr().out.split()} == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_completion_script(shell: str) -> None:
    answer = python("from remat.cli.main import main; main()", _REMAT_COMPLETE=f"{shell}_source")
    assert "_REMAT_COMPLETE" in answer.stdout


def test_help_text_names_only_real_commands() -> None:
    for line in HELP.splitlines():
        if line.startswith("  remat "):
            assert line.split()[1] in COMMANDS


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "arguments", [["--help"], ["solve", "--help"], ["--version"], ["algorithms"], ["explain", "gap"]]
)
def test_a_full_disk_is_no_internal_error(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "remat", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: cannot write ")
    assert done.stderr.count("\n") == 1


def test_an_interrupt_of_the_imports_has_its_exit_code():
    code = (
        "import builtins; real = builtins.__import__\n"
        "def fake(name, *more):\n    if name == 'click': raise KeyboardInterrupt\n    return real(name, *more)\n"
        "builtins.__import__ = fake\nfrom remat.__main__ import run; raise SystemExit(run())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Error: interrupted\n")


def test_an_interrupt_in_source_text_has_its_exit_code():
    """The interpreter remembers one that left `exec`, and would end by the signal."""
    code = "from remat.cli import main as m; m._run = lambda *_: exec('raise KeyboardInterrupt'); "
    done = subprocess.run([sys.executable, "-c", f"{code}raise SystemExit(m.main([]))"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Error: interrupted\n")


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_linear_algebra_has_one_thread_unless_somebody_wants_more(given: dict[str, str], found: str) -> None:
    code = (
        "import os, sys; sys.argv = ['remat', 'show', '--examples']; from remat.cli.main import main; main()\n"
        "print(os.environ['OPENBLAS_NUM_THREADS'])"
    )
    answer = python(f"import os; os.environ.pop('OPENBLAS_NUM_THREADS', None); os.environ |= {given!r}\n{code}")
    assert answer.stdout.splitlines()[-1] == found
