"""Normalisation by name, and groups that divide their channels."""

from __future__ import annotations

import pytest
from torch import nn

from fedaux.models import make_norm
from fedaux.models.layers import group_count


def test_groups_divide_the_channels() -> None:
    known = {1: 1, 8: 1, 16: 1, 44: 2, 50: 2, 64: 4, 100: 5, 512: 32, 640: 32, 4096: 32}
    assert {channels: group_count(channels) for channels in known} == known
    for channels in range(1, 700):
        groups = group_count(channels)
        assert channels % groups == 0
        assert groups == 1 or (groups <= 32 and channels // groups >= 16)


def test_make_norm_knows_three_kinds() -> None:
    assert isinstance(make_norm("batch", 8), nn.BatchNorm2d)
    assert isinstance(make_norm("batch", 8, image=False), nn.BatchNorm1d)
    assert isinstance(make_norm("group", 8), nn.GroupNorm)
    assert isinstance(make_norm("none", 8), nn.Identity)
    with pytest.raises(ValueError, match=r"did you mean 'batch'.*choose from batch, group, none"):
        make_norm("bacth", 8)
