"""Texts of a command line and values of the library: sizes, times, shares, budgets, options of algorithms."""

import contextlib
import io
import json
import os
import tempfile
import zlib
from functools import partial

import remat
from remat.bridges.placement_profiles.reading import name_of
from remat.cli import common
from remat.cli.main import main
from remat.plugin.options import make_options
from remat.plugin.registry import algorithms, find
from remat.solving.budget import apply_budget
from remat.solving.problem_setup import make_problem, read_seconds, read_share, read_whole
from remat.solving.questions.time_limits import Limits
from remat.solving.relative_budget import share_of
from remat.units import Units, parse_bandwidth, parse_duration, parse_number, parse_size, parse_time
from tests.fuzz.readers import seeds
from tests.fuzz.readers.judging import check_message
from tests.fuzz.readers.mutation import RAW
from tests.fuzz.readers.targets import Target

QUANTITIES = (
    *("8GB", "8 GiB", "1e9", "0", "3ms", "2.5us", "1h", "30", "500ms", "12GB/s", "1e3MB/ms", "80%", "0.5", "7.5%"),
    *("8Gb", "3 min", "1.5.2", "1,2,4", "device=8GB", "host=80%", "type:big=3", "=3", "12", "1e300", *RAW),
)
UNITS = (Units(), Units(time="ms"), Units(time="unit", memory="unit"))
FLAGS = (
    *("--budget", "--time-limit", "--gap", "--patience", "--max-overhead", "--max-makespan", "--option", "--seed"),
    *("--machine", "--algorithm", "--format", "--view", "--no-such-flag"),
)


def units():
    """Return the target of texts and values that are quantities."""
    instances = [remat.load(document) for document in (seeds.chain(), seeds.samples(), seeds.pipeline())]
    problems = [make_problem(instance) for instance in instances]
    problem = problems[0]
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "chain.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(seeds.chain(), file)

    def budget(value):
        for each in problems:
            apply_budget(each, value)

    readers = [
        *(lambda value, unit=unit: parse_size(value, unit) for unit in UNITS),
        *(lambda value, unit=unit: parse_time(value, unit) for unit in UNITS),
        *(lambda value, unit=unit: parse_bandwidth(value, unit) for unit in UNITS),
        parse_number,
        share_of,
        budget,
        lambda value: budget({"": value, "device": value}),
        lambda value: read_share(value, "gap"),
        lambda value: read_seconds(value, None),
        lambda value: read_whole(value, "seed", 0),
        lambda value: Limits.of(value, None, problem),
        lambda value: Limits.of(None, value, problem),
    ]
    texts = [
        parse_duration,
        lambda text: budget(common.split_budgets((text,))),
        lambda text: common.split_numbers(text, "devices"),
        lambda text: common.split_assignments("--option", (text,)),
        lambda text: find(text, "chain"),
        lambda text: name_of(text, "x"),
    ]

    def read(data):
        text = data.decode("utf-8", "surrogateescape")
        values = [text, *_value(text)]
        failures = []
        for reader in readers:
            for value in values:
                _try(reader, value, failures)
        for reader in texts:
            _try(reader, text, failures)
        if "\0" not in text and len(text) < 10_000:
            flag = FLAGS[zlib.crc32(data) % len(FLAGS)]
            _command_line(["solve", path, "-a", "keep-all", f"{flag}={text}"])
        for error in failures:
            if check_message(str(error)):
                raise error

    words = ("GB", "GiB", "ms", "us", "%", "/s", "e9", "type:", "device", "host", "min")
    return Target("units", read, tuple(text.encode() for text in QUANTITIES), words, tree=False)


def _value(text):
    """Return what a text is as JSON: a program may give numbers, lists, anything."""
    try:
        return [json.loads(text)]
    except (ValueError, RecursionError):
        return []


def _try(reader, value, failures):
    try:
        reader(value)
    except remat.RematError as error:
        failures.append(error)


def _command_line(arguments):
    """Run the command line; an error must be one short line and not an internal error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    said = err.getvalue()
    assert code in (0, 2, 3, 4), f"exit code {code}: {said[:300]}"
    for line in said.splitlines() if code == 2 else ():
        wrong = check_message(line)
        assert not wrong, f"{wrong}: {line[:200]}"
    assert code != 2 or len(said.splitlines()) == 1, f"{len(said.splitlines())} lines: {said[:300]}"


def options():
    """Return the target of options of algorithms: an object, name of an algorithm -> its options."""
    known = {algorithm.name: algorithm for algorithm in algorithms()}
    models = {name: algorithm.load_options() for name, algorithm in known.items()}
    names = sorted({key for model in models.values() if model is not None for key in model.model_fields})

    def read(data):
        given = json.loads(data.decode("utf-8", "replace"))
        failures = []
        for name, options in given.items() if isinstance(given, dict) else ():
            if name in known and isinstance(options, dict):
                reader = partial(make_options, known[name])
                _try(reader, options, failures)
                _try(reader, {key: str(value)[:60_000] for key, value in options.items()}, failures)
        for error in failures:
            if check_message(str(error)):
                raise error

    def read_json(data):
        try:
            read(data)
        except (json.JSONDecodeError, RecursionError):  # options come from a program, or from a command line
            return
        except ValueError as error:
            if isinstance(error, remat.RematError) or "digits" not in str(error):
                raise

    documents = [
        {name: {key: field.default for key, field in model.model_fields.items() if _is_plain(field.default)}}
        for name, model in models.items()
        if model is not None
    ]
    return Target("options", read_json, seeds.encoded(*documents), (*names, *known))


def _is_plain(value):
    return value is None or isinstance(value, (bool, int, float, str))
