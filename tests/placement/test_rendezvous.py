"""Test the order of rendezvous if a device has several pending transfers."""

import pytest

from remat.placement.rendezvous import Meetings, Stuck, Transfer

LENGTHS = (5, 3, 1, 2)
"""Of one operation a device; the last device's reads what all others make."""


def play(mode, *, swapped=False):
    """Return when the transfers from the first three devices to the last begin, and when that one's operation does."""
    transfers = [Transfer(maker, 3, maker, 3, (), 10, 0) for maker in range(3)]
    if swapped:  # and the first device waits for the last one's result before it begins
        transfers.append(Transfer(3, 0, 3, 0, (), 10, 0))
    waits = [[transfer.first_reader for transfer in transfers].count(operation) for operation in range(4)]
    played = Meetings(
        [0, 1, 2, 3, 4],
        transfers,
        missing=waits,
        followers=[[] for _ in range(4)],
        receivers=[[transfer.first_reader] for transfer in transfers],
        work=lambda operation, begin, /: begin + LENGTHS[operation],
        mode=mode,
    ).play()
    return played if isinstance(played, Stuck) else (played.sent, played.started[3])


@pytest.mark.parametrize(
    ("mode", "sent", "started"),
    [
        ("blocking", [5, 3, 1], 15),  # each on a separate link
        ("rendezvous", [5, 15, 25], 35),  # in the order in which the last device comes to them
        ("grouped", [21, 11, 1], 31),  # whichever was ready first
    ],
)
def test_transfers_are_sent_in_the_order_of_their_mode(mode, sent, started):
    assert play(mode) == (sent, started)


@pytest.mark.parametrize("mode", ["rendezvous", "grouped"])
def test_devices_that_wait_for_each_other(mode):
    found = play(mode, swapped=True)
    assert isinstance(found, Stuck)
    assert set(found.cycle) == {0, 3}
