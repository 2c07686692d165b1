"""A node's settings are its own; only a simulation on one machine takes them from the
run.
"""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.app import Context, RecordDict

from fedaux import Config
from fedaux.config.parsing import ConfigError
from fedaux.core.errors import SettingsError
from fedaux.flower.node_settings import open_site, run_settings


def context(node: dict[str, str | int], **run: str) -> Context:
    return Context(1, 2, node, RecordDict(), run)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "site.toml"
    path.write_text(
        'rounds = 7\n[federation]\nsites = ["berlin", "paris"]\n[data]\npartition = "own"\n'
    )
    return path


def test_a_node_speaks_for_the_names_it_was_given(file: Path) -> None:
    node = {"config": str(file), "vault": "/v", "clients": "berlin, paris"}
    assert open_site(context(node)).clients == ("berlin", "paris")
    assert open_site(context(node)).config.rounds == 7
    assert open_site(
        context({"config": str(file), "vault": "/v", "partition-id": 1})
    ).clients == ("paris",)
    simulated = open_site(
        context(
            {"config": json.dumps(Config().to_dict()), "vault": "/v", "partition-id": 1}
        )
    )
    assert simulated.clients == ("client-001",)


def test_a_real_node_never_takes_its_settings_from_the_run(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = context({"partition-id": 0}, config=str(file), out="/run")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(
        SettingsError,
        match=r"no settings\. Start its SuperNode with --node-config",
    ):
        open_site(asked)
    monkeypatch.setitem(
        __import__("sys").modules, "ray", SimpleNamespace(is_initialized=lambda: True)
    )
    assert open_site(asked).vault == Path("/run/clients")
    assert open_site(asked).clients == ("berlin",)


def test_a_run_needs_a_config_and_an_absolute_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = run_settings(
        context({}, config=str(file), out="/run", set="rounds=3; privacy.epsilon=4")
    )
    assert (config.rounds, config.privacy.epsilon, folder) == (3, 4.0, Path("/run"))
    for told, reason in [
        ({"out": "/run"}, "the run needs config"),
        ({"config": str(file), "out": "run"}, "absolute"),
    ]:
        with pytest.raises(SettingsError, match=reason):
            run_settings(context({}, **told))
    monkeypatch.syspath_prepend(tmp_path)  # where Flower unpacks an app
    assert run_settings(context({}, config="site.toml", out="/run"))[0].rounds == 7
    with pytest.raises(ConfigError, match=r"there is no config file none\.toml"):
        run_settings(context({}, config="none.toml", out="/run"))


def test_settings_of_a_simulation_are_read_once_and_again_when_the_file_changes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        __import__("sys").modules, "ray", SimpleNamespace(is_initialized=lambda: True)
    )
    asked = context({"partition-id": 0}, config=str(file), out="/run")
    first = open_site(asked).config
    assert open_site(asked).config is first
    file.write_text(file.read_text().replace("rounds = 7", "rounds = 8"))
    os.utime(file, ns=(0, 1))
    assert open_site(asked).config.rounds == 8
