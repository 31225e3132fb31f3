"""Well-formed documents become models without pydantic's validators: the same models, and nothing else is taken."""

import copy
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import remat
from remat.documents import read_document
from remat.instance.fast_validation import plainly
from remat.instance.fields import units_scope
from remat.instance.kinds import KINDS, model_of
from remat.instance.machine import MachineModel
from remat.units import Units
from tests.instance import documents
from tests.seeds import few

DRAWN = {
    "chain": documents.chains() | documents.chains(trained=True),
    "adjoint": documents.adjoints(),
    "tree": documents.trees(),
    "join": documents.joins(),
    "pipeline": documents.pipelines(),
    "dag": documents.dags() | documents.annotated().map(lambda pair: pair[0]),
}
ODD = [
    *(None, True, False, 0, -1, 7, 2**62 + 1, 1.5, float("nan"), Decimal("2.5"), "", "3ms", "8kB", "a", "12GB/s"),
    *(
        "é",
        "\ud800",
        "x" * 1001,
        "ms",
        "unit",
        [],
        ["a"],
        ["a", "a"],
        [[]],
        [3],
        ("a",),
        {},
        {"name": "m"},
        {"time": "s"},
    ),
]


def parts(node, path=()):
    """Yield the path of each part of a document."""
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from parts(child, (*path, key))


def spoilt(draw, document):
    """Change, add or leave out a thing or two."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((0, 1, 1, 2))):
        *above, last = draw.choice([path for path in parts(document) if path])
        owner = document
        for key in above:
            owner = owner[key]
        change = draw.randrange(4)
        if change == 0 and isinstance(owner, dict):
            del owner[last]
        elif change == 1 and isinstance(owner, dict):
            owner[draw.choice(["what", "schema_", "name", "units", "machine", "static_memory"])] = copy.deepcopy(
                draw.choice(ODD)
            )
        else:
            owner[last] = copy.deepcopy(draw.choice(ODD))
    return document


def agree(model, document):
    """Assert that both validations agree on a document; return whether the fast one accepts it."""
    quick = plainly(model, document)
    try:
        slow = model.model_validate(document)
    except ValidationError:
        assert quick is None, document
        return False
    if quick is None:
        return False
    assert quick == slow
    assert repr(quick.__dict__) == repr(slow.__dict__)  # 3 is not 3.0
    assert list(quick.__dict__) == list(slow.__dict__)
    assert quick.model_fields_set == slow.model_fields_set
    assert quick.model_dump() == slow.model_dump()
    return True


@pytest.mark.parametrize("count", few(15, 60))
@pytest.mark.parametrize("kind", KINDS)
def test_drawn_documents_become_the_models_of_pydantic(kind, count):
    model = model_of(kind)

    @settings(deadline=None, max_examples=count)
    @given(DRAWN[kind], st.integers(0, 2**32))
    def check(document, seed):
        assert agree(model, document) == ("tokens" not in document)  # pydantic alone reads sequences cut into slices
        draw = random.Random(seed)
        for _ in range(3):
            agree(model, spoilt(draw, document))

    check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_more_drawn_documents(kind):
    model = model_of(kind)

    @settings(deadline=None, max_examples=2000)
    @given(DRAWN[kind], st.integers(0, 2**32))
    def check(document, seed):
        draw = random.Random(seed)
        for _ in range(5):
            agree(model, spoilt(draw, document))

    check()


def test_all_shipped_instances_are_plain():
    for path in remat.examples().values():
        document = read_document(path)
        assert agree(model_of(document["kind"]), document), path


@settings(deadline=None, max_examples=60)
@given(documents.machines(), st.integers(0, 2**32))
def test_machines_become_the_models_of_pydantic(document, seed):
    with units_scope(Units("ms", "B")):
        assert agree(MachineModel, document)
        agree(MachineModel, spoilt(random.Random(seed), document))


def test_other_models_are_left_to_pydantic():
    class Model(MachineModel):
        other: int = 3

    assert plainly(Model, {"other": 3}) is None
    assert plainly(MachineModel, []) is None
    assert plainly(MachineModel, {"links": ()}) is None
