"""Units and containers are told paths as they are, and what the README names is there."""

import re
from pathlib import Path

import yaml

from fedaux.deploy.scripts import systemd_units
from helpers.deployments import AWKWARD


def test_systemd_is_told_paths_as_they_are() -> None:
    made = systemd_units(Path(f"/srv/{AWKWARD}"), Path("/opt/$v e/bin"), "anna")
    assert set(made) == {f"fedaux-{name}.service" for name in ("superlink", "superexec", "metrics", "site@")}
    site = made["fedaux-site@.service"].splitlines()
    assert '''ExecStart=/bin/bash "/srv/50%% of $$HOME & Anna's/sites/%i/supernode.sh"''' in site
    assert '''ReadWritePaths="/srv/50%% of $HOME & Anna's/sites/%i"''' in site  # $ is no variable there
    assert 'Environment="PATH=/opt/$v e/bin:/usr/local/bin:/usr/bin:/bin"' in site
    assert "Restart=always" in site


def test_no_service_is_root_and_each_has_what_it_needs() -> None:
    for user, expected in (("anna", "anna"), ("root", "fedaux")):
        made = systemd_units(Path("/srv/h"), Path("/usr/bin"), user)
        assert all(f"\nUser={expected}\n" in text for text in made.values())
    private = {name for name, text in made.items() if "PrivateDevices=yes" in text}  # no GPU there
    local = {name for name, text in made.items() if "IPAddressDeny=any\nIPAddressAllow=localhost" in text}
    assert private == {"fedaux-superlink.service", "fedaux-metrics.service"}
    assert local == {"fedaux-metrics.service"}


def test_containers_see_their_own_folder_only(folder: Path) -> None:
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert {name: service["volumes"] for name, service in services.items()} == {
        "superlink": ["./server:/server"],
        "superexec": ["./server:/server"],
        "site-berlin": ["./sites/berlin:/site"],
        "site-paris": ["./sites/paris:/site"],
    }
    for service in services.values():
        mounted, script = service["volumes"][0].split(":"), service["command"][1]
        assert (folder / mounted[0] / Path(script).relative_to(mounted[1])).is_file()
        assert service["network_mode"] == "host"
        assert not service["user"].startswith("0:")  # root's deployment neither


def test_what_the_readme_names_is_there(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    named = re.findall(r"\./((?:server|sites)/\S+?\.sh)", text)
    assert {"server/superlink.sh", "server/superexec.sh", "server/register.sh", "server/run.sh"} <= set(named)
    assert {"sites/berlin/supernode.sh", "sites/paris/supernode.sh"} <= set(named)
    assert all((folder / name).is_file() for name in [*named, *re.findall(r"systemd/\S+\.service", text)])
