"""One roster for server and sites: it follows who comes and goes, and counts where the
owner has installed it.
"""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedaux.cli import app
from fedaux.deploy.certificates import generate_key_pair
from fedaux.deploy.checks import check_roster
from fedaux.deploy.env import DeployError
from fedaux.deploy.link import LinkError
from fedaux.deploy.membership import add_site, remove_site, rotate_key
from fedaux.deploy.rosters import compare_roster, install_roster
from fedaux.privacy.roster import (
    ROSTER_FILE,
    SUM_KEY_FILE,
    load_signing_key,
    read_roster,
    roster_fingerprint,
    write_roster,
)
from helpers.deployments import deploy, fine, problem


class NoLink:
    """A server that is up and knows nobody."""

    def nodes(self) -> list[object]:
        return []

    def register(self, public_key: Path, name: str) -> int:
        return 1

    def unregister(self, node_id: int) -> None:
        raise LinkError("nobody")


LINK: NoLink = NoLink()


def public(site: Path) -> bytes:
    return load_signing_key(site / "vault").public_key().public_bytes_raw()


def server_roster(folder: Path) -> dict[str, bytes]:
    return read_roster(folder / "server" / ROSTER_FILE)


def test_a_new_deployment_has_one_roster_with_the_key_of_each_site(
    folder: Path,
) -> None:
    sites = {name: folder / "sites" / name for name in ("berlin", "paris")}
    assert server_roster(folder) == {name: public(site) for name, site in sites.items()}
    texts = {(site / "vault" / ROSTER_FILE).read_bytes() for site in sites.values()}
    assert texts == {(folder / "server" / ROSTER_FILE).read_bytes()}
    for site in sites.values():
        assert (site / "vault" / SUM_KEY_FILE).stat().st_mode & 0o777 == 0o600
        fine(check_roster(site), roster_fingerprint(server_roster(folder)))


def test_sites_of_other_machines_make_their_own_keys(tmp_path: Path) -> None:
    folder = deploy(tmp_path / "d", host="fl.example.org")
    site = folder / "sites" / "berlin"
    assert not list(folder.rglob("key")) + list(folder.rglob(SUM_KEY_FILE))
    key = generate_key_pair(site)
    rotate_key(folder, "berlin", key, LINK)  # type: ignore[arg-type]
    assert server_roster(folder) == {"berlin": public(site)}


def test_the_roster_follows_who_joins_leaves_and_gets_another_key(
    folder: Path, tmp_path: Path
) -> None:
    site, before = folder / "sites" / "berlin", server_roster(folder)
    rotate_key(folder, "berlin", generate_key_pair(site, replace=True), LINK)  # type: ignore[arg-type]
    after = server_roster(folder)
    assert after == {**before, "berlin": public(site)}
    # whoever took one key from the site's disk could take the other
    assert after["berlin"] != before["berlin"]
    (tmp_path / "oslo").mkdir()
    key = generate_key_pair(tmp_path / "oslo")
    add_site(folder, "oslo", LINK, key)  # type: ignore[arg-type]
    assert server_roster(folder) == {**after, "oslo": public(tmp_path / "oslo")}
    assert read_roster(site / "vault" / ROSTER_FILE) == before  # pinned
    problem(
        check_roster(site),
        "its key for berlin is not this site's own",
        "fedaux deploy roster",
    )
    problem(
        check_roster(folder / "sites" / "paris"), "differs from", "fedaux deploy roster"
    )
    change = compare_roster(site, folder / "server" / ROSTER_FILE)
    assert (change.added, change.removed, change.changed) == (
        ("oslo",),
        (),
        ("berlin",),
    )
    assert change.fingerprint == roster_fingerprint(server_roster(folder))
    install_roster(site, folder / "server" / ROSTER_FILE)
    fine(check_roster(site))
    remove_site(folder, "paris", LINK)  # type: ignore[arg-type]
    assert compare_roster(site, folder / "server" / ROSTER_FILE).removed == ("paris",)


def test_a_roster_in_which_somebody_else_stands_for_this_site_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    site, roster = folder / "sites" / "berlin", server_roster(folder)
    for name, wrong, text in (
        (
            "swapped",
            {"berlin": roster["paris"], "paris": roster["berlin"]},
            "not this site's own",
        ),
        ("absent", {"paris": roster["paris"]}, "does not name this site"),
    ):
        write_roster(tmp_path / name, wrong)
        with pytest.raises(DeployError, match=text):
            compare_roster(site, tmp_path / name)
        shutil.copy(tmp_path / name, site / "vault" / ROSTER_FILE)
        problem(check_roster(site), text, "fedaux deploy roster")
        install_roster(site, folder / "server" / ROSTER_FILE)


def test_an_owner_sees_whose_key_is_another_and_is_asked(
    folder: Path, tmp_path: Path
) -> None:
    site, file = folder / "sites" / "berlin", tmp_path / "roster.json"
    write_roster(file, {**server_roster(folder), "paris": bytes(32)})
    words, pinned = (
        ["deploy", "roster", str(file), "--site", str(site)],
        site / "vault" / ROSTER_FILE,
    )
    shown = CliRunner().invoke(app, words, input="n\n")
    assert shown.exit_code != 0
    assert "paris has ANOTHER KEY" in shown.output
    assert pinned.read_bytes() == (folder / "server" / ROSTER_FILE).read_bytes()
    assert CliRunner().invoke(app, words, input="y\n").exit_code == 0
    assert pinned.read_bytes() == file.read_bytes()
