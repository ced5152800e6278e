"""Where the key of encrypted stores comes from, and what is refused as one."""

import os
import stat
import sys
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends import fail

from onrecord.environment import KEY_VARIABLE
from onrecord.errors import InvalidInput, StoreLocked
from onrecord.machine import keys

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


def test_the_environment_comes_before_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """ONRECORD_KEY wins over a file; without either there is no key."""
    file = keys.write_new_key(str(tmp_path / "key"))
    assert keys.configured_key({}) is None
    assert keys.configured_key({"file": file}) == bytes.fromhex(Path(file).read_text())
    monkeypatch.setenv(KEY_VARIABLE, KEY.hex())
    assert keys.configured_key({"file": file}) == KEY


def test_a_new_key_is_random_private_and_replaces_nothing(tmp_path: Path):
    """The file is for its owner alone, and a second key never takes its place."""
    path = tmp_path / "folder" / "key"
    keys.write_new_key(str(path))
    first = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput, match="a key is never replaced"):
        keys.write_new_key(str(path))
    assert path.read_text() == first
    assert keys.read_key(keys.write_new_key(str(tmp_path / "second"))) != keys.read_key(str(path))


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path):
    """Group or world permissions, a directory, a pipe and a missing file are refused; 0600 and 0400 are accepted."""
    path = tmp_path / "key"
    path.write_text(KEY.hex() + "\n")
    for mode in (0o644, 0o640, 0o602):
        path.chmod(mode)
        with pytest.raises(StoreLocked, match="other users may read the key file"):
            keys.read_key(str(path))
    for mode in (0o600, 0o400):
        path.chmod(mode)
        assert keys.read_key(str(path)) == KEY
    os.mkfifo(tmp_path / "pipe", 0o600)
    for other, said in ((tmp_path, "not a regular file"), (tmp_path / "pipe", "not a regular file"),
                        (tmp_path / "none", "does not exist")):  # fmt: skip
        with pytest.raises(StoreLocked, match=said):
            keys.read_key(str(other))


def test_a_pipe_of_the_shell_is_read(tmp_path: Path):
    """`--key-file <(command)` works: the shell opened that pipe for this process."""
    read, write = os.pipe()
    os.write(write, KEY.hex().encode() + b"\n")
    os.close(write)
    try:
        assert keys.read_key(f"/dev/fd/{read}") == KEY
    finally:
        os.close(read)


def test_what_is_not_a_key_is_refused_and_never_shown(tmp_path: Path):
    """A passphrase, too few digits and an empty file are refused without repeating them."""
    path = tmp_path / "key"
    for text in ("correct horse battery staple", KEY.hex()[:-2], "", KEY.hex() + "00", "\u0661" * 64):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(StoreLocked, match="64 hexadecimal digits") as caught:
            keys.read_key(str(path))
        assert not text.strip() or text not in str(caught.value)


def test_a_command_prints_the_key_without_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Words are arguments, never shell text; a failing command and a wrong output are errors that hide the output."""
    monkeypatch.chdir(tmp_path)
    say = [sys.executable, "-c", "import sys; print(sys.argv[1])"]
    assert keys.configured_key({"command": [*say, KEY.hex()]}) == KEY
    with pytest.raises(StoreLocked) as caught:
        keys.configured_key({"command": [*say, "$(touch planted); secret-word"]})
    assert "secret-word" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreLocked, match="failed with status 3"):
        keys.configured_key({"command": [sys.executable, "-c", "raise SystemExit(3)"]})
    with pytest.raises(StoreLocked, match="cannot be run"):
        keys.configured_key({"command": ["no-such-program-here"]})
    monkeypatch.setattr(keys, "COMMAND_SECONDS", 0.2)
    with pytest.raises(StoreLocked, match="did not end within"):
        keys.configured_key({"command": [sys.executable, "-c", "import time; time.sleep(20)"]})


class InMemory(KeyringBackend):
    """A keyring of this process: the machines that run the tests have no keyring of the system."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


def test_the_keyring_is_used_by_its_library(monkeypatch: pytest.MonkeyPatch):
    """A key is made once and read back under its name; a missing entry, backend or library is one clear error."""
    backend = InMemory()
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        with pytest.raises(StoreLocked, match="the keyring has no key 'store'"):
            keys.configured_key({"keyring": "store"})
        keys.keep_new_key("store")
        found = keys.configured_key({"keyring": "store"})
        assert found is not None
        assert backend.kept == {("onrecord", "store"): found.hex()}
        with pytest.raises(InvalidInput, match="never replaced"):
            keys.keep_new_key("store")
        keyring.set_keyring(fail.Keyring())
        with pytest.raises(StoreLocked, match="cannot be used here: No recommended backend"):
            keys.configured_key({"keyring": "store"})
    finally:
        keyring.set_keyring(before)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(StoreLocked, match="not installed") as caught:
        keys.configured_key({"keyring": "store"})
    assert caught.value.hint == 'pip install "onrecord[keyring]"'


@pytest.mark.parametrize(
    "chosen", [{"password": "x"}, {"file": 5}, {"file": ""}, {"command": "pass show x"}, {"command": []},
               {"file": "a", "keyring": "b"}]
)  # fmt: skip
def test_wrong_settings_are_named(chosen: dict[str, object]):
    """An unknown name, a wrong type, a shell line and two sources are refused."""
    with pytest.raises(InvalidInput, match=r"^encryption: "):
        keys.configured_key(chosen)
