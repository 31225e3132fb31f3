"""Orders that deadlock if transfers block both devices."""

from __future__ import annotations

import pytest

from remat.bridges.pipelining.layout import check_layout
from remat.bridges.pipelining.orders import rows_of
from remat.bridges.pipelining.rendezvous import Blocked, rendezvous_deadlock, told, with_transfers
from tests.bridges.pipelining.cases import named

# Rule, devices, micro-batches: does it hang one by one, does it hang in groups.
KNOWN = [
    ("gpipe", 2, 4, False, False),
    ("chimera", 2, 4, True, False),
    ("gpipe", 3, 6, False, False),
    ("eager", 3, 6, True, False),
    ("interleaved", 3, 6, True, True),
    ("gems", 4, 4, False, False),
    ("chimera", 4, 4, True, False),
    ("gems", 4, 8, False, False),
    ("chimera", 4, 8, True, False),
    ("gpipe", 6, 12, False, False),
    ("interleaved", 6, 12, True, True),
    ("chimera", 8, 16, True, False),
    ("gpipe", 4, 8, False, False),
    ("gems", 4, 8, False, False),
    ("1f1b", 4, 8, True, False),
    ("eager", 4, 8, True, False),
    ("interleaved", 4, 8, True, True),
    ("interleaved", 4, 4, True, False),
    ("zb-h1", 4, 8, True, False),
]


@pytest.mark.parametrize(("rule", "devices", "batches", "single", "grouped"), KNOWN)
def test_named_orders_hang_as_expected(rule: str, devices: int, batches: int, single: bool, grouped: bool) -> None:
    orders = named(rule, devices, batches)
    names = [f"gpu{device}" for device in range(devices)]
    for in_groups, hangs in ((False, single), (True, grouped)):
        cycle = rendezvous_deadlock(orders, grouped=in_groups)
        assert (cycle is not None) is hangs
        if cycle is not None:
            check_cycle(cycle, devices)
            text = told(cycle, names)
            assert text.startswith(f"{cycle[0].transfer} on {names[cycle[0].rank]} waits for ")
            assert text.endswith(f" waits for {cycle[0].transfer} on {names[cycle[0].rank]}")


def check_cycle(cycle: tuple[Blocked, ...], devices: int) -> None:
    """Ranks in a cycle are different, and each one's transfer has its other end on the next one."""
    ranks = [blocked.rank for blocked in cycle]
    assert len(set(ranks)) == len(ranks) > 1
    assert set(ranks) <= set(range(devices))


def test_the_other_end_is_on_the_next_rank() -> None:
    layout = check_layout(rows_of(named("interleaved", 4, 8)))
    cycle = rendezvous_deadlock(named("interleaved", 4, 8), grouped=True)
    assert cycle is not None
    for blocked, following in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        assert layout.home[blocked.transfer.stage] == blocked.rank
        assert layout.home[layout.other_end(blocked.transfer).stage] == following.rank


def test_groups_are_split_by_idle_cells() -> None:
    layout = check_layout(rows_of(named("1f1b", 2, 2)))
    first = [" ".join(map(str, cells)) for cells in with_transfers(layout, grouped=True).rows]
    assert first[0] == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
    assert first[1] == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"
    alone = [" ".join(map(str, cells)) for cells in with_transfers(layout, grouped=False).rows]
    assert alone[0] == "0F0 0SEND_F0 0F1 0SEND_F1 None 0RECV_B0 0B0 0RECV_B1 0B1"


def test_what_stays_on_a_device_is_not_sent() -> None:
    layout = with_transfers(check_layout(rows_of(named("zb-v", 2, 3))), grouped=True)
    sent = {str(cell)[:5] for cell in layout.rows[1] if "SEND" in str(cell)}
    assert sent == {"1SEND", "2SEND"}
    assert not any("1SEND_F" in str(cell) or "2SEND_B" in str(cell) for cell in layout.rows[1])
