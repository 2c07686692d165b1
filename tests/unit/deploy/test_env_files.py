"""Lines of NAME=value, as the scripts read them too; `test_checks.py` has what is missing in a site's."""

from pathlib import Path

import pytest

from fedaux.deploy.env_files import SiteError, read_env, read_variables


def test_quotes_spaces_and_comments_are_not_part_of_a_value(tmp_path: Path) -> None:
    path = tmp_path / "site.env"
    path.write_text("# SERVER=old:1\nNAME=berlin\nSERVER = 'fl.example.org:8443' \nPORT=\"9101\"\n\n")
    assert read_env(path) == {"NAME": "berlin", "SERVER": "fl.example.org:8443", "PORT": "9101", "": ""}


def test_what_is_needed_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "server.env").write_text("BIND=0.0.0.0\nLOCAL=\n")
    with pytest.raises(SiteError, match="does not say LOCAL, PORT"):
        read_variables(tmp_path / "server.env", ("LOCAL", "PORT"))
    assert read_variables(tmp_path / "server.env", ()) == {"BIND": "0.0.0.0", "LOCAL": ""}
