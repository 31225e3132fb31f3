"""The exception tree: every intentional error of remat is a `RematError`."""

from __future__ import annotations

from collections.abc import Sequence

from remat.messages import LONGEST_PATH, one_line


class RematError(ValueError):
    """Base of all errors that name something the caller can fix.

    The text is one printable line of at most `remat.messages.LONGEST_MESSAGE` characters, whatever the message quotes.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class QuantityError(RematError):
    """A number, size, time, bandwidth or duration cannot be read, or is out of range."""


class InstanceError(RematError):
    """An instance, machine or schedule document cannot be used.

    Parameters
    ----------
    message : str
        The error, with the figure and the remedy.
    path : str
        JSON path of the error (``$.stages[3].forward_time``); empty if there is none. Long keys in it are shortened.
    more : sequence of str
        Further errors in the document, one line each: notes of the exception, which a traceback shows.
    """

    def __init__(self, message: str, path: str = "", more: Sequence[str] = ()) -> None:
        path = one_line(path, LONGEST_PATH)
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.more = tuple(map(one_line, more))
        for line in self.more:
            self.add_note(line)


class ScheduleForInstanceError(InstanceError):
    """A schedule was passed instead of an instance."""


class OptionError(RematError):
    """An argument (algorithm, option, budget, limit) cannot be used.

    Parameters
    ----------
    message : str
        The error, with the figure and the remedy; it names neither a command-line flag nor the argument.
    argument : str, optional
        The argument of the library's function, such as ``budget``. The text of the error begins with it; the command
        line inserts its flag there.
    option : str, optional
        The option of the algorithm, instead of an argument.
    """

    def __init__(self, message: str, *, argument: str = "", option: str = "") -> None:
        named = f"option {option}" if option else argument
        super().__init__(f"{named}: {message}" if named else message)
        self.message = one_line(message)
        self.argument = argument
        self.option = option


class MissingExtraError(RematError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, extra: str, package: str = "an optional package") -> None:
        super().__init__(f"{feature} needs {package}: pip install 'remat[{extra}]'")


class AlgorithmError(RuntimeError):
    """An algorithm has failed: a bug in the algorithm, not in the input.

    Attributes
    ----------
    package : str
        The importable package that contains the algorithm; empty if it is unknown.
    """

    def __init__(self, message: str, package: str = "") -> None:
        super().__init__(message)
        self.package = package


class ClaimError(AlgorithmError):
    """An algorithm's claim and the verifier disagree."""
