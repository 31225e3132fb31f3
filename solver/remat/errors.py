"""The exception tree: everything remat raises on purpose is a `RematError`."""

from __future__ import annotations


class RematError(ValueError):
    """Base of all errors that name something the caller can mend."""


class InstanceError(RematError):
    """An instance, machine or schedule document cannot be used.

    Parameters
    ----------
    message : str
        What is wrong, with the figure and the remedy.
    path : str
        JSON path of the offending place (``$.stages[3].forward_time``); empty when there is none.
    """

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class OptionError(RematError):
    """An argument (algorithm, option, budget, limit) cannot be used."""


class MissingExtraError(RematError):
    """A feature needs a package that is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs an optional package: pip install 'remat[{extra}]'")


class ClaimError(RuntimeError):
    """An algorithm's claim and the verifier disagree: a bug in the algorithm, never in the input."""
