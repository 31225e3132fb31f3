from __future__ import annotations

from remat.generate.draw import Draw


def test_the_sequence_is_fixed() -> None:
    # The Mersenne Twister's first outputs for seed 0 are .8444, .7579, .4205, .2589, .5112, .4049.
    draw = Draw(0)
    assert [draw.integer(1, 1000) for _ in range(6)] == [845, 758, 421, 259, 512, 405]


def test_ranges_include_both_ends_and_never_more() -> None:
    draw = Draw(3)
    assert {draw.integer(2, 4) for _ in range(200)} == {2, 3, 4}
    assert all(0 <= draw.integer(0, 2**62) <= 2**62 for _ in range(200))
    assert draw.integer(7, 7) == 7


def test_chances_of_zero_and_one_are_certain() -> None:
    draw = Draw(1)
    assert not any(draw.chance(0) for _ in range(100))
    assert all(draw.chance(1) for _ in range(100))
    assert {draw.size(1, 9, 1.0) for _ in range(20)} == {0}


def test_pick_reaches_every_item() -> None:
    draw = Draw(5)
    assert {draw.pick("abc") for _ in range(100)} == set("abc")
