"""A site is told about its own records: what is declared, what is not, and whose they are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.schema import Config, DataConfig, PrivacyConfig
from fedaux.deploy.check_result import CheckResult
from fedaux.deploy.record_checks import check_records
from fedaux.deploy.settings import demo_config, server_config, site_config
from helpers.deployments import deploy


@pytest.fixture
def records(site: Path) -> Path:
    (site / "of berlin").mkdir()
    return site / "of berlin"


def look(
    site: Path, source: str, path: str = "", classes: str = "", person: str = "", cap: int = 0
) -> tuple[int, CheckResult]:
    data = DataConfig(source, path, classes=tuple(classes), person=person, partition="own")
    privacy = PrivacyConfig(unit="person", max_records_per_person=cap) if cap else PrivacyConfig()
    return check_records(replace(Config.load(site / "site.toml"), data=data, privacy=privacy), site, "berlin")


def save(folder: Path, labels: list[int], persons: list[str] | None = None) -> None:
    np.save(folder / "x.npy", np.zeros((len(labels), 2), np.float32))
    np.save(folder / "y.npy", np.array(labels, dtype=np.int64))
    if persons is not None:
        np.save(folder / "patient.npy", np.array(persons))


def problem(found: tuple[int, CheckResult], detail: str, remedy: str) -> None:
    assert found[1].ok is False
    assert detail in found[1].detail
    assert remedy in found[1].remedy


def test_records_that_are_in_order(site: Path, records: Path) -> None:
    assert look(site, "digits", classes="0123456789") == (
        1797,
        CheckResult("data", True, "1,797 records of 10 of 10 classes"),
    )
    save(records, [0, 2, 2, 0])
    for path in ("of berlin", "of {client}", str(records)):
        assert look(site, "npy", path, "abc") == (4, CheckResult("data", True, "4 records of 2 of 3 classes"))


def test_records_that_cannot_be_read(site: Path, records: Path) -> None:
    found = look(site, "npy", "of berlin", "abc")
    assert found[0] == 0
    problem(found, "x.npy is missing", "[data] in site.toml")
    np.save(records / "x.npy", np.zeros((4, 2), np.float32))
    problem(look(site, "npy", "of berlin", "abc"), "no labels", "[data] in site.toml")
    save(records, [])
    problem(look(site, "npy", "of berlin", "abc"), "there are none", "[data] in site.toml")
    problem(look(site, "nonsense", classes="abc"), "unknown source 'nonsense'", "[data]")


def test_classes_that_are_not_declared(site: Path, records: Path) -> None:
    save(records, [0, 1])
    problem(look(site, "npy", "of {client}"), f"or one a line into {records / 'classes.txt'}", "[data] in site.toml")
    (records / "classes.txt").write_text("a\nb")
    assert look(site, "npy", "of {client}")[1].ok


def test_labels_that_are_not_declared(site: Path, records: Path) -> None:
    save(records, [0, 2, 7, 0])
    count, found = look(site, "npy", "of berlin", "ab")
    assert (count, found.ok, found.remedy) == (4, True, "")
    assert found.detail == (
        "4 records of 1 of 2 classes; 2 have a label that is missing or not declared: they count, but teach nothing"
    )
    (records / "classes.txt").write_text("A\nB\nC")
    problem(look(site, "npy", "of berlin", "ab"), "not one of 4 records has a label that is declared", "data.classes")


def test_persons_and_the_records_beyond_their_cap(site: Path, records: Path) -> None:
    save(records, [0, 1, 0, 1, 0, 1], ["ann", "ann", "ann", "bob", "", ""])
    assert "person" not in look(site, "npy", "of berlin", "ab", "patient")[1].detail
    for cap, left in ((1, 3), (2, 1), (3, 0)):
        found = look(site, "npy", "of berlin", "ab", "patient", cap)[1]
        assert found.ok
        assert found.detail.endswith(
            f"3 persons; records beyond privacy.max_records_per_person = {cap} and left out: {left}"
        )
    save(records, [0, 1, 0], ["", "", ""])
    problem(look(site, "npy", "of berlin", "ab", "patient", 2), "1 person; records", "see data.person")
    problem(look(site, "npy", "of berlin", "ab", "nurse", 2), "nurse.npy is missing", "[data] in site.toml")


def test_all_settings_declare_the_same_classes_and_persons(tmp_path: Path) -> None:
    base = Config(data=DataConfig("csv", "", classes=("well", "ill"), person="patient"))
    folder = deploy(tmp_path / "d", base=base)
    server, site = (
        Config.load(folder / "server" / "fedaux.toml"),
        Config.load(folder / "sites" / "paris" / "site.toml"),
    )
    assert server.data == site.data == replace(base.data, partition="own")
    assert (server.data, site.data) == (server_config(base, ["a"]).data, site_config(base, "a").data)
    for name in ("server/fedaux.toml", "sites/paris/site.toml"):
        assert 'classes = ["well", "ill"]\nperson = "patient"\n' in (folder / name).read_text()
    assert demo_config().data.classes == tuple("0123456789")
