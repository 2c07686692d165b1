"""A certificate authority and a server certificate for TLS, and the key pairs that
authenticate sites.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedaux.core.errors import Exit, FedauxError
from fedaux.core.io import write_atomically
from fedaux.privacy.roster import make_signing_key

Key = ec.EllipticCurvePrivateKey
AUTHORITY_DAYS = 3650
SERVER_DAYS = 1825
# in the comment of key.pub: what signs the site's secure sums
SUM_KEY = re.compile(rb"\bsum=([0-9a-f]{64})\b")


class KeyExistsError(FedauxError, ValueError):
    """A key file would be overwritten."""

    code = Exit.FOLDER


class PublicKeyError(FedauxError, ValueError):
    """A file that should hold a public key does not."""

    code = Exit.FOLDER


@dataclass(frozen=True)
class IssuedCertificate:
    certificate: x509.Certificate
    key: Key

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def key_pem(self) -> bytes:
        return private_bytes(self.key, serialization.PrivateFormat.PKCS8)


def create_authority(days: int = AUTHORITY_DAYS) -> IssuedCertificate:
    """Create a self-signed authority for this deployment's server only. Sites trust no
    other.
    """
    return _sign(
        "fedaux deployment", None, days, [(x509.BasicConstraints(True, 0), True)]
    )


def issue_server_certificate(
    authority: IssuedCertificate,
    hosts: Sequence[str] | x509.Certificate,
    days: int = SERVER_DAYS,
) -> IssuedCertificate:
    """Issue a certificate, with a new key, for the server's host names and addresses,
    or those of another one.
    """
    if isinstance(hosts, x509.Certificate):
        names = hosts.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
    else:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    extensions = [
        (names, False),
        (x509.BasicConstraints(False, None), True),
        (usage, False),
    ]
    return _sign("fedaux server", authority, days, extensions)


def _sign(
    name: str,
    authority: IssuedCertificate | None,
    days: int,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
) -> IssuedCertificate:
    """Sign a certificate by the authority, or by itself. It is valid since yesterday,
    for clocks that are behind.

    Args:
        extensions: Each with whether it is critical.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject
    issuer_key = key
    if authority is not None:
        issuer = authority.certificate.subject
        issuer_key = authority.key
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    end = now + days * day
    signs = authority is None
    usage = x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - day)
        .not_valid_after(end)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(usage, critical=True)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return IssuedCertificate(builder.sign(issuer_key, hashes.SHA256()), key)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def generate_key_pair(folder: Path, replace: bool = False) -> Path:
    """Write a site's key pair `key`, `key.pub`, as `ssh-keygen -t ecdsa -b 384` does;
    return the public half's path.

    With `replace` an old pair is kept as `key.old`, `key.old.pub`: it is valid until
    the server has the new one. The public half names the key with which the site signs
    secure sums, `vault/sum.key`. Both are replaced together: whoever took one from the
    site's disk could take the other.
    """
    if (folder / "key").exists():
        if not replace:
            raise KeyExistsError(
                f"Cannot write a key: {folder / 'key'} exists, and the server may know "
                "the site by it. Run the command with --replace to make another."
            )
        for name, old in (("key", "key.old"), ("key.pub", "key.old.pub")):
            (folder / name).replace(folder / old)
    key = ec.generate_private_key(ec.SECP384R1())
    write_atomically(
        folder / "key",
        private_bytes(key, serialization.PrivateFormat.OpenSSH),
        private=True,
    )
    vault = folder / "vault"
    vault.mkdir(mode=0o700, parents=True, exist_ok=True)
    sum_key = make_signing_key(vault, replace).hex()
    write_atomically(
        folder / "key.pub", public_key_bytes(key) + f" sum={sum_key}\n".encode()
    )
    return folder / "key.pub"


def site_fingerprint(public_key: bytes) -> str:
    """Return what two people compare: a hash of 256 bits of both of a site's keys, that
    of its node and that of sums.

    Of a key without a key for sums, as a SuperLink knows it, this is what `ssh-keygen
    -lf` prints.
    """
    content = _key_bytes(public_key)
    signs_sums = SUM_KEY.search(public_key)
    if signs_sums:
        content += signs_sums[0]
    return _sha256(content)


def node_fingerprint(public_key: bytes) -> str:
    """Return the hash of a site's node key alone, by which a SuperLink knows the site.
    The key may be in PEM.
    """
    return _sha256(_key_bytes(public_key))


def _key_bytes(public_key: bytes) -> bytes:
    try:
        if b"-----BEGIN" in public_key:
            key = serialization.load_pem_public_key(public_key)
        else:
            key = serialization.load_ssh_public_key(public_key)
        line = key.public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
    except (ValueError, UnsupportedAlgorithm) as error:
        raise PublicKeyError(
            f"Cannot read the key: this is not the public key of a site ({error}). Use "
            "the key.pub that `fedaux deploy key` has made."
        ) from error
    return base64.b64decode(line.split()[1])


def _sha256(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def private_bytes(key: Key, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )


def public_key_bytes(key: Key) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )


def load_key(path: Path) -> Key:
    """Load a site's private key."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(str(error)) from error
    if not isinstance(key, Key):
        raise ValueError("it is not an ECDSA key")
    return key
