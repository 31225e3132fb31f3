"""The contract has one face, and the old paths name it."""

import importlib

import pytest

import remat.plugin
from remat.errors import OptionError
from remat.plugin.deprecated import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_old_paths_name_the_new_one(old):
    with pytest.raises(ImportError, match=f"{old} is gone: import from {MOVED[old]}"):
        importlib.import_module(old)
    importlib.import_module(MOVED[old])


def test_an_old_name_warns_and_works():
    with pytest.warns(DeprecationWarning, match=r"remat\.plugin\.SamplePattern is now remat\.plugin\.ModuloSchedule"):
        old = remat.plugin.SamplePattern
    assert old is remat.plugin.ModuloSchedule
    assert "SamplePattern" not in dir(remat.plugin)


def test_other_modules_are_just_missing():
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'remat\.nothing'"):
        importlib.import_module("remat.nothing")


def test_the_face_has_all_that_it_lists():
    for name in remat.plugin.__all__:
        assert getattr(remat.plugin, name) is not None
    assert set(remat.plugin.__all__) <= set(dir(remat.plugin))
    with pytest.raises(AttributeError, match=r"module 'remat\.plugin' has no attribute 'Solver'"):
        remat.plugin.Solver  # noqa: B018


def test_errors_name_the_argument_or_the_option():
    plain, of_argument = OptionError("no"), OptionError("no", argument="budget")
    of_option = OptionError("no", argument="options", option="slots")
    assert [str(error) for error in (plain, of_argument, of_option)] == ["no", "budget: no", "option slots: no"]
    assert [error.message for error in (plain, of_argument, of_option)] == ["no"] * 3
