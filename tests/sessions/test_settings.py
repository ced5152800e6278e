"""connect: which store and which project, by argument, environment, settings file and working directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onrecord
from onrecord.connection import retention_policy, settings
from onrecord.errors import InvalidInput, OnrecordError
from onrecord.session.retention import Policy


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    """No setting of the machine counts here."""
    for name in ("ONRECORD_STORE", "ONRECORD_PROJECT", "ONRECORD_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def configure(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "config" / "onrecord" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def made(path: Path) -> bool:
    with onrecord.connect() as records:
        records.create("work")
    return path.exists()


def test_the_default_is_one_file_of_the_user(tmp_path):
    """Without any setting the store is one file in the user's data directory, for that user alone (B04)."""
    path = tmp_path / "data" / "onrecord" / "onrecord.db"
    assert made(path)
    assert path.stat().st_mode & 0o077 == 0


def test_the_environment_comes_before_the_settings(tmp_path, monkeypatch):
    """An argument comes first, then ONRECORD_STORE, then the settings file."""
    configure(tmp_path, f'store = "{tmp_path}/settings.db"')
    assert made(tmp_path / "settings.db")
    monkeypatch.setenv("ONRECORD_STORE", f"{tmp_path}/environment.db")
    assert made(tmp_path / "environment.db")
    with onrecord.connect(f"sqlite:///{tmp_path}/argument.db") as records:
        assert records.sessions() == []
    assert (tmp_path / "argument.db").exists()


def test_the_project_is_the_repository(tmp_path, monkeypatch):
    """The project is the argument, ONRECORD_PROJECT, the setting, or the current repository with all its worktrees (A21)."""
    repository = tmp_path / "repository"
    (repository / "deep" / "inside").mkdir(parents=True)
    (repository / ".git").mkdir()
    worktree = tmp_path / "worktree"
    worktree.mkdir()
    own = repository / ".git" / "worktrees" / "worktree"
    own.mkdir(parents=True)
    (own / "commondir").write_text("../..\n")
    (worktree / ".git").write_text(f"gitdir: {own}\n")
    for place in (repository, repository / "deep" / "inside", worktree):
        monkeypatch.chdir(place)
        assert onrecord.connect("memory:").project == str(repository)
    configure(tmp_path, 'project = "from-settings"')
    assert onrecord.connect("memory:").project == "from-settings"
    monkeypatch.setenv("ONRECORD_PROJECT", "from-environment")
    assert onrecord.connect("memory:").project == "from-environment"
    assert onrecord.connect("memory:", project="given").project == "given"


@pytest.mark.parametrize(
    "url",
    ["postgres://host/db?tenant=/", "sqlite://", "sqlite:///", "sqlite://host/x.db", "sqlite:///x.db?mode=rw", "mysql://x", "http://x",
     "sqlite:///missing/directory/x.db", "sqlite:///x.db?durability=careless"],
)  # fmt: skip
def test_a_url_that_names_no_store_is_refused(url):
    """A text that does not name a store is refused with the valid forms; no file is created (B04)."""
    with pytest.raises(OnrecordError) as refusal:
        onrecord.connect(url)
    assert refusal.value.hint
    assert list(Path.cwd().glob("*.db")) == []


@pytest.mark.parametrize(
    "url", ["x.db", "sqlite:///x.db", "./x.db", "sqlite:///x.db?durability=fast", "sqlite:///%78.db"]
)
def test_a_relative_url_is_relative_to_here(url, tmp_path):
    """Three slashes and plain paths are relative to the working directory (B04)."""
    with onrecord.connect(url) as records:
        records.create("work")
    assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize(
    "text",
    [
        "store = ",
        "nonsense",
        'colour = "blue"',
        "store = 5",
        "retention = 3",
        b"\xff\xfe",
        '[store]\npath = "x"',
        "project = true",
    ],
)
def test_a_broken_settings_file_is_named(tmp_path, text):
    """A mistake in the settings file is reported with its path; nothing is guessed."""
    path = configure(tmp_path, text)
    with pytest.raises(InvalidInput) as refusal:
        onrecord.connect()
    assert str(path) in refusal.value.message
    with pytest.raises(InvalidInput):
        settings()


def test_a_settings_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    """A directory in place of the settings file, or an unreadable one, is reported and not ignored."""
    path = configure(tmp_path, "")
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidInput) as refusal:
        settings()
    assert str(path) in refusal.value.message
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "nowhere.toml"))
    assert settings() == {}


def test_the_retention_policy_can_be_set(tmp_path):
    """The settings' policy counts, missing values are the defaults, and a negative number means never (K04)."""
    assert retention_policy() == Policy()
    configure(tmp_path, "[retention]\narchive_closed_after = 7\nerase_closed_after = -1\nerase_paused_after = 0.5\n")
    assert retention_policy() == Policy(archive_closed_after=7, erase_closed_after=None, erase_paused_after=0.5)
    for wrong in ("erase_everything_after = 1", 'erase_closed_after = "soon"', "erase_closed_after = true"):
        configure(tmp_path, f"[retention]\n{wrong}\n")
        with pytest.raises(InvalidInput):
            retention_policy()


@pytest.mark.parametrize(
    "code",
    [
        "import onrecord; onrecord.connect('memory:')",
        "import onrecord.connection; onrecord.connect('memory:')",
        "from onrecord.connection import connect, open_store; import onrecord; onrecord.connect('memory:'); connect('memory:')",
        "import onrecord; from onrecord import aio; import onrecord.connection; onrecord.connect('memory:', project='x')",
        "from onrecord import connect, Session, replay; connect('memory:').open('work')",
    ],
)
def test_the_public_names_are_there_in_any_order(code):
    """Whatever was imported before, `onrecord.connect` can be called."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_exists():
    """Every name that `onrecord` lists exists; any other raises AttributeError as usual."""
    for name in onrecord.__all__:
        assert getattr(onrecord, name) is not None
    with pytest.raises(AttributeError):
        onrecord.nothing_of_the_kind  # noqa: B018 - the looking up is the test


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import onrecord", set()),
        ("import onrecord; onrecord.connect('memory:').open('work').record_turn([{'role': 'user'}])", set()),
    ],
    ids=["import", "a session in memory"],
)
def test_no_third_party_is_loaded(code, allowed):
    """`import onrecord`, and even work in memory, loads only the standard library."""
    look = (
        "import sys; before = set(sys.modules);" + code + ";"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before} - {'onrecord'};"
        "print(*sorted(root for root in roots if root not in sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert set(done.stdout.split()) == allowed
