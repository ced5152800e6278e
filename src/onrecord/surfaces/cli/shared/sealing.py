"""Bundles for one reader, from one sender: encrypted in the age format, signed as OpenSSH signs files.

The signature follows the compressed lines in a frame that decompressors skip, so a signed bundle is still a bundle for
every reader. It is made first; encryption hides it with the rest. Keys are the person's own: age or SSH keys, and the
file of allowed signers that OpenSSH and git use.
"""

from __future__ import annotations

import io
import os
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.connection import config_path, settings
from onrecord.errors import DamagedBundle, InvalidInput, UntrustedBundle
from onrecord.machine.files import refuse_special
from onrecord.surfaces.cli.shared.exits import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from onrecord.surfaces.cli.shared.call import Call

AGE = b"age-encryption.org/v1\n"
ARMOURED = b"-----BEGIN AGE ENCRYPTED FILE-----"
NAMESPACE = "onrecord-bundle"
"""What the signature is for: one that was made for a git commit or a mail is not accepted here."""
SIGNATURE_LIMIT = 16 * 1024
"""The longest signature, in bytes."""
SEALED_LIMIT = 512 * 1024 * 1024
"""The largest signed or encrypted bundle, in bytes: it is kept in memory, never in a file."""
KEYGEN_SECONDS = 120.0
"""How long ssh-keygen may take: it may ask for a passphrase, or for a touch of a key."""
SIGNERS = "allowed_signers"
"""The default name of the file of signers, beside the settings."""

_SKIPPED = b"\x50\x2a\x4d\x18"
_MARK = b"onrecord-signed1"


class Signature(NamedTuple):
    """What is known about who made a bundle."""

    state: str
    """`unsigned`, `signed` (by a known signer), `unknown_signer` or `unchecked`."""
    by: str = ""
    key: str = ""

    @property
    def said(self) -> str:
        """In words."""
        return {
            "unsigned": "not signed",
            "signed": f"signed by {self.by} ({self.key})",
            "unknown_signer": f"signed with a key that is not among your signers ({self.key})",
            "unchecked": "signed, but not checked: ssh-keygen is not installed",
        }[self.state]


def sealed(call: Call, chunks: Iterable[bytes]) -> Iterable[bytes]:
    """A bundle as the options want it: signed, encrypted, both, or as it is."""
    recipients, key = call.many("encrypt-to"), call.get("sign")
    if key:
        content = b"".join(chunks)
        chunks = [content, _frame(signed(content, str(key), NAMESPACE))]
    return _encrypted(chunks, _recipients(recipients)) if recipients else chunks


def opened(call: Call, path: Path) -> tuple[bytes | None, Signature]:
    """The content of a signed or encrypted bundle (None for any other), and who signed it."""
    who = call.get("signed-by")
    try:
        refuse_special(path)
        with path.open("rb") as file:
            encrypted = file.read(len(ARMOURED)).startswith((AGE, ARMOURED))
            file.seek(-min(len(_MARK), os.fstat(file.fileno()).st_size), os.SEEK_END)
            if not encrypted and file.read() != _MARK:
                return None, _accepted(Signature("unsigned"), who)
            if os.fstat(file.fileno()).st_size > SEALED_LIMIT:
                raise InvalidInput(f"{path} has more than {SEALED_LIMIT:,} bytes, the limit of a sealed bundle")
            file.seek(0)
            content = file.read()
    except OSError as problem:
        raise UsageError(f"{path} cannot be read: {problem.strerror}") from None
    if encrypted:
        content = _decrypted(content, path, _identities(call, path))
    lines, signature = _split(content)
    if signature is None:
        return lines, _accepted(Signature("unsigned"), who)
    found = checked(lines, signature, known_signers(call), NAMESPACE)
    if found is None:
        raise DamagedBundle(
            f"{path} was changed after it was signed, or its signature is not one of a bundle",
            hint="nothing was imported; ask the sender for the bundle again",
        )
    return lines, _accepted(found, who)


def is_encrypted(path: Path) -> bool:
    """Whether a file begins like an encrypted one."""
    with path.open("rb") as file:
        return file.read(len(ARMOURED)).startswith((AGE, ARMOURED))


def _accepted(found: Signature, who: str | None) -> Signature:
    """Refuse a bundle that is not by the signer who was asked for."""
    if who and (found.state != "signed" or found.by != who):
        raise UntrustedBundle(
            f"nothing was imported: the bundle is {found.said}, not by {who}",
            hint="ask the sender for a signed bundle, and check the names in your file of signers",
        )
    return found


# --- signatures ---------------------------------------------------------------------------------------------


def signed(content: bytes, key: str, namespace: str) -> bytes:
    """The signature of some bytes by an SSH key, for one purpose."""
    path = Path(key).expanduser()
    if not path.is_file():
        raise UsageError(f"there is no key file {path}", hint="name your SSH key, for example ~/.ssh/id_ed25519")
    done = _keygen("sign", "-f", str(path), "-n", namespace, content=content)
    if done is None:
        raise UsageError("signing needs ssh-keygen, which is not installed", hint="install the OpenSSH client")
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise InvalidInput(f"ssh-keygen could not sign with {path}: {said[-1] if said else 'no reason given'}")
    return done.stdout


def _keygen(action: str, *words: str, content: bytes) -> subprocess.CompletedProcess[bytes] | None:
    """Run ssh-keygen, the tool that defines these signatures; None if it is not installed."""
    command = ["ssh-keygen", "-Y", action, *words]
    try:
        return subprocess.run(command, input=content, capture_output=True, timeout=KEYGEN_SECONDS, check=False)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise InvalidInput(f"ssh-keygen did not end within {KEYGEN_SECONDS:g} seconds") from None


