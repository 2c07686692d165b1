"""A server's own steps are tried on a few records before anything is sent."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig
from fedaux.data.table_schema import TableSchema
from fedaux.deploy.checks import check_schema
from fedaux.deploy.link import LinkError, Node
from fedaux.deploy.preflight import (
    check_schemas,
    check_site_settings,
    check_sites,
    check_steps,
    preflight,
)
from helpers.deployments import deploy, fine, problem


class Link:
    def __init__(self, *online: str, down: bool = False) -> None:
        self.online, self.down = online, down

    def check(self) -> None:
        if self.down:
            raise LinkError("it is down")

    def nodes(self) -> list[Node]:
        return [Node(name, 1, "online", "") for name in self.online]

    def last_run(self) -> None:
        return None


def test_a_server_that_is_ready(folder: Path) -> None:
    found = list(preflight(folder / "server", Link("berlin", "paris")))
    assert [one.name for one in found if not one.ok] == []
    assert len(found) == 6


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_sites_whose_settings_refuse_the_run_are_named(folder: Path) -> None:
    """The owners approved, and the run failed: "the client's own settings are
    invalid".
    """
    server = folder / "server"
    site = folder / "sites" / "berlin" / "site.toml"
    config = Config.load(server / "fedaux.toml")
    fine(check_site_settings(config, server), "every order would be admitted")
    written = site.read_text()

    edit(site, "embedding_dim = 12", 'embedding_dim = 12\nscorer = "class-moments"')
    edit(site, 'scorer = "class-embedding"\n', "")
    wrong = check_site_settings(config, server)
    problem(wrong, "berlin: orders of the server's run would be refused", "site.toml")
    assert "Cannot release with the scorer 'class-embedding'" in wrong.detail

    site.write_text(written.replace("max_epochs = 100", "max_epochs = 1"))
    longer = replace(config, local=replace(config.local, epochs=2))
    longer.save(server / "fedaux.toml")
    asked = check_site_settings(longer, server)
    problem(asked, "Cannot train for 2 epochs", "site.toml")

    site.write_text(f'{written}\n[teachers]\nrun_on = "clients"\n')
    problem(check_site_settings(config, server), "needs aux.source", "site.toml")
    site.unlink()  # on another machine
    found = check_site_settings(config, server)
    assert found.ok is None
    assert found.detail == "those of berlin are not on this machine"


SCHEMA = """
label = "diagnosis"
classes = ["healthy", "ill"]
confirmed = true
[columns]
age = {range = [20, 90]}
ward = {kind = "category", values = ["a", "b"]}
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A deployment whose parties read tables, each with its copy of the schema."""
    (tmp_path / "schema.toml").write_text(SCHEMA)
    (tmp_path / "a.csv").write_text("age,ward,diagnosis\n50,a,ill\n")
    schema = str(tmp_path / "schema.toml")
    base = Config(
        method="private-head",
        prototypes=(PrototypeSpec("linear"),),
        data=DataConfig(
            "table",
            str(tmp_path / "a.csv"),
            {"schema": schema},
            ("healthy", "ill"),
        ),
        aux=AuxConfig("schema", schema, {"rows": 10}),
    )
    return deploy(tmp_path / "tables", base=base)


def test_schemas_of_tables_are_compared_column_by_column(tables: Path) -> None:
    server = tables / "server"
    config = Config.load(server / "fedaux.toml")
    same = TableSchema.load(server / "schema.toml").hash
    fine(check_schemas(config, server), f"2 columns, hash {same}, at all sites")
    berlin = tables / "sites" / "berlin"
    schema = berlin / "schema.toml"

    edit(schema, "[20, 90]", "[20, 99]")
    edit(schema, '["a", "b"]', '["a"]')
    told = "berlin: it differs from the server's: age differs in range; ward differs"
    problem(check_schemas(config, server), told, "the same schema.toml")
    own = Config.load(berlin / "site.toml")
    problem(check_schema(own, berlin), "age differs in range", "agree on one")

    schema.write_text(SCHEMA.replace("age =", "years ="))
    told = "there is no column age; column years is added"
    problem(check_schemas(config, server), told, "")
    schema.write_text(SCHEMA.replace("confirmed = true", ""))
    problem(check_schemas(config, server), "write confirmed = true", "")
    schema.write_text(SCHEMA.replace("[20, 90]", "[20]"))
    problem(check_schemas(config, server), "a number needs its least", "")
    (berlin / "site.toml").unlink()  # on another machine
    found = check_schemas(config, server)
    assert found.ok is None
    assert same in found.detail
    assert "deploy check` at berlin names the hash" in found.remedy


def test_only_tables_have_schemas(folder: Path, tables: Path) -> None:
    def names(server: Path) -> list[str]:
        return [one.name for one in preflight(server, Link("berlin", "paris"))]

    assert "schema" not in names(folder / "server")
    assert "schema" in names(tables / "server")


def test_images_on_which_pre_training_fails_are_found(
    folder: Path, tmp_path: Path
) -> None:
    """Every site's check accepted them, and the run failed at the server."""
    base = Config.load(folder / "server" / "fedaux.toml")
    images = np.random.default_rng(0).random((80, 8, 8, 1))
    for name in ("test", "public"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "x.npy", images)
        np.save(tmp_path / name / "y.npy", np.arange(80) % 10)
    data = DataConfig(
        "npy", str(tmp_path / "test"), (), base.data.classes, partition="own"
    )
    wrong = replace(base, data=data, aux=AuxConfig("npy", str(tmp_path / "public")))
    problem(check_steps(wrong), "its steps before the first round fail", "[aux]")


@pytest.mark.parametrize(
    ("link", "text"),
    [(Link("berlin"), "not connected: paris"), (Link(down=True), "it is down")],
    ids=["paris", "down"],
)
def test_who_is_not_there_is_named(folder: Path, link: Link, text: str) -> None:
    config = Config.load(folder / "server" / "fedaux.toml")
    problem(check_sites(config, link), text, "")
    fine(check_sites(config, Link("berlin", "paris")), "all 2")
