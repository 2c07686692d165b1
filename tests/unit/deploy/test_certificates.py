"""Certificates for the hosts they are made for, and keys that Flower takes."""

from pathlib import Path

import pytest
from cryptography import x509

from fedaux.deploy.certificates import KeyExistsError, generate_key_pair
from helpers.deployments import deploy


def test_the_certificate_is_for_the_host_and_for_the_server_itself(
    tmp_path: Path,
) -> None:
    folder = deploy(tmp_path / "d", host="fl.example.org")
    read = x509.load_pem_x509_certificate(
        (folder / "server" / "server.pem").read_bytes()
    )
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert [str(found) for found in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1"
    ]


def test_a_key_is_one_that_flower_takes_and_is_not_replaced(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    from flwr.cli.supernode.register import try_load_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    public = generate_key_pair(tmp_path / "new")
    private = load_ssh_private_key((tmp_path / "new" / "key").read_bytes(), None)
    assert try_load_public_key(public) == public_key_to_bytes(private.public_key())
    assert private.curve.name == "secp384r1"
    with pytest.raises(KeyExistsError, match="--replace to make another"):
        generate_key_pair(tmp_path / "new")
