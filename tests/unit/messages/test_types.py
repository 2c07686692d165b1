"""A field holds what its type says, to the last bit; text that reaches a person is
printable.
"""

import json
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.messages.types import (
    ANY_NAME,
    MAX_JSON,
    ArrayGroup,
    ArrayType,
    Flag,
    JsonObject,
    Number,
    Text,
)

UNPRINTABLE = {
    "an escape sequence": "\x1b[2K",
    "a line break": "a\nb",
    "a carriage return": "approved\rrefused",
    "a tab": "a\tb",
    "a null": "\x00",
    "delete": "\x7f",
    "a C1 control": "\x9b31m",
    "right to left": "\u202e",
    "a bidi isolate": "\u2066",
    "a bidi mark": "\u200f",
    "no width": "\u200b",
    "a line separator": "\u2028",
    "a surrogate": "\ud800",
    "private use": "\ue000",
}


def test_rules_are_told_apart_by_their_edges() -> None:
    assert Number(0, 3).problem(3) == Number(0, 3).problem(0) == ""
    assert Number(0, 3).problem(4)
    assert Number(0, 3).problem(-1)
    assert Number(0, 3).problem(np.int64(2))
    assert Text(3).problem("abc") == ""
    assert Text(3).problem("abcd")
    tiny, sizes = ArrayType(("float32",), ("a", "a")), dict[str, int]()
    assert tiny.problem(np.zeros((2, 2), np.float32), sizes) == ""
    assert sizes == {"a": 2}
    assert tiny.problem(np.zeros((2, 3), np.float32), {})


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_text_that_could_rewrite_a_terminal_is_refused(name: str) -> None:
    text = UNPRINTABLE[name]
    assert (
        Text().problem(f"berlin{text}")
        == "printable text, without line breaks and control characters"
    )
    assert Text().problem("Universitätsklinik Würzburg, 日本, ε = 0.1 – “ja”") == ""


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "raw"])
@pytest.mark.parametrize("name", UNPRINTABLE)
def test_json_hides_no_such_text(name: str, escaped: bool) -> None:
    text = UNPRINTABLE[name]
    places: list[Any] = [
        {"a": text},
        {text: 1},
        {"a": [1, [text]]},
        {"a": {"b": {text: 1}}},
        {"a": [{"b": text}]},
    ]
    for content in places:
        written = json.dumps(content, ensure_ascii=escaped)
        assert written.isascii() or not escaped
        assert JsonObject().problem(written) == "a JSON object of printable text"


def test_json_escapes_of_printable_text_pass() -> None:
    assert JsonObject().problem('{"name": "\\u00fc", "\\u00e4": ["\\u65e5"]}') == ""
    assert JsonObject().problem('{"a": "\\u001b[2K"}')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1]",
        '"a"',
        "1",
        "{",
        "null",
        "{'a': 1}",
        '{"a": 1} x',
        "x" * (MAX_JSON + 1),
    ],
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    assert JsonObject().problem(text).startswith("a JSON object of at most")


def test_a_json_object_that_is_too_long_is_not_parsed() -> None:
    text = json.dumps({"a": "x" * MAX_JSON})
    assert JsonObject().problem(text).startswith("a JSON object of at most")
    assert JsonObject().problem(json.dumps({"a": "x" * (MAX_JSON - 9)})) == ""
    for value in (None, 7, b"{}", {}):
        assert JsonObject().problem(value).startswith("a JSON object of at most")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.95, 2, 40])
def test_no_depth_of_json_is_another_error(share: float) -> None:
    """Whatever the parser takes is checked to its depth, and what it does not take is
    no JSON.
    """
    depth = int(share * sys.getrecursionlimit())
    for inner, verdict in (("1", ""), ('"\\u001b"', "a JSON object of printable text")):
        found = JsonObject().problem('{"a": ' + "[" * depth + inner + "]" * depth + "}")
        assert found == verdict or found.startswith("a JSON object of at most")


def test_a_json_object_has_exactly_its_entries() -> None:
    kind = JsonObject({"a": int, "b": str})
    assert kind.problem('{"b": "x", "a": 1}') == ""
    for text in (
        '{"a": 1}',
        '{"a": 1, "b": "x", "c": 1}',
        '{"a": true, "b": "x"}',
        '{"a": 1.0, "b": "x"}',
        "{}",
    ):
        assert kind.problem(text) == "a JSON object with a (int), b (str)"
    assert kind.problem("")
    assert JsonObject({"a": int}, optional=True).problem("") == ""
    assert JsonObject({"a": int}, optional=True).problem(" ")


