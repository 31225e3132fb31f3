"""Messages are one printable line of bounded length, including quoted texts."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import remat
from remat.errors import InstanceError, OptionError, QuantityError
from remat.messages import LONGEST_MESSAGE, LONGEST_PATH, brief, elided, listing, one_line, reason

TEXTS = st.one_of(
    st.text(), st.builds(lambda text, times: text * times, st.text(min_size=1, max_size=5), st.integers(0, 500))
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(), TEXTS),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS, st.integers(10, 400))
def test_a_short_text_is_kept_and_a_long_one_loses_its_middle(text, longest):
    found = elided(text, longest)
    assert len(found) <= longest
    if len(text) <= longest:
        assert found == text
    else:
        heads = [size for size in range(longest - 2) if text.startswith(found[:size])]
        assert any(
            found[size : size + 3] == "..." and text.endswith(found[size + 3 :])
            for size in heads
            if size >= longest // 3
        )
        assert len(found) == longest


@given(TEXTS)
@example("\x1b[31m" * 100)
@example("k " * 3000)
@example("\ud800" * 90)
def test_a_message_is_one_printable_line(text):
    found = one_line(text)
    assert len(found) <= LONGEST_MESSAGE
    assert found.isprintable()
    assert one_line(found) == found
    if len(text) <= LONGEST_MESSAGE and text.isprintable():
        assert found == text


def test_long_words_go_first():
    found = one_line(f"$.{'k' * 66_000}: unknown key; known are name and size")
    assert found.startswith("$.kkk")
    assert found.endswith("kkk: unknown key; known are name and size")
    assert "..." in found


def test_a_long_list_ends_with_a_number():
    assert listing(["a", "b"]) == "a, b"
    assert listing([]) == ""
    assert listing([f"name{number}" for number in range(500)]).endswith("name20 and 479 more")
    assert listing(["k" * 66_000, "b"], 70) == "k" * 38 + "..." + "k" * 19 + ", b"


@given(VALUES)
@example(10**5000)
@example(-(10**5000))
@example([[10**5000]])
@example("\ud800" * 60)
def test_every_value_is_shown_in_a_few_characters(value):
    assert len(brief(value)) <= 2 + 60
    assert len(one_line(brief(value))) <= LONGEST_MESSAGE


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=3))
def test_no_error_is_longer(message, path, more):
    errors = [
        remat.RematError(message),
        QuantityError(message),
        InstanceError(message, path, more),
        OptionError(message, argument=path),
        OptionError(message, option=path),
    ]
    for error in errors:
        assert len(str(error)) <= LONGEST_MESSAGE
        assert str(error).isprintable()
        for line in getattr(error, "__notes__", ()):
            assert len(line) <= LONGEST_MESSAGE
            assert line.isprintable()
    assert len(errors[2].path) <= LONGEST_PATH
    assert len(errors[3].message) <= LONGEST_MESSAGE


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", "ValueError"),
        (" \n ", "ValueError"),
        ("\n  no data \nmore", "ValueError: no data"),
        ("k" * 30, "ValueError: kkkkkkkk"),
    ],
)
def test_the_reason_of_another_programs_error_is_one_line(message, expected):
    assert reason(ValueError(message), 8) == expected


@pytest.mark.parametrize("length", [10, 66_000])
@pytest.mark.parametrize("letter", ["k", "k ", "\n", "\x1b", "\ud800", "é"])
def test_the_command_line_prints_one_line(letter, length, tmp_path, capsys):
    from remat.cli.main import main

    code = main(["solve", "example:resnet50", f"--budget={letter * length}"])
    assert code == 2
    printed = capsys.readouterr().err
    assert len(printed.rstrip("\n")) <= LONGEST_MESSAGE
    assert printed.rstrip("\n").isprintable()
