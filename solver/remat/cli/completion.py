"""`remat completion`: commands, options and names complete in the shell."""

from __future__ import annotations

import os
from pathlib import Path

import click

from remat.cli import common
from remat.cli.io_session import ExitCode, Session, emit
from remat.errors import OptionError, RematError

HELP = """Complete commands, options, algorithms, kinds and shipped instances in bash (4.4 or later), zsh and fish.

Without --install, print the line that does it; with it, add that to the file that the shell reads when it starts,
unless it is there.

\b
  remat completion --install            for the shell that $SHELL names
  remat completion zsh                  the line, to be put wherever you like

bash takes the colon of example:NAME for the end of a word unless it is told otherwise; the line for bash does."""

LINES = {
    "bash": 'COMP_WORDBREAKS=${COMP_WORDBREAKS//:}; eval "$(_REMAT_COMPLETE=bash_source remat)"',
    "zsh": 'eval "$(_REMAT_COMPLETE=zsh_source remat)"',
    "fish": "_REMAT_COMPLETE=fish_source remat | source",
}
"""What each shell has to run when it starts."""


@click.command("completion", help=HELP)
@click.argument("shell", required=False, type=click.Choice(sorted(LINES)))
@click.option("--install", is_flag=True, help="Add it to the file that the shell reads when it starts.")
@common.verbosity_options
@click.pass_obj
def command(session: Session, shell: str | None, install: bool) -> int:
    """Print the line, or install it."""
    chosen = shell or Path(os.environ.get("SHELL", "")).name
    if chosen not in LINES:
        raise OptionError(f"which shell? It is one of {', '.join(sorted(LINES))}")
    if not install:
        emit(LINES[chosen])
        return ExitCode.OK
    path = _file_of(chosen)
    try:
        known = path.read_text("utf-8") if path.exists() else ""
        if LINES[chosen] in known:
            session.emit(f"{path} has it already")
            return ExitCode.OK
        path.parent.mkdir(parents=True, exist_ok=True)
        # Added to the file as it is: it may be a link to one that is kept elsewhere.
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{'' if known.endswith(chr(10)) or not known else chr(10)}{LINES[chosen]}\n")
    except OSError as error:
        raise RematError(f"cannot write {str(path)!r}: {error.strerror}") from None
    session.emit(f"added to {path}; new shells complete, this one after: {LINES[chosen]}")
    return ExitCode.OK


def _file_of(shell: str) -> Path:
    """Return the file that a shell reads when it starts."""
    home = Path.home()
    if shell == "bash":
        return home / ".bashrc"
    if shell == "zsh":
        return Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    return Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "config.fish"
