"""The check of printed blocks: what it reads, and that it notices."""

import pytest

from tests.printed.__main__ import main, pages
from tests.printed.blocks import Unclear, blocks_of, commands_of
from tests.printed.comparing import difference, missing_figures
from tests.printed.running import check

PAGE = """# A page

<!-- file: numbers.txt -->
    1
    2

Text.

<!-- run: echo 3 >> numbers.txt -->
    $ cat numbers.txt
    1
    2
    3

    $ echo "solve time  1.5 s"
    solve time  9 s

```python
print(1 + 1)  # 2
x = 5
```

Names stay:

```python
print(x)  # 5
```

<!-- exit: 3 -->
    python -c "print('12 ms'); raise SystemExit(3)"    # 12 ms

```json
{"a": 1}
```
"""


def page(tmp_path, text):
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


def checked(tmp_path, text, **options):
    folder = tmp_path / "run"
    folder.mkdir()
    return check(page(tmp_path, text), folder, **options)


def test_every_page_says_what_its_blocks_are():
    for path in pages():
        blocks_of(path)


def test_blocks_of_a_page(tmp_path):
    found = blocks_of(page(tmp_path, PAGE))
    assert [block.kind for block in found] == ["file", "console", "python", "python", "shell", "json"]
    assert [(command.text, command.first, command.end) for command in commands_of(found[1])] == [
        ("cat numbers.txt", 1, 4),
        ('echo "solve time  1.5 s"', 6, 7),
    ]


def test_a_page_as_it_should_be(tmp_path):
    tally = checked(tmp_path, PAGE)
    assert (tally.run, tally.compared, tally.wrong) == (6, 5, [])


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        ("    2\n    3\n", "    3\n", 10),
        ("    3\n", "    3\n    4\n", 10),
        ("print(1 + 1)  # 2", "print(1 + 1)  # 3", 19),
        ("x = 5", "x = y", 19),
        ("exit: 3", "exit: 0", 30),
        ("# 12 ms", "# 13 ms", 30),
        ('{"a": 1}', '{"a": }', 33),
        ("echo 3 >>", "cat 3 >>", 10),
    ],
)
def test_what_differs_is_named(tmp_path, right, wrong, line):
    assert right in PAGE
    tally = checked(tmp_path, PAGE.replace(right, wrong, 1))
    assert tally.wrong[0][0] in (line, line + 1)


@pytest.mark.parametrize(
    ("part", "right"),
    [
        ('{"a": [1, ...]}', True),
        ('"key": {"b": 1}', True),
        ('{"run": "F1"}    frees x0 at its end\n    {"run": "B1"}', True),
        ("while not stopped:\n        go()", True),
        ('{"a": 1', False),
        ("{'a': 1,", False),
    ],
)
def test_parts_are_well_formed(tmp_path, part, right):
    tally = checked(tmp_path, f"<!-- part -->\n    {part}\n")
    assert (tally.run, not tally.wrong) == (1, right)


def test_a_page_is_rewritten(tmp_path):
    spoilt = PAGE.replace("    2\n    3\n", "    7\n", 1).replace("# 5", "# 6")
    assert len(checked(tmp_path, spoilt, rewrite=True).wrong) == 2
    assert (tmp_path / "page.md").read_text() == PAGE


@pytest.mark.parametrize(
    "text",
    [
        "    what is this?\n",
        "<!-- slowly -->\n    remat show\n",
        "<!-- skip: why -->\n\nText.\n",
        "<!-- part -->\n<!-- skip: x -->\n    a\n",
    ],
)
def test_blocks_without_a_kind_are_unclear(tmp_path, text):
    with pytest.raises(Unclear):
        blocks_of(page(tmp_path, text))


def test_lines_that_stand_for_others():
    printed = ["a", "b", "c", "d", "e"]
    for shown in (["a", "...", "e"], ["...", "c", "..."], ["a", "b", "..."], ["...", "b", "...", "d", "e"], printed):
        assert difference(shown, printed, []) is None, shown
    for shown in (["b", "..."], ["...", "d"], ["...", "c", "b", "..."], ["a", "...", "f"], ["a", "b"], [*printed, "f"]):
        assert difference(shown, printed, []) is not None, shown


def test_figures_of_comments():
    printed = "makespan  210.77 ms, peak 6.539 GiB, +9 %"
    assert missing_figures("210.77 ms, 6.539 GiB on the fullest of 8 devices, +9 %", printed) == []
    assert missing_figures("210.7 ms, 6.539 GB", printed) == ["210.7 ms", "6.539 GB"]


def test_the_command_reports_differing_blocks(tmp_path, capsys):
    assert main([str(page(tmp_path, "    $ echo a\n    b\n"))]) == 1
    assert "page.md:1: DIFFERS" in capsys.readouterr().out
    assert main([str(page(tmp_path, "<!-- slow -->\n    $ echo a\n    b\n"))]) == 0
