"""Sites join and leave, keys are replaced, and a certificate is renewed, with a server
that is up or down.
"""

from itertools import count
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedaux.config.schema import Config
from fedaux.config.sections import DataConfig
from fedaux.deploy.certificates import (
    generate_key_pair,
    node_fingerprint,
    site_fingerprint,
)
from fedaux.deploy.checks import check_records
from fedaux.deploy.env import DeployError, read_env
from fedaux.deploy.link import LinkError, Node
from fedaux.deploy.membership import (
    add_site,
    register_keys,
    remove_site,
    renew,
    rotate_key,
)
from helpers.deployments import deploy, problem


class Registered:
    """What a SuperLink has registered: a key for each node."""

    def __init__(self, folder: Path, up: bool = True) -> None:
        self.up, self.keys, self.ids = up, dict[int, tuple[str, bytes]](), count(1)
        if up:
            for path in sorted((folder / "server" / "keys").glob("*.pub")):
                self.register(path, path.stem)

    def nodes(self) -> list[Node]:
        self._answer()
        return [
            Node(name, node, "online", "", node_fingerprint(key))
            for node, (name, key) in self.keys.items()
        ]

    def register(self, public_key: Path, name: str) -> int:
        self._answer()
        node = next(self.ids)
        self.keys[node] = name, public_key.read_bytes()
        return node

    def unregister(self, node_id: int) -> None:
        self._answer()
        del self.keys[node_id]

    def _answer(self) -> None:
        if not self.up:
            raise LinkError("down")

    @property
    def by_name(self) -> dict[str, bytes]:
        return dict(self.keys.values())


def members(folder: Path) -> tuple[str, ...]:
    return Config.load(folder / "server" / "fedaux.toml").federation.sites


def registered_next(folder: Path) -> list[str]:
    """What register.sh would register."""
    return sorted(path.stem for path in (folder / "server" / "keys").glob("*.pub"))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """What a site has made and sent."""
    (tmp_path / "at the site").mkdir()
    return generate_key_pair(tmp_path / "at the site")


def test_a_site_joins(folder: Path, key: Path) -> None:
    before, link = (folder / "server" / "fedaux.toml").read_text(), Registered(folder)
    assert add_site(folder, "oslo", link, key)
    assert members(folder) == ("berlin", "paris", "oslo")
    site = folder / "sites" / "oslo"
    env = read_env(site / "site.env")
    assert (env["NAME"], env["SERVER"]) == ("oslo", "127.0.0.1:8443")
    assert Config.load(site / "site.toml").federation.sites == ("oslo",)
    assert (site / "ca.crt").read_bytes() == (folder / "ca" / "ca.crt").read_bytes()
    assert link.by_name["oslo"] == key.read_bytes()
    assert not (site / "key").exists()  # it was made on the server's machine
    assert registered_next(folder) == ["berlin", "oslo", "paris"]
    after = (folder / "server" / "fedaux.toml").read_text()
    assert [line for line in after.splitlines() if line not in before.splitlines()] == [
        'sites = ["berlin", "paris", "oslo"]'
    ]


def test_a_site_that_has_yet_to_make_its_key_is_let_in_by_it_alone(
    folder: Path, key: Path
) -> None:
    """A key that the server had made was registered, and the site's own was a second
    one for the same name.
    """
    link = Registered(folder)
    assert not add_site(folder, "oslo", link)
    assert "oslo" not in link.by_name
    assert registered_next(folder) == ["berlin", "paris"]
    assert rotate_key(folder, "oslo", key, link) == site_fingerprint(key.read_bytes())
    assert link.by_name["oslo"] == key.read_bytes()


def test_one_name_has_one_key_whoever_puts_it_there(folder: Path, key: Path) -> None:
    link = Registered(folder)
    # as the runbook once said
    (folder / "server" / "keys" / "berlin.pub").write_bytes(key.read_bytes())
    found = register_keys(folder / "server", link)
    assert found["berlin"] == (site_fingerprint(key.read_bytes()), True)
    assert not found["paris"][1]
    assert [pair for pair in link.keys.values() if pair[0] == "berlin"] == [
        ("berlin", key.read_bytes())
    ]
    assert not any(new for _, new in register_keys(folder / "server", link).values())


def test_what_is_no_public_key_is_refused(
    folder: Path, tmp_path: Path, key: Path
) -> None:
    link = Registered(folder)
    for path in (key.with_name("key"), tmp_path / "missing"):  # its private half, say
        with pytest.raises(
            DeployError, match=r"is not the key\.pub that `fedaux deploy key` has made"
        ):
            add_site(folder, "oslo", link, path)
    assert members(folder) == ("berlin", "paris")


def test_the_servers_test_records_are_not_the_sites(tmp_path: Path) -> None:
    data = DataConfig("npz", "test.npz", (("test", "also-test.npz"),), ("a", "b"))
    folder = deploy(tmp_path / "d", base=Config(data=data))
    add_site(folder, "oslo", Registered(folder, up=False))
    made = Config.load(folder / "sites" / "oslo" / "site.toml").data
    assert (made.source, made.path, made.options, made.classes) == (
        "npz",
        "",
        (),
        ("a", "b"),
    )
    problem(
        check_records(
            Config.load(folder / "sites" / "oslo" / "site.toml"), folder, "oslo"
        )[1],
        "path",
        "[data]",
    )


