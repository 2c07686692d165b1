"""What a report tells of a run, read off its folder."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.sections import AuxConfig
from fedaux.data.federated import open_data
from fedaux.report.facts import confusion, expected_accuracy, image_strip, load_facts, may_show, recall, seconds, tones
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import StateError
from fedaux.server.run_writer import RunWriter
from helpers.tiny import TINY_CONFIG


def test_expected_accuracy_is_that_of_the_clients_mix() -> None:
    counts, recall = np.array([[30, 10], [0, 5], [0, 0]]), np.array([0.9, 0.5])
    assert expected_accuracy(counts, recall) == pytest.approx([0.8, 0.5, 0.0])
    assert expected_accuracy(counts, np.array([0.9, np.nan]))[1] == 0


def feddf(result: FinishedRun, folder: Path) -> Path:
    """The same run, of a method without scores."""
    RunWriter(folder).save(replace(result.state, config=replace(result.state.config, method="feddf"), releases={}))
    return folder


def test_counts_and_recall(result: FinishedRun, tmp_path: Path) -> None:
    facts = load_facts(feddf(result, tmp_path))
    assert (facts.counts == open_data(result.state.config).counts()).all()
    table = confusion(facts.state)
    assert recall(facts.state) == pytest.approx(np.diag(table) / table.sum(axis=1), nan_ok=True)


def test_a_strip_is_a_picture_of_all_images() -> None:
    import base64
    import io

    from PIL import Image

    for channels in (1, 3):
        images = np.random.default_rng(0).integers(0, 255, (4, 8, 8, channels)).astype(np.uint8)
        picture = Image.open(io.BytesIO(base64.b64decode(image_strip(images).split(",")[1])))
        assert picture.size == (4 * 48 + 3 * 3, 48)
        pixels = np.asarray(picture).reshape(48, -1, channels)
        assert np.array_equal(pixels[::6, 51 : 51 + 48 : 6], images[1])  # enlarged without smoothing


def test_pretrained_methods_share_a_colour() -> None:
    found = tones(["FedAVG", "FedAVG+P", "FedDF+P", "FedAUX"])
    assert found["FedAVG"] == found["FedAVG+P"] != found["FedDF+P"]
    assert found["FedAUX"] == "hero"


def test_matrices_of_all_prototypes_add_up(result: FinishedRun) -> None:
    matrices = [np.array(matrix) for matrix in (result.state.history[-1].confusion or {}).values()]
    assert len(matrices) == 2
    assert (confusion(result.state) == matrices[0] + matrices[1]).all()


def test_seconds_are_those_of_all_rounds_and_phases(result: FinishedRun) -> None:
    assert seconds(result.state) == 2 * (2.0 + 1.0)


def test_data_that_are_gone_are_named(result: FinishedRun, tmp_path: Path) -> None:
    config = replace(result.state.config, data=replace(result.state.config.data, source="npz", path="gone.npz"))
    RunWriter(tmp_path).save(replace(result.state, config=config))
    facts = load_facts(tmp_path)
    assert facts.missing.startswith("gone.npz is missing")
    assert facts.counts is None
    assert facts.classes == tuple("0123456789")  # by number, as the confusion matrix has them


def test_a_run_without_a_round_has_nothing_to_tell(result: FinishedRun, tmp_path: Path) -> None:
    RunWriter(tmp_path).save(replace(result.state, round=0, history=()))
    with pytest.raises(StateError, match="has not finished a round yet; continue with `fedaux resume"):
        load_facts(tmp_path)


def test_records_are_shown_only_if_anyone_may_see_them() -> None:
    """Private images were shown as public examples where aux.path was data.path."""
    assert may_show(TINY_CONFIG)  # digits are published
    own = replace(TINY_CONFIG, aux=AuxConfig(source="images", path="public"))
    assert not may_show(own)
    assert may_show(replace(own, aux=replace(own.aux, public=True)))
    assert not may_show(replace(TINY_CONFIG, data=replace(TINY_CONFIG.data, source="images", path="scans")))  # held out
