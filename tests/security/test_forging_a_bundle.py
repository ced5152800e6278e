"""An attacker wants a bundle to be read by others than its reader, changed on its way, or taken for someone else's."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Command

CANARY = "heliotrope-lagoon"

if shutil.which("ssh-keygen") is None:
    pytest.skip("cannot run here: ssh-keygen is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SSH keys of Alice, who sends, of Bob, who reads, and of Mallory."""
    folder = tmp_path_factory.mktemp("people")
    for name in ("alice", "bob", "mallory"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)],
            check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    kind, key, _name = (folder / "alice.pub").read_text().split()
    (folder / "signers").write_text(f"alice@example.com {kind} {key}\n")
    return folder


@pytest.fixture(scope="module")
def bundles(people: Path, tmp_path_factory: pytest.TempPathFactory, bytecode: Path) -> Path:
    """One session as bundles: plain, signed by each, and signed and encrypted for Bob."""
    place = tmp_path_factory.mktemp("sender")
    sender = Command(place, bytecode)
    sender.ok("open", "work")
    sender.ok("decide", CANARY)
    folder = sender.project
    sender.ok("export", "work", "--out", "plain")
    for name in ("alice", "mallory"):
        sender.ok("export", "work", "--out", f"by-{name}", "--sign", str(people / name))
    bob = (people / "bob.pub").read_text().strip()
    said = sender.ok("export", "work", "--out", "for-bob", "--sign", str(people / "alice"), "--encrypt-to", bob)
    assert "(bundle, signed, encrypted)" in said
    return folder


@pytest.fixture
def reader(tmp_path: Path, bytecode: Path) -> Command:
    return Command(tmp_path, bytecode)


def importing(reader: Command, file: Path, *words: str) -> dict[str, str]:
    """Who signed it, as the import says."""
    signature: dict[str, str] = reader.data("import", str(file), *words, kind="session")["signature"]
    return signature


def test_an_import_says_who_signed(reader: Command, bundles: Path, people: Path):
    """A known signer by name, an unknown one by key, and no signature: each is said, in words and as data."""
    signers = ("--signers", str(people / "signers"))
    said = reader.ok("import", str(bundles / "by-alice"), *signers)
    assert "; signed by alice@example.com (SHA256:" in said
    assert importing(reader, bundles / "by-alice", "--update", *signers)["state"] == "signed"
    stranger = importing(reader, bundles / "by-mallory", "--update", *signers)
    assert (stranger["state"], stranger["by"]) == ("unknown_signer", "")
    assert stranger["key"].startswith("SHA256:")
    assert importing(reader, bundles / "plain", "--update")["state"] == "unsigned"
    assert "; not signed" in reader.ok("import", str(bundles / "plain"), "--update")


def test_a_changed_bundle_is_refused(reader: Command, bundles: Path, people: Path, tmp_path: Path):
    """One changed byte of the lines or the signature, and a signature of another file: nothing is imported."""
    whole = (bundles / "by-alice").read_bytes()
    frame = whole.index(b"-----BEGIN SSH SIGNATURE-----") - 8
    armour = whole.index(b"\n", frame) + 30
    other = (bundles / "by-mallory").read_bytes()
    forged = {
        "lines": whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
        "signature": whole[:armour] + (b"A" if whole[armour : armour + 1] != b"A" else b"B") + whole[armour + 1 :],
        "length": whole[:frame] + whole[frame + 8 :],
        "added": whole[:frame] + b"x" + whole[frame:],
    }
    assert other[:frame] != whole[:frame] or len(other) == len(whole)
    for name, content in forged.items():
        (tmp_path / name).write_bytes(content)
        error = reader.error("import", str(tmp_path / name), "--signers", str(people / "signers"), code=5,
                             kind="damaged_bundle")  # fmt: skip
        assert error["message"], name
    assert json.loads(reader.ok("list", "--json"))["data"]["sessions"] == [] if reader.store.exists() else True
    assert importing(reader, bundles / "by-alice")["state"] == "unknown_signer", "the control"


def test_a_signature_for_something_else_is_refused(bundles: Path, people: Path, reader: Command, tmp_path: Path):
    """Alice's signature for another purpose, such as a git commit, does not sign a bundle."""
    lines = (bundles / "plain").read_bytes()
    made = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-f", str(people / "alice"), "-n", "git"], input=lines, capture_output=True,
        check=True,
    )  # fmt: skip
    from onrecord.surfaces.cli.shared.sealing import _frame

    (tmp_path / "replayed").write_bytes(lines + _frame(made.stdout))
    reader.error("import", str(tmp_path / "replayed"), code=5, kind="damaged_bundle")


