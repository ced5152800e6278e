"""A command loads what it needs and nothing else. (bench measures how long that takes.)"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.on_file  # a driver imports modules of its own choice

HEAVY = {
    "argparse", "asyncio", "dataclasses", "datetime", "inspect", "logging", "pathlib", "rich", "shutil", "subprocess",
    "tempfile", "tomllib", "traceback", "urllib.parse", "zstandard", "zstandard.backend_c",
}  # fmt: skip


def loaded(command, *words):
    """The modules that are loaded when the command has ended."""
    code = (
        "import sys; from onrecord.surfaces.cli.main import main\n"
        "status = main(sys.argv[1:]); sys.stderr.write(' '.join(sys.modules)); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words], cwd=command.project, capture_output=True, text=True, check=True,
        env=command.environment | {"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    return set(done.stderr.split())


def test_version_loads_next_to_nothing(command):
    """`onrecord version` loads three modules of ours and neither the store's driver nor typing."""
    modules = loaded(command, "version")
    ours = {name for name in modules if name.startswith("onrecord")}
    assert ours == {"onrecord", "onrecord.surfaces", "onrecord.surfaces.cli", "onrecord.surfaces.cli.main"}
    assert not modules & (HEAVY | {"apsw", "json", "re", "typing"})


@pytest.mark.parametrize(
    "words",
    [["decide", "text"], ["next", "text"], ["objective", "text"], ["__complete", "show", ""]],
    ids=lambda words: words[0],
)
def test_a_minimal_append_loads_no_luxury(working, words):
    """Recording one fact, and completion, load no parser, no pretty printer, no paths and no compression."""
    assert loaded(working, *words) & HEAVY == set()


def test_turns_load_only_when_used(working):
    """A command that records a fact does not load what turns, effects, compaction or time travel need."""
    modules = loaded(working, "decide", "text")
    for name in ("turns", "effects", "compaction", "moment", "retention", "bundle", "replay"):
        assert f"onrecord.session.{name}" not in modules
