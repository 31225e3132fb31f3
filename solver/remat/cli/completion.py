"""`remat completion`: shell completion of commands, options and names."""

from __future__ import annotations

import os
from pathlib import Path

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError, RematError

HELP = """Complete commands, options, algorithms, kinds and shipped instances in bash (4.4 or later), zsh and fish.

Print the line that enables completion. With --install, add this line to the shell's startup file, once.

\b
  remat completion --install            for the shell that $SHELL names
  remat completion zsh                  print the line for zsh

By default, bash ends a word at the colon of example:NAME; the line for bash changes this."""

LINES = {
    "bash": 'COMP_WORDBREAKS=${COMP_WORDBREAKS//:}; eval "$(_REMAT_COMPLETE=bash_source remat)"',
    "zsh": 'eval "$(_REMAT_COMPLETE=zsh_source remat)"',
    "fish": "_REMAT_COMPLETE=fish_source remat | source",
}
"""The startup line of each shell."""


@click.command("completion", help=HELP)
@click.argument("shell", required=False, type=click.Choice(sorted(LINES)))
@click.option("--install", is_flag=True, help="Add the line to the shell's startup file.")
@common.verbosity_options
@click.pass_obj
def command(session: Session, shell: str | None, install: bool) -> int:
    """Print the line, or install it."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in LINES:
        raise OptionError(f"name the shell: {', '.join(sorted(LINES))}")
    if not install:
        emit(LINES[chosen])
        return ExitCode.OK
    path = _file_of(chosen)
    try:
        known = path.read_text("utf-8") if path.exists() else ""
        if LINES[chosen] in known:
            session.emit(f"{path} already contains the line")
            return ExitCode.OK
        path.parent.mkdir(parents=True, exist_ok=True)
        # Append instead of replacing the file: it may be a link to a file in another folder.
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{'' if known.endswith(chr(10)) or not known else chr(10)}{LINES[chosen]}\n")
    except OSError as error:
        raise RematError(f"cannot write {str(path)!r}: {error.strerror}") from None
    session.emit(f"added to {path}; new shells have completion, this one after: {LINES[chosen]}")
    return ExitCode.OK


def _file_of(shell: str) -> Path:
    """Return the startup file of a shell."""
    home = Path.home()
    if shell == "bash":
        return home / ".bashrc"
    if shell == "zsh":
        return Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "config.fish"
