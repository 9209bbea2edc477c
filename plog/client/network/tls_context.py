"""The client's TLS configuration: trusted CAs, its own certificate, versions and cipher suites.

`Security` contains the settings. PEM files are read when a context is created, and a new context is
created when a file has changed. `make_ssl_context` creates a context for the standard library, and
twisted_tls.py creates a context for Twisted. Both raise a `TlsFailed` that states the setting, the
file and the remedy. Reading files blocks, so the engine runs it as a `Network.job`.

Source: KIP-651; Kafka 4.3 DefaultSslEngineFactory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from plog.cipher_suites import openssl_cipher_lists
from plog.client.errors import TlsFailed
from plog.client.settings.security import CONVERT_KEYSTORE, SecuritySettings
from plog.pem import is_encrypted, other_form, pem_blocks
from plog.pem_settings import CONVERT_TRUSTSTORE

if TYPE_CHECKING:  # Applications without TLS need not import it.
    import ssl

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PemSource:
    """PEM data, or the file that contains it, with the name of the setting."""

    setting: str
    path: str | None = None
    text: str | None = field(default=None, repr=False)

    @property
    def where(self) -> str:
        """The setting and the file, for error messages."""
        return self.setting if self.path is None else f"{self.setting}={self.path}"

    @property
    def state(self) -> tuple[int, ...]:
        """A value that changes whenever the file may have changed."""
        try:
            found = os.stat(self.path) if self.path is not None else None
        except OSError:
            return (0,)
        # The inode number changes if another file replaces this file by a rename.
        return () if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)

    def read(self) -> bytes:
        """Return the PEM data. Raises TlsFailed."""
        if self.path is None:
            return (self.text or "").encode()
        try:
            with open(self.path, "rb") as file:
                data = file.read()
        except OSError as error:
            raise TlsFailed(f"cannot read {self.where}: {error.strerror}") from error
        form = other_form(data)
        # Users of Java clients often have a Java keystore or a PKCS #12 file. The error contains
        # the command that converts such a file.
        if form is not None:
            is_truststore = self.setting.startswith("ssl.truststore.")
            how = CONVERT_TRUSTSTORE if is_truststore else CONVERT_KEYSTORE
            raise TlsFailed(f"{self.where} is {form}, not PEM; {how}")
        return data

    def blocks(self, kind: str) -> list[bytes]:
        """Return the PEM blocks of this kind. Raises TlsFailed if there are no such blocks."""
        found = pem_blocks(self.read(), kind)
        if not found:
            raise TlsFailed(
                f"{self.where} does not contain a {kind.lower()} (a block that starts with"
                f" -----BEGIN {kind})"
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pems:
    """The PEM blocks of a `Security`; `trusted` is None if the system's CAs are used."""

    trusted: tuple[bytes, ...] | None
    key: bytes | None = field(repr=False)
    chain: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """The TLS configuration of a client.

    Without `trusted`, the client trusts the system's CAs. Without `key` and `chain`, it does not
    send a certificate.
    """

    trusted: PemSource | None = None
    key: PemSource | None = None
    chain: PemSource | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_host_name: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    _making: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)
    # The cached contexts, keyed by kind, with the state of the files when they were read; see
    # `kept`.
    _made: dict[str, tuple[object, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, settings: SecuritySettings) -> Self | None:
        """Return the configuration in `settings`, or None without TLS. Does not read the files."""
        if not settings.uses_tls:
            return None
        key, chain = _keystore(settings)
        return cls(
            trusted=_truststore(settings),
            key=key,
            chain=chain,
            key_password=settings.ssl_key_password,
            # As in Kafka, an empty value disables the check.
            checks_host_name=settings.ssl_endpoint_identification_algorithm != "",
            versions=settings.ssl_enabled_protocols,
            cipher_suites=settings.ssl_cipher_suites,
        )

    def read(self) -> Pems:
        """Read the files given in the settings. Raises TlsFailed."""
        key: bytes | None = None
        chain: list[bytes] = []
        if self.key is not None and self.chain is not None:
            key = self.key.blocks("PRIVATE KEY")[0]
            chain = self.chain.blocks("CERTIFICATE")
            # Without a password, OpenSSL would prompt for it on the terminal.
            if is_encrypted(key) and not self.key_password:
                raise TlsFailed(
                    f"{self.key.where}: the private key is encrypted; set ssl.key.password"
                )
        trusted = None if self.trusted is None else tuple(self.trusted.blocks("CERTIFICATE"))
        return Pems(trusted=trusted, key=key, chain=tuple(chain))

    def kept(self, kind: str, make: Callable[[], T]) -> T:
        """Return the cached result of `make`; call `make` again if a file has changed."""
        # Creating a context takes milliseconds, or tens of milliseconds with the system's CAs. If
        # several threads open connections concurrently, only one of them creates the context.
        sources = (self.trusted, self.key, self.chain)
        with self._making:
            # Get the state before reading the files: a change in the meantime then causes another
            # read.
            state = [source.state for source in sources if source is not None]
            known = self._made.get(kind)
            if known is None or known[0] != state:
                known = self._made[kind] = (state, make())
            made: T = known[1]
            return made

    def make_ssl_context(self) -> ssl.SSLContext:
        """Return an `ssl.SSLContext`; callers must pass the host as `server_hostname`.

        Raises:
            TlsFailed: a file cannot be used, or OpenSSL rejects a setting.
        """
        return self.kept("ssl", self._new_ssl_context)

    def _new_ssl_context(self) -> ssl.SSLContext:
        # Applications without TLS do not import it.
        import ssl

        pems = self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host_name
        # RFC 6125: as in twisted_tls.py, check only the subject alternative names.
        context.hostname_checks_common_name = False
        self._limit(context)
        if pems.trusted is None:
            context.load_default_certs()
        else:
            assert self.trusted is not None, "its blocks were read"
            try:
                context.load_verify_locations(cadata=b"".join(pems.trusted).decode("ascii"))
            except (ssl.SSLError, ValueError) as error:
                raise TlsFailed(
                    f"{self.trusted.where}: cannot read a certificate: {_reason(error)}"
                ) from error
            # As in Java, every certificate in the truststore is a trust anchor, even if it is not
            # self-signed.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if pems.key is not None:
            self._load_key_pair(context, pems.key, pems.chain)
        return context

    def _limit(self, context: ssl.SSLContext) -> None:
        import ssl

        allowed = set(self.versions)
        try:
            tls_1_2, tls_1_3 = openssl_cipher_lists(self.cipher_suites)
            # OpenSSL configures the suites of TLS 1.2 and TLS 1.3 separately. If only some suites
            # are allowed, a version without an allowed suite must be disabled.
            if self.cipher_suites:
                allowed &= {"TLSv1.2"} if tls_1_2 else set()
            if tls_1_3:
                raise ValueError(
                    "Python's ssl module cannot select TLSv1.3 cipher suites; remove TLSv1.3 from"
                    " ssl.enabled.protocols and its suites from ssl.cipher.suites"
                )
            if not allowed:
                raise ValueError("OpenSSL does not support any of the ssl.enabled.protocols")
            if tls_1_2:
                context.set_ciphers(":".join(tls_1_2))
        except (ValueError, ssl.SSLError) as error:
            raise TlsFailed(f"ssl.cipher.suites: {_reason(error)}") from error
        versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
        context.minimum_version = min(versions[each] for each in allowed)
        context.maximum_version = max(versions[each] for each in allowed)

    def _load_key_pair(self, context: ssl.SSLContext, key: bytes, chain: tuple[bytes, ...]) -> None:
        import ssl

        assert self.key is not None, "its block was read"
        password = (self.key_password or "").encode()
        try:
            # `ssl` loads key pairs only from files, and PEM text may come from the settings.
            with _as_file(key + b"".join(chain)) as path:
                context.load_cert_chain(path, password=password)
        except (ssl.SSLError, ValueError) as error:
            raise TlsFailed(
                f"{self.key.where}: {why_no_pair(_reason(error), is_encrypted(key))}"
            ) from error


def why_no_pair(reason: str, has_password: bool) -> str:
    """Return why OpenSSL rejects a private key and its certificate, as part of an error message.

    >>> why_no_pair("key values mismatch", False)
    'the private key does not belong to the first certificate'
    """
    if "mismatch" in reason:
        return "the private key does not belong to the first certificate"
    if has_password:
        return "cannot decrypt the private key; check ssl.key.password"
    return f"cannot read the private key or certificate: {reason}"


def _reason(error: Exception) -> str:
    """Return OpenSSL's text for an error from the `ssl` module, in lower case."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, str):
        return reason.lower().replace("_", " ")
    return str(error.args[-1] if error.args else error)


def _keystore(settings: SecuritySettings) -> tuple[PemSource | None, PemSource | None]:
    if settings.ssl_keystore_key:
        return (
            PemSource(setting="ssl.keystore.key", text=settings.ssl_keystore_key),
            PemSource(
                setting="ssl.keystore.certificate.chain",
                text=settings.ssl_keystore_certificate_chain,
            ),
        )
    if settings.ssl_keystore_location:
        both = PemSource(setting="ssl.keystore.location", path=settings.ssl_keystore_location)
        return both, both
    return None, None


def _truststore(settings: SecuritySettings) -> PemSource | None:
    if settings.ssl_truststore_certificates:
        text = settings.ssl_truststore_certificates
        return PemSource(setting="ssl.truststore.certificates", text=text)
    if settings.ssl_truststore_location:
        return PemSource(setting="ssl.truststore.location", path=settings.ssl_truststore_location)
    return None


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield the path of a file that contains `data`, because `ssl` reads only files."""
    try:
        # The data contains a private key, so keep it in memory.
        descriptor = os.memfd_create("plog-key")
        path = f"/proc/self/fd/{descriptor}"
    except (AttributeError, OSError):
        # On systems other than Linux, use a file that only this user can read, and remove it
        # afterwards.
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="plog-key-")
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            # `ssl` reads the file by its path, so the data must leave this object's buffer.
            file.flush()
            yield path
    finally:
        if not path.startswith("/proc/"):
            os.unlink(path)
