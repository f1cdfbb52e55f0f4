"""What is asked is said once, in records; what comes back has names and forms that users know."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import pkgutil
import typing
from pathlib import Path

import numpy as np
import pytest

import gradproof
from gradproof import Settings
from gradproof.errors import UsageError

X = np.array([0.3, -0.7])


def scaled(x, factor=1.0):
    return factor * np.sin(x)


def gradient(x, v, factor=1.0):
    return factor * np.cos(x) * v


HAND = gradproof.by_hand(scaled, vjp=gradient)


# What is asked.


def test_no_keyword_is_also_a_setting():
    keywords = list(inspect.signature(gradproof.check).parameters)[2:]
    assert set(keywords).isdisjoint(inspect.signature(Settings).parameters)


def test_another_object_is_no_record():
    with pytest.raises(UsageError, match=r"^settings: expected a gradproof.Settings\(...\), got"):
        gradproof.check(HAND, X, settings={"references": ["native"]})
    with pytest.raises(UsageError, match=r"^settings: expected a gradproof.Settings\(...\), got"):
        gradproof.compare(HAND, HAND, X, settings={})


def test_tolerances_follow_the_precision_unless_one_was_chosen():
    single = np.array([0.3], dtype=np.float32)
    doubled = gradproof.by_hand(np.sin, vjp=lambda x, v: 2 * np.cos(x) * v)
    native = Settings(references=["native"])
    for rtol, allowed in ((None, 1e-3), (1e-5, 1e-5)):
        wrong = gradproof.check(doubled, single, rtol=rtol, seed=0, settings=native)
        finding = wrong["backward"].findings[0]
        least = allowed * finding.measured + finding.error
        rounding = 2.0**-16 * finding.claimed  # 2^8 units in the last place of the claim
        assert least <= finding.allowed <= 1.01 * (least + rounding)


def test_further_arguments_are_those_of_each_function_by_hand():
    hand = gradproof.by_hand(scaled, vjp=gradient, args=(2.0,))
    other = gradproof.by_hand(lambda x: 2 * np.sin(x), vjp=lambda x, v: 2 * np.cos(x) * v)
    assert gradproof.check(hand, X.astype(np.float32), reference=other, seed=0)
    with pytest.raises(UsageError, match=r"^args: expected a list of values"):
        gradproof.by_hand(scaled, vjp=gradient, args=2.0)


# The report.


def report_of_a_failure():
    return gradproof.check(
        gradproof.by_hand(scaled, vjp=lambda x, v: 1.1 * gradient(x, v)), X, seed=0
    )


def test_a_report_is_a_dict_as_it_is_stored(tmp_path):
    report = report_of_a_failure()
    found = report.to_dict()
    assert found == json.loads(report.save(tmp_path / "report.json").read_text())
    assert (found["verdict"], found["seed"]) == ("failed", 0)
    assert found["checks"][0]["findings"][0]["input"]["name"] == "x"


def test_a_check_that_a_report_lacks_is_reported_with_those_it_has():
    report = gradproof.check(HAND, X, checks=["backward"])
    with pytest.raises(KeyError) as caught:
        report["bakward"]
    said = "checks: this report has no 'bakward' (did you mean 'backward'?); choose from backward"
    assert str(caught.value) == said
    assert isinstance(caught.value, UsageError)


def test_a_report_is_a_sequence_of_its_checks():
    report = report_of_a_failure()
    assert list(report) == list(report.checks)
    assert len(report) == len(report.checks)
    assert not report


# Names that users see.


def public_modules():
    names = [info.name for info in pkgutil.iter_modules(gradproof.__path__)]
    yield gradproof
    for name in names:
        if name.startswith("_") or name in ("cli", "pytest_plugin"):
            continue
        try:
            yield importlib.import_module(f"gradproof.{name}")
        except ImportError:  # of a framework that is not installed
            continue


def test_public_classes_and_functions_show_under_public_names():
    hidden = {
        f"{module.__name__}.{name} is of {value.__module__}"
        for module in public_modules()
        for name in getattr(module, "__all__", [])
        if callable(value := getattr(module, name))
        and any(part.startswith("_") for part in value.__module__.split("."))
    }
    assert not hidden
    assert repr(gradproof.Report) == "<class 'gradproof.Report'>"


def test_the_types_of_public_records_can_be_looked_up():
    for name in gradproof.__all__:
        value = getattr(gradproof, name)
        if isinstance(value, type):
            assert all(not isinstance(kind, str) for kind in typing.get_type_hints(value).values())
    assert typing.get_type_hints(gradproof.Report)["seed"] is int


def test_every_public_name_has_its_place_on_the_api_page():
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text("utf-8")
    assert [name for name in gradproof.__all__ if f" gradproof.{name}\n" not in page] == []


def test_a_report_is_pickled_under_its_public_name():
    report = report_of_a_failure()
    stored = pickle.dumps(report)
    assert b"_data" not in stored
    assert pickle.loads(stored).to_dict() == report.to_dict()
