"""The blocks of a page: indented or fenced, with what a comment before them says of them."""

import re
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = ("remat", "make", "pip", "python", "eval", "git")
"""First words of blocks that are lines of shell."""

KINDS = ("file", "part", "prints", "usage", "skip")
"""Directives that set the `kind` of a block; a block has at most one of them."""

MORE = ("run", "exit", "slow", "mask")
"""Directives with further options of a block."""

DIRECTIVE = re.compile(r" *<!-- (\w+)(?:: (.*))? -->$")


class Unclear(Exception):
    """A block, or a comment before it, that says nothing about how it is checked."""


@dataclass
class Block:
    """A block of a page.

    Attributes
    ----------
    page : Path
    line : int
        Its first line, counted from 1.
    kind : str
        console, shell, python, json or toml; text, which is a picture; or one of `KINDS`.
    lines : list of str
        Without indentation and fences.
    indent : str
        What stands before each line on the page.
    said : dict
        Arguments of the directives.
    """

    page: Path
    line: int
    kind: str
    lines: list[str]
    indent: str = ""
    said: dict[str, list[str]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Its lines."""
        return "\n".join(self.lines) + "\n"

    def argument(self, name: str) -> str | None:
        """Return what a directive says; None where there is none."""
        return self.said[name][0] if name in self.said else None


def blocks_of(page: Path) -> list[Block]:
    """Return the blocks of a page, in their order."""
    lines = page.read_text(encoding="utf-8").split("\n")
    found: list[Block] = []
    said: dict[str, list[str]] = {}
    index, blank = 0, True
    while index < len(lines):
        line = lines[index]
        if match := DIRECTIVE.match(line):
            name, argument = match[1], match[2] or ""
            if name not in (*KINDS, *MORE):
                raise Unclear(f"{page.name}:{index + 1}: no directive {name!r}; known: {', '.join((*KINDS, *MORE))}")
            said.setdefault(name, []).append(argument)
            index += 1
            continue
        if line.startswith("```"):
            end = next(k for k in range(index + 1, len(lines)) if lines[k].startswith("```"))
            own, first, indent = lines[index + 1 : end], index + 2, ""
            language, index = line[3:].strip(), end + 1
        elif line.startswith("    ") and blank:
            end = _end(lines, index)
            own, first, indent = [inner[4:] for inner in lines[index:end]], index + 1, "    "
            language, index = "", end
        else:
            if line.strip() and said:
                raise Unclear(f"{page.name}:{index + 1}: {', '.join(said)} belongs to no block")
            blank = not line.strip()
            index += 1
            continue
        found.append(Block(page, first, _kind(f"{page.name}:{first}", own, language, said), own, indent, said))
        said, blank = {}, False
    return found


def _end(lines: list[str], first: int) -> int:
    """Return the end of an indented block; empty lines belong to it where it goes on behind them."""
    end = first
    for index in range(first, len(lines)):
        if lines[index].startswith("    "):
            end = index + 1
        elif lines[index].strip():
            break
    return end


def _kind(where: str, lines: list[str], language: str, said: dict[str, list[str]]) -> str:
    chosen = [name for name in KINDS if name in said]
    if len(chosen) > 1:
        raise Unclear(f"{where}: either {' or '.join(chosen)}")
    if chosen:
        return chosen[0]
    if language in ("python", "json", "toml", "text"):
        return language
    if any(line.startswith("$ ") for line in lines):
        return "console"
    if lines[0].split()[0] in COMMANDS:
        return "shell"
    raise Unclear(f"{where}: add the kind of this block: <!-- {' | '.join(KINDS)} -->")


@dataclass
class Command:
    """A command of a block, and the position of its output.

    Attributes
    ----------
    text : str
        As typed, lines that go on joined.
    first, end : int
        Lines of the block that are its output.
    """

    text: str
    first: int
    end: int

    @property
    def comment(self) -> str:
        """The comment after the command."""
        match = re.search(r"(?:^|\s)# (.*)$", self.text)
        return match[1] if match else ""


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a block of console or shell."""
    found: list[Command] = []
    sign = "$ " if block.kind == "console" else ""
    index = 0
    while index < len(block.lines):
        line = block.lines[index]
        if not line.startswith(sign) or not line.strip():
            if found:
                found[-1].end = index + 1
            index += 1
            continue
        text = line[len(sign) :]
        while text.endswith("\\"):
            index += 1
            text = text[:-1].rstrip() + " " + block.lines[index].strip()
        index += 1
        found.append(Command(text, index, index))
    for command in found:
        while command.end > command.first and not block.lines[command.end - 1].strip():
            command.end -= 1
    return found
