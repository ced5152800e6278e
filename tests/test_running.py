"""How the tests are run: side by side and alone, without silent skips, and never green in CI without the real agents."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.e2e.room import CLOSED_PORT
from tests.parallel import DRIVING, SERIAL, SLOW, TOGETHER, is_serial, spread, together

ROOT = Path(__file__).resolve().parent.parent
CONFTEST = """
import tests.parallel
from tests.skips import NoSilentSkips

tests.parallel.SERIAL = ("alone/",)
tests.parallel.TOGETHER = ("kept/",)
tests.parallel.DRIVING = ("driving/",)

def pytest_xdist_make_scheduler(config, log):
    return tests.parallel.SideBySideThenAlone(config, log)

def pytest_configure(config):
    config.pluginmanager.register(NoSilentSkips(), "no-silent-skips")
"""
NOTED = """
import json, os, time
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_something(number):
    begun = time.monotonic()
    time.sleep(0.05)
    with open({file!r}, "a") as file:
        file.write(json.dumps([{kind!r}, number, os.getpid(), begun, time.monotonic()]) + "\\n")
"""


def run_tests(
    *words: str, cwd: Path = ROOT, more: Mapping[str, str] = MappingProxyType({})
) -> "subprocess.CompletedProcess[str]":
    """A separate run of pytest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CI"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", *words], cwd=cwd, text=True, check=False,
        capture_output=True, env={**kept, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more},
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that runs its tests as this one does."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def write_noted(project: Path, name: str, kind: str, count: int) -> None:
    place = project / name / f"test_{name}.py"
    place.parent.mkdir()
    if count:
        place.write_text(NOTED.format(count=count, kind=kind, file=str(project / "noted")))


def test_serial_tests_run_alone_and_last(project: Path):
    """Every test runs once; while a serial one runs no other does, and all of them run in one process, in their order."""
    write_noted(project, "alone", "alone", 5)
    write_noted(project, "shared", "shared", 23)
    done = run_tests("-n", "2", cwd=project)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1].startswith("28 passed")
    noted = [json.loads(line) for line in (project / "noted").read_text().splitlines()]
    shared, alone = ([one for one in noted if one[0] == kind] for kind in ("shared", "alone"))
    assert sorted(one[1] for one in shared) == list(range(23))
    assert [one[1] for one in alone] == list(range(5))
    assert len({one[2] for one in alone}) == 1
    assert len({one[2] for one in shared}) == 2
    assert max(one[4] for one in shared) < min(one[3] for one in alone)


@pytest.mark.parametrize(("alone", "shared"), [(3, 0), (0, 1), (1, 1)])
def test_few_tests_are_run_as_well(project: Path, alone: int, shared: int):
    """However few tests of a kind there are, all of them run and the run ends."""
    write_noted(project, "alone", "alone", alone)
    write_noted(project, "shared", "shared", shared)
    done = run_tests("-n", "2", cwd=project)
    assert done.stdout.splitlines()[-1].startswith(f"{alone + shared} passed"), done.stdout


def test_a_worker_that_dies_is_a_failure_and_the_rest_runs(project: Path):
    """A test that crashes its worker is reported as failed; every other one runs, the serial ones included."""
    write_noted(project, "alone", "alone", 3)
    write_noted(project, "shared", "shared", 6)
    (project / "shared" / "test_dies.py").write_text("import os\ndef test_dies():\n    os._exit(3)\n")
    done = run_tests("-n", "2", cwd=project)
    assert done.returncode == 1
    assert "1 failed, 9 passed" in done.stdout.splitlines()[-1], done.stdout


def test_every_opening_of_a_serial_test_exists():
    """A file or a test that is named as serial exists: after a rename it would silently run among the others."""
    openings = (*SERIAL, *TOGETHER, *DRIVING, *SLOW)
    files = [
        (ROOT / file, f"def {test}" if test else "") for file, _, test in (one.partition("::") for one in openings)
    ]
    assert [(file, test) for file, test in files if not file.exists()] == []
    assert [(file, test) for file, test in files if test and test not in file.read_text()] == []
    assert is_serial("tests/crash/test_many_writers.py::test_sixteen_writers_share_fairly")
    assert not is_serial("tests/laws/test_codec.py::test_roundtrip")


def test_tests_that_share_something_costly_run_on_one_worker(project: Path):
    """All tests of a group run in one process, before the others; and every test runs once."""
    write_noted(project, "kept", "kept", 6)
    write_noted(project, "shared", "shared", 12)
    write_noted(project, "alone", "alone", 1)
    done = run_tests("-n", "2", cwd=project)
    assert done.stdout.splitlines()[-1].startswith("19 passed"), done.stdout
    noted = [json.loads(line) for line in (project / "noted").read_text().splitlines()]
    kept = [one for one in noted if one[0] == "kept"]
    assert [one[1] for one in kept] == list(range(6))
    assert len({one[2] for one in kept}) == 1
    beside = [one for one in noted if one[2] == kept[0][2] and one[0] == "shared"]
    assert all(one[3] > kept[-1][3] for one in beside)


