"""How `./dev` gets a browser: with apt as root, and one clear sentence where that cannot be done."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[2] / "dev"
APT = """#!{python}
import sys
with open({log!r}, "a+") as log:
    log.seek(0)
    before = log.read()
    log.write(" ".join(sys.argv[1:]) + "\\n")
sys.exit("install" in sys.argv and "update" not in before)
"""


@pytest.fixture
def dev(monkeypatch, tmp_path):
    """The module of `./dev`, on a machine without a browser."""
    loader = SourceFileLoader("dev_under_test", str(DEV))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    made = module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(made)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return made


def make_apt(place):
    """An apt-get that finds no package before its lists are there, and writes down what it was asked."""
    for name, text in (("apt-get", APT.format(python=sys.executable, log=str(place / "asked"))),
                       ("env", '#!/bin/sh\nshift\nexec "$@"\n')):  # fmt: skip
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)


def test_a_machine_without_lists_of_packages_gets_them_and_then_chromium(dev, tmp_path, monkeypatch):
    """As in a fresh container: the first install finds nothing, so the lists are read, and it is tried again."""
    make_apt(tmp_path)
    monkeypatch.setattr(dev.os, "geteuid", lambda: 0)
    dev.browser()
    install = "install -y -qq --no-install-recommends chromium"
    assert (tmp_path / "asked").read_text().splitlines() == [install, "update -qq", install]


def test_without_root_and_without_a_browser_one_sentence_says_what_is_needed(dev, tmp_path, monkeypatch, capfd):
    """Nothing is tried, and nothing fails: who only changes other parts can still run their tests."""
    make_apt(tmp_path)
    monkeypatch.setattr(dev.os, "geteuid", lambda: 1_000)
    dev.browser()
    said = "".join(capfd.readouterr())
    assert said == (
        "dev: the tests of the page need Chromium, which only root can install here: apt-get install chromium\n"
    )
    assert not (tmp_path / "asked").exists()


def test_a_browser_that_is_there_is_used(dev, tmp_path, monkeypatch, capfd):
    """With any of the known browsers on the PATH, nothing is installed and nothing is said."""
    make_apt(tmp_path)
    monkeypatch.setattr(dev.os, "geteuid", lambda: 0)
    (tmp_path / "bin" / "chromium").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "chromium").chmod(0o755)
    dev.browser()
    assert "".join(capfd.readouterr()) == ""
    assert not (tmp_path / "asked").exists()