def test_a_stripped_signature_does_not_pass_for_one(reader: Command, bundles: Path, people: Path, tmp_path: Path):
    """`--signed-by` refuses what is unsigned, signed by another, or signed by a key of another name."""
    whole = (bundles / "by-alice").read_bytes()
    (tmp_path / "stripped").write_bytes(whole[: whole.index(b"-----BEGIN SSH SIGNATURE-----") - 8])
    wanted = ("--signers", str(people / "signers"), "--signed-by", "alice@example.com")
    for file in (tmp_path / "stripped", bundles / "by-mallory", bundles / "plain"):
        error = reader.error("import", str(file), *wanted, code=10, kind="untrusted_bundle")
        assert error["message"].startswith("nothing was imported")
    reader.error("import", str(bundles / "by-alice"), *wanted[:3], "bob@example.com", code=10, kind="untrusted_bundle")
    assert not reader.store.exists(), "refused before a store was made"
    assert importing(reader, bundles / "by-alice", *wanted)["by"] == "alice@example.com", "the control"


def test_only_the_reader_reads(reader: Command, bundles: Path, people: Path, tmp_path: Path):
    """Bob's key opens the bundle, and shows that Alice signed it; no key and Mallory's key open nothing."""
    import zstandard

    content = (bundles / "for-bob").read_bytes()
    plain = (bundles / "plain").read_bytes()
    assert CANARY.encode() in zstandard.ZstdDecompressor().decompressobj().decompress(plain), "the control"
    assert b"SSH SIGNATURE" not in content
    reader.error("import", str(bundles / "for-bob"), code=2, kind="usage")
    mallory = ("--identity", str(people / "mallory"))
    reader.error("import", str(bundles / "for-bob"), *mallory, code=10, kind="untrusted_bundle")
    (tmp_path / "cut").write_bytes(content[:-20])
    bob = ("--identity", str(people / "bob"), "--signers", str(people / "signers"))
    reader.error("import", str(tmp_path / "cut"), *bob, code=5, kind="damaged_bundle")
    assert importing(reader, bundles / "for-bob", *bob)["by"] == "alice@example.com"
    assert CANARY in reader.ok("log", "work")


def test_keys_of_age_and_the_settings_work(bundles: Path, reader: Command, tmp_path: Path, people: Path):
    """An age identity in the settings opens what was encrypted for its public key, from a file of recipients."""
    import pyrage  # type: ignore[import-untyped]  # it has no types

    identity = pyrage.x25519.Identity.generate()
    (tmp_path / "key.txt").write_text(f"# mine\n{identity}\n")
    (tmp_path / "readers.txt").write_text(f"# the team\n{identity.to_public()}\n{(people / 'bob.pub').read_text()}")
    reader.ok("import", str(bundles / "plain"))
    reader.ok("export", "work", "--out", "sealed", "--encrypt-to", str(tmp_path / "readers.txt"))
    config = Path(reader.environment["HOME"]) / ".config" / "onrecord"
    config.mkdir(parents=True)
    shutil.copy(people / "signers", config / "allowed_signers")
    (config / "config.toml").write_text(f'[bundles]\nidentity = "{tmp_path}/key.txt"\n')
    assert importing(reader, reader.project / "sealed", "--update")["state"] == "unsigned"
    assert importing(reader, bundles / "by-alice", "--update")["by"] == "alice@example.com"
    (config / "config.toml").write_text("[bundles]\nidentity = 5\n")
    reader.error("import", str(reader.project / "sealed"), "--update", code=2, kind="invalid_input")


def test_wrong_keys_are_named(bundles: Path, reader: Command, people: Path, tmp_path: Path):
    """A recipient, a signing key, an identity or a file of signers that is none is one clear error, and no file appears."""
    reader.ok("import", str(bundles / "plain"))
    (tmp_path / "junk").write_text("junk")
    export = ("export", "work", "--out", "out")
    for words in (
        ("--encrypt-to", "bob"), ("--encrypt-to", "age1nonsense"), ("--encrypt-to", "ssh-ed25519 zzz"),
        ("--encrypt-to", os.devnull), ("--sign", str(tmp_path / "none")), ("--sign", str(tmp_path / "junk")),
    ):  # fmt: skip
        done = reader.run(*export, *words)
        assert done.code == 2, (words, done)
        assert "Traceback" not in done.err
    reader.error("export", "work", "--format", "jsonl", "--sign", str(people / "alice"), code=2, kind="usage")
    assert not (reader.project / "out").exists()
    for option in ("--identity", "--signers"):
        for value in (str(tmp_path / "junk"), str(tmp_path / "none")):
            file = "for-bob" if option == "--identity" else "by-alice"
            done = reader.run("import", str(bundles / file), "--update", option, value)
            assert done.code == (0 if (option, value) == ("--signers", str(tmp_path / "junk")) else 2), done