def checked(lines: bytes, signature: bytes, signers: Path | None, namespace: str) -> Signature | None:
    """Whose key signed these bytes for this purpose; None if the signature is of other bytes."""
    with tempfile.TemporaryDirectory(prefix="onrecord-") as folder:
        file = Path(folder) / "signature"
        file.write_bytes(signature)
        given = ("-n", namespace, "-s", str(file))
        done = _keygen("check-novalidate", *given, content=lines)
        if done is None:
            return Signature("unchecked")
        if done.returncode:
            return None
        key = done.stdout.decode(errors="replace").strip().rpartition(" ")[2]
        if signers is not None:
            found = _keygen("find-principals", "-s", str(file), "-f", str(signers), content=b"")
            names = found.stdout.decode(errors="replace").splitlines() if found and not found.returncode else []
            for name in names:
                sure = _keygen("verify", "-f", str(signers), "-I", name, *given, content=lines)
                if sure is not None and not sure.returncode:
                    return Signature("signed", name, key)
    return Signature("unknown_signer", key=key)


def known_signers(call: Call) -> Path | None:
    """The file of allowed signers: of the option, the settings, or beside the settings; None where there is none."""
    named = call.get("signers") or _setting("signers")
    path = Path(named).expanduser() if named else Path(config_path()).parent / SIGNERS
    if path.is_file():
        return path
    if named:
        raise UsageError(f"there is no file of signers {path}", hint="its lines: alice@example.com ssh-ed25519 AAAA...")
    return None


def _frame(signature: bytes) -> bytes:
    body = signature + len(signature).to_bytes(4, "little") + _MARK
    return _SKIPPED + len(body).to_bytes(4, "little") + body


def _split(content: bytes) -> tuple[bytes, bytes | None]:
    """The compressed lines, and the signature behind them."""
    end = len(content) - len(_MARK) - 4
    if not content.endswith(_MARK) or end < 0:
        return content, None
    size = int.from_bytes(content[end : end + 4], "little")
    start = end - size - 8
    if size > SIGNATURE_LIMIT or start < 0 or content[start:] != _frame(content[end - size : end]):
        raise DamagedBundle("the bundle looks signed, but its signature cannot be read")
    return content[:start], content[end - size : end]


# --- encryption ---------------------------------------------------------------------------------------------


def _age() -> Any:
    try:
        return import_module("pyrage")
    except ImportError:
        raise UsageError(
            "encrypted bundles need a library that is not installed", hint='`pip install "onrecord[age]"`'
        ) from None


def _recipients(names: list[str]) -> list[Any]:
    """The readers' keys: given as text, or the lines of files."""
    found = []
    for name in names:
        path = Path(name).expanduser()
        is_key = name.startswith(("age1", "ssh-"))
        if not is_key and not path.is_file():
            raise UsageError(
                f"{name!r:.80} is neither a public key nor a file of public keys",
                hint="a public key begins with age1, ssh-ed25519 or ssh-rsa",
            )
        lines = [name] if is_key else path.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [_recipient(line.strip()) for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise UsageError("no public key was named")
    return found


def _recipient(text: str) -> Any:
    age = _age()
    try:
        return age.ssh.Recipient.from_str(text) if text.startswith("ssh-") else age.x25519.Recipient.from_str(text)
    except age.RecipientError as problem:
        raise UsageError(f"{text!r:.80} is not a public key: {problem}") from None


def _encrypted(chunks: Iterable[bytes], recipients: list[Any]) -> Iterator[bytes]:
    target = io.BytesIO()
    _age().encrypt_io(io.BytesIO(b"".join(chunks)), target, recipients)
    yield target.getvalue()


def _identities(call: Call, path: Path) -> list[Any]:
    """The reader's private keys: lines of an age identity file, or an SSH key."""
    named = call.get("identity") or _setting("identity")
    if not named:
        raise UsageError(
            f"{path} is encrypted",
            hint="add `--identity FILE`: your age identity or SSH key, as in ~/.ssh/id_ed25519",
        )
    file, age = Path(named).expanduser(), _age()
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise UsageError(f"the identity {file} cannot be read: {problem.strerror}") from None
    try:
        if content.startswith(b"-----BEGIN"):
            return [age.ssh.Identity.from_buffer(content)]
        lines = [line.strip() for line in content.decode(errors="replace").splitlines()]
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except age.IdentityError as problem:
        raise UsageError(
            f"{file} has no identity that can be used: {problem}",
            hint="an SSH key with a passphrase cannot be used",
        ) from None
    if not found:
        raise UsageError(f"{file} has no identity", hint="`age-keygen` makes one")
    return found


def _decrypted(content: bytes, path: Path, identities: list[Any]) -> bytes:
    age, target = _age(), io.BytesIO()
    try:
        age.decrypt_io(io.BytesIO(content), target, identities)
    except (age.DecryptError, OSError) as problem:
        if "No matching keys" in str(problem):
            raise UntrustedBundle(
                f"nothing was imported: {path} is not encrypted for this identity",
                hint="name the identity whose public key the sender used",
            ) from None
        raise DamagedBundle(f"{path} cannot be decrypted: it was changed, or is incomplete") from None
    return target.getvalue()


def _setting(name: str) -> str | None:
    chosen = settings().get("bundles", {})
    for known, value in chosen.items():
        if known not in ("identity", "signers") or not isinstance(value, str):
            raise InvalidInput(
                f"bundles: {known!r} is not a setting, or its value is not text", hint="use identity and signers"
            )
    found: str | None = chosen.get(name)
    return found
