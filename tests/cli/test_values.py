"""What the user writes for an argument."""

from __future__ import annotations

from collections import namedtuple

import pytest

from gradproof._cases import arrays
from gradproof._data.specs import parse
from gradproof.errors import UsageError

Pair = namedtuple("Pair", "a b")
X = parse("float64[3]")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("'plain'", "plain"),
        ("'float64 is a dtype'", "float64 is a dtype"),
        ("float64[3]", X),
        ("[1, 'float64[3]']", [1, X]),
        ("('float64[3]',)", (X,)),
        ("{'a': {'b': ['float64[3]']}}", {"a": {"b": [X]}}),
    ],
)
def test_a_value_is_a_spec_a_literal_or_a_tree_of_both(text, value):
    assert arrays.value("--arg", text) == value


def test_what_starts_like_a_spec_and_is_none_is_refused_as_one():
    with pytest.raises(UsageError, match="SPEC: unknown values 'often'"):
        arrays.value("--arg", "['float64[3]:often']")


def test_named_tuples_stay_named_and_what_holds_no_spec_stays_the_same_object():
    plain = {"a": [1, Pair(2, 3)]}
    assert arrays.described(plain) is plain
    made = arrays.described(Pair("float64[3]", plain))
    assert isinstance(made, Pair)
    assert made.a == X
    assert made.b is plain


def assigned(*texts: str) -> dict[str, object]:
    into: dict[str, object] = {}
    for text in texts:
        arrays.assign("--kwarg", text, into)
    return into


def test_paths_make_what_is_missing_and_fill_what_is_there():
    assert assigned("a=1", "b.c[0]=float64[3]", "b.c[1].d=2", "b.e='x=y'", "a=4") == {
        "a": 4,
        "b": {"c": [X, {"d": 2}], "e": "x=y"},
    }
    assert assigned("b={'c': 1}", "b.d=2") == {"b": {"c": 1, "d": 2}}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["a"], "expected NAME=VALUE"),
        (["1a=2"], "expected NAME=VALUE"),
        (["a..b=2"], "expected NAME=VALUE"),
        (["a[1]=2"], r"'a\[1\]' leaves out \[0\]"),
        (["a=1", "a.b=2"], "'a.b' goes into a int"),
        (["a={}", "a[0]=2"], r"'a\[0\]' goes into a dict"),
        (["a=[1]", "a.b=2"], "'a.b' goes into a list"),
        (["a=b"], "--kwarg a: 'b' is no Python literal"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_in_one_sentence(texts, says):
    with pytest.raises(UsageError, match=says):
        assigned(*texts)


def test_a_file_describes_nested_arguments(tmp_path):
    file = tmp_path / "inputs.json"
    file.write_text(
        '{"args": ["float64[3]", [16]], "kwargs": {"mode": "sum", "batch.mask[0]": "float64[3]"}}'
    )
    assert arrays.from_file(str(file)) == ([X, [16]], {"mode": "sum", "batch": {"mask": [X]}})
    file.write_text('["float64[3]"]')
    assert arrays.from_file(str(file)) == ([X], {})


@pytest.mark.parametrize(
    "text", ["{", "3", '{"inputs": []}', '{"args": {}}', '{"kwargs": []}', '{"kwargs": {"1": 2}}']
)
def test_a_file_of_another_form_is_refused_in_one_sentence(text, tmp_path):
    file = tmp_path / "inputs.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"^--inputs: "):
        arrays.from_file(str(file))
    with pytest.raises(UsageError, match="cannot read"):
        arrays.from_file(str(tmp_path / "missing.json"))


def test_a_dtype_replaces_those_of_floating_and_complex_arrays():
    tree = ["float64[2]", "complex128[2]", "int64[2]", 3]
    single = arrays.in_dtype(arrays.described(tree), "float32")
    assert [getattr(leaf, "dtype", leaf) for leaf in single] == ["float32", "complex64", "int64", 3]
    turned = arrays.in_dtype(arrays.described(tree), "complex64")
    assert [getattr(x, "dtype", x) for x in turned] == ["complex64", "complex64", "int64", 3]
