"""Run the blocks of a page in a separate folder."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests import places
from tests.printed.blocks import Block, Command, Unclear, blocks_of, commands_of
from tests.printed.comparing import REST, difference, missing_figures

LONGEST = 600
"""Seconds after which a command has failed."""

QUICK = 10
"""Seconds of a block, beyond which it has to be marked slow."""


@dataclass
class Tally:
    """The results of the blocks of a page.

    Attributes
    ----------
    run, compared : int
        Blocks that were run; commands and lines whose output was compared.
    skipped : list of (int, str)
        Line and reason.
    wrong : list of (int, str)
        Line and difference.
    slowest : list of (float, int)
        Seconds and line of blocks.
    """

    page: Path
    run: int = 0
    compared: int = 0
    skipped: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    slowest: list[tuple[float, int]] = field(default_factory=list)


class Session:
    """A folder, an environment, and one Python for the blocks of a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        binaries = Path(sys.executable).parent
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("REMAT_", "COLUMNS"))}
        self.environment = kept | {
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(
                str(places.ROOT / name) for name in ("solver", "algorithms", "tests/printed")
            ),
            "COLUMNS": "120",
            "NO_COLOR": "1",
        }
        (folder / "instances").symlink_to(places.ROOT / "instances")
        self.python: subprocess.Popen[str] | None = None

    def shell(self, command: str, given: str = "") -> tuple[int, str]:
        """Run a line; return its exit code, and what it printed."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.environment,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        return done.returncode, done.stdout

    def execute(self, block: str) -> tuple[bool, str]:
        """Execute Python with the names of the blocks before it; return whether it ended well, and what it printed."""
        if self.python is None:
            self.python = subprocess.Popen(
                [sys.executable, "-u", "-m", "driver"],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.python.stdin is not None
        assert self.python.stdout is not None
        self.python.stdin.write(json.dumps(block) + "\n")
        self.python.stdin.flush()
        answer = self.python.stdout.readline()
        ended, printed = json.loads(answer) if answer else (False, "the interpreter ended")
        return ended, printed

    def close(self) -> None:
        """End the interpreter."""
        if self.python is not None:
            self.python.communicate()


def check(page: Path, folder: Path, *, slow: bool = False, rewrite: bool = False) -> Tally:
    """Run all blocks of a page, slow ones only on request; `rewrite` writes the output into the page."""
    tally, session = Tally(page), Session(folder)
    pending: list[tuple[Block, list[str]]] = []
    try:
        for block in blocks_of(page):
            if block.kind == "text":
                continue
            reason = _reason(block, slow=slow)
            if reason:
                tally.skipped.append((block.line, reason))
                continue
            started = time.monotonic()
            for hidden in block.said.get("run", ()):
                code, printed = session.shell(hidden)
                if code:
                    tally.wrong.append((block.line, f"{hidden}: exit code {code}\n{printed}"))
            lines = _check(block, session, tally)
            tally.run += 1
            seconds = time.monotonic() - started
            tally.slowest.append((seconds, block.line))
            if lines != block.lines:
                pending.append((block, lines))
    except (Unclear, subprocess.TimeoutExpired) as error:
        tally.wrong.append((0, str(error)))
    finally:
        session.close()
    if rewrite and pending:
        _rewrite(page, pending)
    return tally


def _reason(block: Block, *, slow: bool) -> str:
    if block.kind == "skip":
        return block.argument("skip") or "no reason given"
    if "slow" in block.said and not slow:
        return "slow: docs-test-all runs it"
    return ""


def _check(block: Block, session: Session, tally: Tally) -> list[str]:
    """Check a block; return its lines as they should be."""
    if block.kind in ("console", "shell"):
        return _commands(block, session, tally)
    if block.kind == "prints":
        return _printed(block, session, tally)
    if block.kind == "python":
        ended, printed = session.execute(block.text)
        if not ended:
            tally.wrong.append((block.line, printed))
        return _shown(block, printed, tally)
    if block.kind == "file":
        (session.folder / (block.argument("file") or "")).write_text(block.text, encoding="utf-8")
        return block.lines
    problem = {"json": _of_json, "toml": _of_toml, "usage": _of_usage, "part": _of_part}[block.kind](block, session)
    if problem:
        tally.wrong.append((block.line, problem))
    return block.lines


def _commands(block: Block, session: Session, tally: Tally) -> list[str]:
    wanted = [int(code) for code in (block.argument("exit") or "").split()]
    lines: list[str] = []
    taken = 0
    for index, command in enumerate(commands_of(block)):
        code, printed = session.shell(command.text)
        should = wanted[index] if index < len(wanted) else 0
        if code != should:
            tally.wrong.append((block.line, f"{command.text}: exit code {code}, not {should}\n{printed}"))
        absent = missing_figures(command.comment, printed)
        if absent:
            tally.wrong.append((block.line, f"{command.text}: not printed: {', '.join(absent)}"))
        tally.compared += bool(command.comment and not absent)
        lines += block.lines[taken : command.first]
        lines += _compared(block, command, printed.split("\n"), tally)
        taken = command.end
    return lines + block.lines[taken:]


def _compared(block: Block, command: Command, printed: list[str], tally: Tally) -> list[str]:
    shown = block.lines[command.first : command.end]
    if not shown:
        return shown
    tally.compared += 1
    found = difference(shown, printed, block.said.get("mask", []))
    if found is None:
        return shown
    tally.wrong.append((block.line, f"{command.text}\n{found}"))
    if any(line.strip() == REST for line in shown):
        return shown
    while printed and not printed[-1].strip():
        printed = printed[:-1]
    return [line.rstrip() for line in printed]


def _printed(block: Block, session: Session, tally: Tally) -> list[str]:
    """Compare a block with what the command of its directive prints."""
    command = Command(block.argument("prints") or "", 0, len(block.lines))
    code, printed = session.shell(command.text)
    if code:
        tally.wrong.append((block.line, f"{command.text}: exit code {code}\n{printed}"))
    return _compared(block, command, printed.split("\n"), tally)


def _shown(block: Block, printed: str, tally: Tally) -> list[str]:
    """Compare the output of each `print` with the comment after it, one line each."""
    told = [
        (index, match)
        for index, line in enumerate(block.lines)
        if (match := re.match(r"( *print\(.*\))  # (.*)$", line))
    ]
    found = printed.split("\n")[:-1]
    lines = list(block.lines)
    if told and len(told) != len([line for line in block.lines if re.match(r" *print\(", line)]):
        told = []  # some print without saying what: those are loops and examples
    for (index, match), line in zip(told, found, strict=False):
        tally.compared += 1
        if match[2] != line:
            tally.wrong.append((block.line + index, f"shown:   {match[2]}\nprinted: {line}"))
            lines[index] = f"{match[1]}  # {line}"
    return lines


def _of_json(block: Block, session: Session) -> str:
    try:
        document = json.loads(block.text)
    except ValueError as error:
        return f"no JSON: {error}; a part of a document is <!-- part -->"
    if not str(document.get("schema", "")).startswith("remat.instance/"):
        return ""
    code, printed = session.shell("remat show -", block.text)
    return printed if code else ""


def _of_toml(block: Block, session: Session) -> str:
    tomllib.loads(block.text)
    return ""


def _of_part(block: Block, session: Session) -> str:
    """Check that a part of a document (without `...`) or of a program is well formed."""
    told = [re.sub(r"(?<=\}) {2,}[a-z].*$", "", line) for line in block.lines]  # the meaning of a line follows it
    text = re.sub(r",? *\.\.\.(?=\s*[\]}])", "", "\n".join(told)).strip().removesuffix(",")
    lines = ",".join(line.strip().removesuffix(",") for line in told)
    for attempt in (text, f"{{{text}}}", f"[{text}]", f"[{lines}]"):
        with contextlib.suppress(ValueError):
            json.loads(attempt)
            return ""
    try:
        ast.parse(textwrap.dedent(block.text))
    except SyntaxError as error:
        return f"not part of an example, and not valid JSON or Python: {error}"
    return ""


def _of_usage(block: Block, session: Session) -> str:
    """Lists of commands: those that are named are there."""
    for line in block.lines:
        words = line.split()
        if not words or words[0] != "remat":
            continue
        named = []
        for word in words[1:]:
            if not re.fullmatch(r"[a-z][a-z-]+", word) or len(named) == 2:
                break
            named.append(word)
        tried = [named[:count] for count in range(len(named), 0, -1)]
        if not any(session.shell(f"remat {' '.join(words)} --help")[0] == 0 for words in tried):
            return f"no such command: {line}"
    return ""


def _rewrite(page: Path, pending: list[tuple[Block, list[str]]]) -> None:
    lines = page.read_text(encoding="utf-8").split("\n")
    for block, own in reversed(pending):
        indented = [(block.indent + line).rstrip() for line in own]
        lines[block.line - 1 : block.line - 1 + len(block.lines)] = indented
    page.write_text("\n".join(lines), encoding="utf-8")