def test_a_site_joins_while_the_server_is_down_or_its_folders_are_elsewhere(
    folder: Path, key: Path
) -> None:
    assert not add_site(folder, "oslo", Registered(folder, up=False), key)
    # register.sh does the rest
    assert registered_next(folder) == ["berlin", "oslo", "paris"]
    for name in ("berlin", "paris", "oslo"):
        (folder / "sites" / name).rename(folder.parent / name)
    assert add_site(folder, "rome", Registered(folder), key)
    assert (
        read_env(folder / "sites" / "rome" / "site.env")["SERVER"] == "127.0.0.1:8443"
    )


@pytest.mark.parametrize("name", ["berlin", "no/name", ""])
def test_a_site_that_cannot_join_changes_nothing(folder: Path, name: str) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(
        ValueError, match=r"berlin already|cannot be the name of a site"
    ):
        add_site(folder, name, Registered(folder))
    assert {
        path: path.read_bytes() for path in folder.rglob("*") if path.is_file()
    } == before


def test_a_site_leaves(folder: Path) -> None:
    link = Registered(folder)
    remove_site(folder, "berlin", link)
    assert members(folder) == ("paris",)
    assert set(link.by_name) == {"paris"}
    assert registered_next(folder) == ["paris"]
    # what is at the site is the site's
    assert (folder / "sites" / "berlin" / "key").exists()
    with pytest.raises(
        DeployError, match=r"sites/berlin is there already, .* Move it away"
    ):
        add_site(folder, "berlin", link)
    with pytest.raises(
        DeployError, match=r"there is no site berlin\. Choose from paris"
    ):
        remove_site(folder, "berlin", link)
    with pytest.raises(DeployError, match="the only site"):
        remove_site(folder, "paris", link)


def test_who_cannot_be_shut_out_stays_a_member(folder: Path) -> None:
    with pytest.raises(LinkError):
        remove_site(folder, "berlin", Registered(folder, up=False))
    assert members(folder) == ("berlin", "paris")
    assert registered_next(folder) == ["berlin", "paris"]


def test_a_new_key_takes_the_place_of_the_old_one(folder: Path) -> None:
    link, site = Registered(folder), folder / "sites" / "berlin"
    old = link.by_name["berlin"]
    new = generate_key_pair(site, replace=True)
    assert (site / "key.old.pub").read_bytes() == old
    rotate_key(folder, "berlin", new, link)
    assert link.by_name["berlin"] == new.read_bytes() != old
    assert len(link.keys) == 2
    assert (folder / "server" / "keys" / "berlin.pub").read_bytes() == new.read_bytes()
    # what a call that broke off has left undone
    (folder / "server" / "roster.json").unlink()
    link.keys.clear()
    rotate_key(folder, "berlin", new, link)
    assert link.by_name["berlin"] == new.read_bytes()
    assert (folder / "server" / "roster.json").is_file()
    with pytest.raises(DeployError, match="no site oslo"):
        rotate_key(folder, "oslo", new, link)
    with pytest.raises(DeployError, match="deploy key FOLDER --replace"):
        rotate_key(folder, "berlin", folder / "nothing.pub", link)


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(
        (folder / "server" / "server.pem").read_bytes()
    )


def test_a_certificate_is_renewed_for_the_same_hosts_by_the_same_authority(
    folder: Path,
) -> None:
    old = certificate(folder)
    end = renew(folder, days=10)
    new, names = certificate(folder), x509.SubjectAlternativeName
    assert new.not_valid_after_utc.date().isoformat() == end
    assert new.serial_number != old.serial_number
    assert (
        new.extensions.get_extension_for_class(names).value
        == old.extensions.get_extension_for_class(names).value
    )
    new.verify_directly_issued_by(
        x509.load_pem_x509_certificate((folder / "server" / "ca.crt").read_bytes())
    )
    key = serialization.load_pem_private_key(
        (folder / "server" / "server.key").read_bytes(), None
    )
    assert key.public_key() == new.public_key()


def test_the_authority_may_be_kept_elsewhere_and_under_a_password(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "ca").rename(tmp_path / "safe")
    with pytest.raises(
        DeployError, match=r"ca\.key is not there. Use --ca to name the folder"
    ):
        renew(folder)
    path = tmp_path / "safe" / "ca.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    encrypted = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encrypted
        )  # type: ignore[union-attr]
    )
    for password in (None, b"wrong"):
        with pytest.raises(DeployError, match="cannot be read"):
            renew(folder, tmp_path / "safe", password=password)
    renew(folder, tmp_path / "safe", password=b"secret")


def test_an_authority_that_sites_do_not_trust_signs_nothing(
    folder: Path, tmp_path: Path
) -> None:
    before, other = certificate(folder), deploy(tmp_path / "other")
    with pytest.raises(DeployError, match="which sites trust"):
        renew(folder, other / "ca")
    assert certificate(folder) == before


def test_a_folder_without_a_deployment_is_none(tmp_path: Path) -> None:
    with pytest.raises(DeployError, match="holds no deployment"):
        renew(tmp_path)