@pytest.mark.parametrize("value", [True, 1.0, "1", None, np.int64(1), 4, -1, 10**30])
def test_an_integer_is_an_integer_in_its_range(value: Any) -> None:
    assert Number(0, 3).problem(value) == "an integer from 0 to 3"


@pytest.mark.parametrize(
    "value",
    [1, True, "1", float("nan"), float("inf"), -float("inf"), np.float64(1), 3.1, -0.1],
)
def test_a_number_is_a_float_in_its_range(value: Any) -> None:
    assert Number(0, 3, whole=False).problem(value) == "a number from 0 to 3"
    assert Number(0, 3, whole=False).problem(3.0) == ""


@pytest.mark.parametrize("value", [1, 0, "true", None, np.True_])
def test_a_flag_is_nothing_but_true_or_false(value: Any) -> None:
    assert Flag().problem(value) == "true or false"
    assert Flag().problem(True) == Flag().problem(False) == ""


@given(st.lists(st.floats(width=32), max_size=5), st.sampled_from([True, False]))
def test_the_range_of_an_array_is_that_of_its_numbers(
    numbers: list[float], finite: bool
) -> None:
    kind = ArrayType(("float32",), ("n",), low=-2, high=3, finite=finite)
    array = np.array([1.0, *numbers], np.float32)
    expected = all(-2 <= number <= 3 for number in numbers)
    assert (kind.problem(array, {}) == "") == expected
    free = ArrayType(("float32",), ("n",), finite=finite)
    expected = all(
        np.isfinite(number) if finite else number == number for number in numbers
    )
    assert (free.problem(array, {}) == "") == expected


@pytest.mark.parametrize(
    "name", ["float64", "int32", ">f4", "bool", "object", "complex64", "float16"]
)
def test_an_array_of_another_type_is_refused(name: str) -> None:
    kind = ArrayType(("float32",), None)
    assert kind.problem(np.zeros(2, np.dtype(name)), {}) == "an array of float32"
    assert kind.problem([0.0, 0.0], {}) == "an array of float32"


def test_an_array_has_at_most_its_bytes() -> None:
    kind = ArrayType(("uint8",), None, most=3)
    assert kind.problem(np.zeros(3, np.uint8), {}) == ""
    assert kind.problem(np.zeros(4, np.uint8), {}) == "at most 3 bytes"


def test_free_names_are_printable_few_and_small() -> None:
    group = ArrayGroup({ANY_NAME: ArrayType(("float32",), None)}, count=2, most=16)
    two = np.zeros(2, np.float32)
    assert group.problem({"a": two, "b": two}) == ""
    assert group.problem({"a\x1b": two}) == "arrays with printable names"
    assert group.problem({7: two}) == "arrays with printable names"
    assert group.problem({"a": two, "b": two, "c": two}) == "at most 2 arrays"
    assert group.problem({"a": two, "b": np.zeros(3, np.float32)}) == "at most 16 bytes"
    assert group.problem({}) == ""


def test_letters_agree_within_a_group_and_not_beyond_it() -> None:
    group = ArrayGroup(
        {"a": ArrayType(("float32",), ("H",)), "b": ArrayType(("float32",), ("H", "k"))}
    )
    assert (
        group.problem({"a": np.zeros(3, np.float32), "b": np.zeros((3, 2), np.float32)})
        == ""
    )
    assert "with H = 3" in group.problem(
        {"a": np.zeros(3, np.float32), "b": np.zeros((4, 2), np.float32)}
    )
    assert (
        group.problem({"a": np.zeros(4, np.float32), "b": np.zeros((4, 2), np.float32)})
        == ""
    )
    assert "the arrays a, b, not 'a'" in group.problem({"a": np.zeros(3, np.float32)})


def test_the_largest_arrays_of_a_group_have_the_size_that_it_says() -> None:
    """Built naively: every array of the widest type, in its fixed shape."""
    group = ArrayGroup(
        {
            "a": ArrayType(("float16", "float64"), (3, 4)),
            "b": ArrayType(("int64",), (2,)),
        }
    )
    largest = {"a": np.zeros((3, 4)), "b": np.zeros(2, np.int64)}
    assert group.problem(largest) == ""
    assert group.bytes_at_most() == sum(array.nbytes for array in largest.values())
    assert group.count_at_most() == 2
    free = ArrayGroup(
        {ANY_NAME: ArrayType(("uint8",), None, most=10)}, count=3, most=25
    )
    assert (free.bytes_at_most(), free.count_at_most()) == (25, 3)
    lettered = ArrayGroup({"a": ArrayType(("float32",), ("G", 2), most=80)})
    assert lettered.bytes_at_most() == 80
