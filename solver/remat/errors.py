"""The exception tree: everything remat raises on purpose is a `RematError`."""

from __future__ import annotations

from collections.abc import Sequence

from remat.messages import LONGEST_PATH, one_line


class RematError(ValueError):
    """Base of all errors that name something the caller can mend.

    Its text is one printable line of at most `remat.messages.LONGEST_MESSAGE` characters, whatever the message quotes.
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
        What is wrong, with the figure and the remedy.
    path : str
        JSON path of the offending place (``$.stages[3].forward_time``); empty when there is none. Long keys in it are
        elided.
    more : sequence of str
        What else is wrong in the document, a line each: notes of the exception, which a traceback shows.
    """

    def __init__(self, message: str, path: str = "", more: Sequence[str] = ()) -> None:
        path = one_line(path, LONGEST_PATH)
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.more = tuple(map(one_line, more))
        for line in self.more:
            self.add_note(line)


class ScheduleForInstanceError(InstanceError):
    """A schedule is given where an instance is wanted."""


class OptionError(RematError):
    """An argument (algorithm, option, budget, limit) cannot be used.

    Parameters
    ----------
    message : str
        What is wrong, with the figure and the remedy; it names neither a flag of the command line nor the argument.
    argument : str, optional
        The argument of the library's function, such as ``budget``. The text of the error begins with it; the command
        line puts its flag there.
    option : str, optional
        The option of the algorithm, instead.
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
    """An algorithm has failed: a bug in the algorithm, never in the input.

    Attributes
    ----------
    package : str
        The importable package that the algorithm is of; empty where that is not known.
    """

    def __init__(self, message: str, package: str = "") -> None:
        super().__init__(message)
        self.package = package


class ClaimError(AlgorithmError):
    """An algorithm's claim and the verifier disagree."""
