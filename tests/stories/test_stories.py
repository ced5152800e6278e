"""Every story in this directory happens as written, on every store."""

from pathlib import Path

import pytest

from onrecord.stores.memory import MemoryStore
from tests.stores import EVERY, timed_store
from tests.stories import runner

HERE = Path(__file__).parent
STORIES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
@pytest.mark.parametrize("kind", EVERY)
def test_the_story_turns_out_as_it_is_told(story, kind, request, tmp_path, pytestconfig):
    """A scenario in plain words leads to the note, transcript and state written below it."""
    text, shown = runner.run(story, lambda clock: timed_store(kind, request, tmp_path, clock))
    if pytestconfig.getoption("--update-stories"):
        # Put in place whole: the same story may be read on another store, by another worker, at this moment.
        beside = story.with_suffix(f".{kind}")
        beside.write_text(shown, encoding="utf-8")
        beside.replace(story)
    else:
        assert shown == text


def test_every_story_says_what_it_is_about():
    """A story opens with a sentence, has a script, and shows at least the note, the transcript and the state."""
    assert len(STORIES) >= 12
    for story in STORIES:
        sections = runner.parse(story.read_text(encoding="utf-8"))
        assert sections[""].strip().endswith("."), story.name
        assert {"log", "note", "transcript", "state"} <= set(sections), story.name


def test_a_line_that_means_nothing_is_an_error():
    """A script line that the runner does not understand fails; no line is skipped."""
    story = runner.Story(lambda clock: MemoryStore(clock=clock))
    for line in ("main dances", "", "open"):
        if line:
            with pytest.raises(AssertionError, match="no verb"):
                story.do(line)
    story.step("open work as main: x")
    with pytest.raises(AssertionError, match="not refused"):
        story.step("main decides: y  !! lease_held")
