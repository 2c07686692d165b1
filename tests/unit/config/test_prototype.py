"""A network by name and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedaux.config.prototype import PrototypeSpec


def test_a_spec_is_hashable_and_readable() -> None:
    spec = PrototypeSpec("resnet8", (("width", 16), ("norm", "group")))
    assert spec.label == "resnet8(norm=group, width=16)"
    assert PrototypeSpec("mlp").label == "mlp"
    assert spec == PrototypeSpec.of("resnet8", width=16, norm="group")
    assert (
        len(
            {
                spec,
                PrototypeSpec.of("resnet8", width=16, norm="group"),
                PrototypeSpec("resnet8"),
            }
        )
        == 2
    )
    with pytest.raises(ValueError, match="twice"):
        PrototypeSpec("mlp", (("hidden", 1), ("hidden", 2)))


OPTIONS = st.dictionaries(
    st.text(max_size=5),
    st.integers() | st.floats(allow_nan=False) | st.booleans() | st.text(),
)


@given(st.text(), OPTIONS)
def test_a_spec_survives_as_json(
    name: str, options: dict[str, int | float | bool | str]
) -> None:
    spec = PrototypeSpec(name, tuple(options.items()))
    again = PrototypeSpec.from_json(spec.to_json())
    assert again == spec
    assert [type(value) for _, value in again.options] == [
        type(value) for _, value in spec.options
    ]


def test_options_in_any_order_are_one_network() -> None:
    one, other = (
        PrototypeSpec("cnn", (("a", 1), ("b", 2))),
        PrototypeSpec("cnn", (("b", 2), ("a", 1))),
    )
    assert one == other
    assert one.label == other.label
    assert one.to_json() == other.to_json()
