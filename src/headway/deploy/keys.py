"""Certificates of a deployment's server and key pairs of its sites, in files that only their owner can read."""

from __future__ import annotations

import datetime
import importlib
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from headway.errors import UserError, shown

if TYPE_CHECKING:
    from types import ModuleType

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.hashes import SHA384
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName, KeyUsage, Name

AUTHORITY_DAYS = 3650
SERVER_DAYS = 397
"""A server's certificate lasts a year and a month; `headway deploy keys --host` makes the next one."""
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
"""Names of sites: they are file names, and they stand in records and messages."""


@dataclass(frozen=True)
class ServerFiles:
    """The certificates that an operator holds. Sites get `authority`; the rest stays with the operator."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate with which sites recognise the server."""
        return self.folder / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    def check(self) -> None:
        """Refuse a folder that lacks what a server needs."""
        for path in (self.authority, self.certificate, self.key):
            if not path.is_file():
                raise UserError(
                    f"{path} is missing; make it: headway deploy keys --host NAME --out {quote(str(self.folder))}"
                )


def check_name(name: str) -> str:
    """A site's name, where it can be one."""
    if not NAME.fullmatch(name):
        raise UserError(
            f"the name of a site is {shown(name)}; allowed: up to 64 small letters, digits, '.', '_' and '-', with a "
            "letter or a digit at both ends"
        )
    return name


def secret_folder(folder: Path) -> Path:
    """A folder that only its owner can enter. One that is there already must be so."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o022:
        raise UserError(f"{folder} can be written by others; it will hold secrets: chmod 700 {quote(str(folder))}")
    return folder


def write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UserError(f"{path} is there already; it is a secret that nothing may overwrite: move it away") from None
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def check_secret(path: Path, how: str) -> None:
    """Refuse a secret that is missing, or that others than its owner can read; `how` says how one is made."""
    if not path.is_file():
        raise UserError(f"{path} is missing; make it: {how}")
    if path.stat().st_mode & 0o077:
        raise UserError(f"{path} can be read by others; it is a secret: chmod 600 {quote(str(path))}")


def make_server_files(folder: Path, hosts: Sequence[str]) -> ServerFiles:
    """Make the authority, where there is none, and a certificate of the server for these host names or addresses.

    Called again it makes the server a new certificate of the same authority: sites need nothing new.
    """
    names = [_general_name(host) for host in hosts]
    if not names:
        raise UserError("no host is given; name the one that sites will reach: --host fl.example.org")
    files = ServerFiles(secret_folder(folder))
    if files.authority_key.exists() != files.authority.exists():
        raise UserError(f"{folder} has one of ca.crt and ca.key alone; put the other back, or use an empty folder")
    if not files.authority_key.exists():
        _make_authority(files)
    _make_certificate(files, hosts[0], names)
    return files


def make_site_keys(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a site's key pair: the secret NAME and the public NAME.pub, which alone may leave the site."""
    private = secret_folder(folder) / check_name(name)
    public = private.with_name(f"{name}.pub")
    for path in (private, public):
        if path.exists():
            raise UserError(f"{path} is there already; the site would need a new admission: move both files away")
    key, serialization = _new_key(), _serialization()
    text = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    write_secret(private, secret)
    public.write_bytes(text + b" " + name.encode() + b"\n")
    return private, public


# ── certificates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _make_authority(files: ServerFiles) -> None:
    from cryptography import x509

    key = _new_key()
    subject = _subject("headway deployment authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(subject, subject, key, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(identifier, critical=False)
    _write(files.authority_key, files.authority, key, builder.sign(key, _hash()))


def _make_certificate(files: ServerFiles, host: str, names: Sequence[GeneralName]) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID

    check_secret(files.authority_key, f"headway deploy keys --host {host} --out NEW")
    issuer_key = _serialization().load_pem_private_key(files.authority_key.read_bytes(), password=None)
    if not isinstance(issuer_key, EllipticCurvePrivateKey):
        raise UserError(f"{files.authority_key} is not a key that headway deploy keys made; use an empty folder")
    issuer = x509.load_pem_x509_certificate(files.authority.read_bytes())
    key = _new_key()
    builder = _builder(_subject(host), issuer.subject, key, SERVER_DAYS)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    identifier_of_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(identifier_of_key, critical=False)
    for path in (files.key, files.certificate):
        path.unlink(missing_ok=True)
    _write(files.key, files.certificate, key, builder.sign(issuer_key, _hash()))


def _new_key() -> EllipticCurvePrivateKey:
    """A key on the curve P-384, which Flower takes for sites too."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise UserError("keys need the package cryptography; install it: pip install 'headway[deploy]'") from None
    return ec.generate_private_key(ec.SECP384R1())


def _serialization() -> ModuleType:
    return importlib.import_module("cryptography.hazmat.primitives.serialization")


def _hash() -> SHA384:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA384()


def _subject(name: str) -> Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])


def _builder(subject: Name, issuer: Name, key: EllipticCurvePrivateKey, days: int) -> CertificateBuilder:
    """A certificate that is valid from yesterday on, as clocks differ."""
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(secret: Path, public: Path, key: EllipticCurvePrivateKey, certificate: Certificate) -> None:
    """Write a key, which stays, and its certificate, which may travel."""
    serialization = _serialization()
    content = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_secret(secret, content)
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _general_name(host: str) -> GeneralName:
    """A host name or an address, as a certificate holds it."""
    try:
        from cryptography import x509
    except ImportError:
        raise UserError("keys need the package cryptography; install it: pip install 'headway[deploy]'") from None
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not re.fullmatch(
        r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*", host
    ):
        raise UserError(
            f"host is {shown(host)}; it must be a host name such as fl.example.org, or an address"
        ) from None
    return x509.DNSName(host)