def test_a_group_that_is_most_of_the_run_is_shared_out():
    """Who runs the tests of one folder wants them side by side; in a whole run the folder is small, and stays together."""
    page = [f"tests/web/test_page.py::test_{number}" for number in range(4)]
    others = [f"tests/laws/test_codec.py::test_{number}" for number in range(4)]
    assert together([*page, *others], list(range(8)), 2) == [[0, 1, 2, 3]]
    assert together([*page, *others], list(range(8)), 3) == []
    assert together(page, list(range(4)), 2) == []


def test_slow_tests_are_spread():
    """Slow tests stand at even distances among the others, none at the end; every test stays in its order and none is lost."""
    assert spread([90, 91], [1, 2, 3, 4, 5, 6]) == [1, 90, 2, 3, 4, 91, 5, 6]
    assert spread([], [1, 2]) == [1, 2]
    assert spread([7], []) == [7]


FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_flaky(number):
    seen = Path({place!r}) / f"seen-{where}-{{number}}"
    seen.open("a").write("x")
    assert len(seen.read_text()) > {failures}, f"no luck with {{number}}"
"""


def write_flaky(project: Path, name: str, count: int, failures: int = 1) -> None:
    """So many tests, each of which fails so many times before it passes."""
    (project / name).mkdir()
    (project / name / f"test_{name}.py").write_text(
        FLAKY.format(count=count, place=str(project), where=name, failures=failures)
    )


@pytest.mark.parametrize("workers", ["1", "3"])
def test_a_driving_test_that_failed_among_the_others_runs_again_and_the_result_says_so(project: Path, workers: str):
    """Three tests of real programs may fail once: the run passes, names them, and shows what each of them said first."""
    write_flaky(project, "driving", 3)
    write_noted(project, "shared", "shared", 6)
    write_noted(project, "alone", "alone", 2)
    done = run_tests("-n", workers, cwd=project)
    assert done.returncode == 0, done.stdout
    assert "11 passed, 3 run again" in done.stdout.splitlines()[-1], done.stdout
    assert "3 tests passed only when run again alone" in done.stdout
    for number in range(3):
        assert f"driving/test_driving.py::test_flaky[{number}]\n" in done.stdout
        assert f"AssertionError: no luck with {number}" in done.stdout
        assert (project / f"seen-driving-{number}").read_text() == "xx"


def test_any_other_failure_fails_the_run(project: Path):
    """Tests of the engine and serial ones never run again, nor a fourth of real programs; one that fails twice has failed."""
    write_flaky(project, "alone", 1)
    write_flaky(project, "driving", 5, failures=2)
    write_flaky(project, "shared", 2)
    done = run_tests("-n", "2", cwd=project)
    assert done.returncode == 1
    assert "8 failed, 3 run again" in done.stdout.splitlines()[-1], done.stdout
    assert "passed only when" not in done.stdout
    assert sorted(len(seen.read_text()) for seen in project.glob("seen-*")) == [1, 1, 1, 1, 1, 2, 2, 2]


def test_who_stops_at_the_first_failure_gets_it_at_once(project: Path):
    """With -x no test runs again."""
    write_flaky(project, "driving", 1)
    done = run_tests("-n", "2", "-x", cwd=project)
    assert done.returncode != 0
    assert "1 failed" in done.stdout.splitlines()[-1], done.stdout


def test_a_failed_teardown_or_a_dead_worker_is_a_failure(project: Path):
    """Only a test that ran to its end and failed runs again."""
    (project / "driving").mkdir()
    (project / "driving" / "test_ends.py").write_text(
        "import os, pytest\n@pytest.fixture\ndef late():\n    yield\n    assert False, 'too late'\n"
        "def test_late(late):\n    pass\ndef test_dies():\n    os._exit(3)\n"
    )
    done = run_tests("-n", "2", cwd=project)
    assert done.returncode == 1
    assert "1 failed, 1 passed, 1 error" in done.stdout.splitlines()[-1], done.stdout


def test_a_silent_skip_fails_in_ci(project: Path):
    """In CI a skip fails the run, whichever worker reports it, unless its reason says why the machine cannot run it."""
    where = project / "test_skips.py"
    where.write_text("import pytest\ndef test_a():\n    pytest.skip('tired')\ndef test_b():\n    pass\n")
    done = run_tests("-n", "2", cwd=project, more={"CI": "true"})
    assert done.returncode == 1, done.stdout
    assert "test_skips.py::test_a: tired" in done.stdout
    where.write_text(where.read_text().replace("tired", "cannot run here: no moon"))
    assert run_tests("-n", "2", cwd=project, more={"CI": "true"}).returncode == 0


def test_ci_is_not_green_without_the_real_agents(tmp_path: Path):
    """Where an agent cannot be installed its tests are skipped with the reason, and in CI they fail with it."""
    offline = {
        "ONRECORD_TESTS_CACHE": str(tmp_path),
        "npm_config_registry": f"http://127.0.0.1:{CLOSED_PORT}",
        "npm_config_fetch_retries": "0",
        "npm_config_cache": str(tmp_path / "npm"),
    }
    words = ("tests/e2e/test_gemini.py", "-k", "test_killed_it_is_resumed", "-n", "0")
    skipped = run_tests(*words, more=offline)
    assert skipped.returncode == 0, skipped.stdout
    assert "cannot run here: @google/gemini-cli" in skipped.stdout
    failed = run_tests(*words, more={**offline, "CI": "true"})
    assert failed.returncode == 1, failed.stdout
    assert "CI runs the real coding agents: @google/gemini-cli" in failed.stdout
