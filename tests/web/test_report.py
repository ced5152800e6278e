"""The report in a real browser, opened from disk: with and without JavaScript, narrow, dark, printed, and hostile."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onrecord.log.events import Event
from onrecord.pages.media import data_url
from onrecord.pages.options import Options
from onrecord.pages.report import Contents, report
from tests.pages.samples import sample
from tests.pages.test_hostile import HIDDEN, LINK, SCRIPT, SVG, contents, items, poisoned
from tests.web.conftest import Watch

pytestmark = pytest.mark.timeout(90)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A report of a session, and one in which every text is hostile."""
    place: Path = tmp_path_factory.mktemp("report")
    session = sample()
    events = list(session.events())
    whole = Contents(session.views, events, session.note(), 1, verified=True, needs=["attempt 3 has no outcome"])
    (place / "session.html").write_text("".join(report(whole)))
    long = [one._replace(data=poisoned(one.data, "x" * 300), by="y" * 60) for one in events]
    head = session.head._replace(name="n" * 64, project="p" * 90)
    made = contents(long)._replace(needs=["w" * 200], command="c" * 90)
    made.whole.head = head
    (place / "long.html").write_text("".join(report(made)))
    bad: list[Event] = []
    for text in (SCRIPT, SVG, LINK, HIDDEN):
        bad += [one._replace(data=poisoned(one.data, text), by=text, position=len(bad) + 1) for one in events]
        bad.append(events[3]._replace(data={"items": items(text)}, position=len(bad) + 1))
    (place / "hostile.html").write_text("".join(report(contents(bad)._replace(options=Options(media=data_url)))))
    return place


@pytest.fixture
def tab(browser, folder, request) -> Iterator[Any]:
    """A tab with the report. It logs no error, breaks no policy and sends no request."""
    made = browser.new_context(**getattr(request, "param", {"viewport": {"width": 1280, "height": 860}}))
    made.set_default_timeout(60_000)
    watch = Watch(made, "")
    page = made.new_page()
    page.goto((folder / "session.html").as_uri())
    yield page
    made.close()
    watch.check()


def show(tab: Any, part: str) -> None:
    """Open a part of the report; the page does so after the click, when it has the new address."""
    tab.click(f".tabs a[href='#{part}']")
    tab.wait_for_selector(f"#{part}", state="visible")


def test_tabs_links_and_the_inspector_lead_to_events(tab):
    """One part is shown at a time; a link opens the part that has the event, selects it, and shows its payload."""
    assert tab.is_visible("#timeline")
    assert not tab.is_visible("#findings")
    show(tab, "findings")
    assert tab.is_visible("#findings .card")
    assert not tab.is_visible("#timeline")
    tab.click("#findings .card .ev a.at:has-text('trace-7')")
    tab.wait_for_selector("#timeline .fact.sel")
    assert "evidence.recorded" in tab.inner_text("#inspector")
    assert "replica +268 ms" in tab.inner_text("#inspector pre")
    tab.keyboard.press("j")
    assert "finding.stated" in tab.inner_text("#inspector")


def test_search_finds_folded_text_and_unfolds_it(tab):
    """The slash leads to the search; enter leads to the entry, and what is folded around the words is opened."""
    tab.keyboard.press("/")
    tab.keyboard.type("replica lags.")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => document.querySelector('.find [role=status]').textContent === '1 of 1'")
    assert tab.is_visible(".sel .thinking .md")
    assert tab.evaluate("CSS.highlights.get('found').size") == 1


def test_the_slider_shows_the_session_as_it_was(tab):
    """Going back hides later entries, and the panel, the findings and the attempts show what held then."""
    last = tab.locator("#timeline > .part > [id]").count()
    assert tab.is_visible(".note :text('Deploy it')")
    tab.evaluate(
        "() => { const s = document.querySelector('.slider input'); s.value = 9; s.dispatchEvent(new Event('input')); }"
    )
    assert tab.locator("#timeline > .part > [id]:visible").count() < last
    assert not tab.is_visible(".note :text('Deploy it')")
    assert tab.is_visible(".note :text('The row is not visible yet')")
    assert tab.inner_text(".slider output").startswith("position 9 of ")
    show(tab, "attempts")
    assert tab.locator("#attempts tbody tr:visible").count() == 1
    show(tab, "findings")
    assert [one for one in tab.locator(".col:visible h3").all_inner_texts() if "rejected" in one] == []


def test_lanes_are_zoomed_and_their_letters_keep_their_width(tab):
    """A button and a key make the picture wider, and back again; its words are as wide as before."""
    wide = "() => document.querySelector('.lanes svg').getBoundingClientRect().width"
    letters = "() => document.querySelector('.lanes svg text').getBoundingClientRect().width"
    before, word = tab.evaluate(wide), tab.evaluate(letters)
    tab.click("[data-zoom='2']")
    tab.keyboard.press("+")
    assert tab.evaluate(wide) == pytest.approx(4 * before, rel=0.01)
    assert tab.evaluate(letters) == pytest.approx(word, rel=0.1)
    tab.keyboard.press("-")
    tab.click("[data-zoom='0.5']")
    assert tab.evaluate(wide) == pytest.approx(before, rel=0.01)


def test_the_keyboard_comes_to_the_timeline_at_once(tab):
    """The first stop of the keyboard skips header and lanes; buttons that are only signs say what they do."""
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the timeline"
    assert tab.locator(".skip").bounding_box()["x"] >= 0, "it is seen while it has the focus"
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.closest('#timeline') !== null")
    for button in tab.locator(".slider button").all():
        said = button.inner_text().strip()
        if not any(letter.isalpha() for letter in said):
            assert button.get_attribute("title"), said
            assert button.get_attribute("aria-label"), said


def test_two_positions_are_compared(tab):
    """What began to hold between them, and what ceased to, each with the part of the note that it is in."""
    tab.click(".compare")
    tab.fill("dialog label:has-text('from') input", "5")
    tab.fill("dialog label:has-text('to') input", "9")
    tab.keyboard.press("Enter")
    said = tab.inner_text("dialog div")
    assert said.startswith("From 5 to 9: 4 more entries on the timeline.")
    assert "The row is not visible yet" in tab.inner_text("dialog h3:has-text('Findings') + ul")
    assert tab.locator("dialog li:has-text('pytest -k invite')").count() == 1
    assert "Deploy it" not in said
    tab.fill("dialog label:has-text('to') input", tab.get_attribute(".slider input[type=range]", "max"))
    tab.keyboard.press("Enter")
    assert "Deploy it" in tab.inner_text("dialog div")
    tab.click("dialog .close")
    tab.wait_for_selector("dialog", state="detached")


def test_changed_files_have_a_part_of_their_own(tab):
    """The files and commits of the record; at an earlier position only those of then."""
    show(tab, "files")
    assert "db/router.py\nchanged by claude with Edit" in tab.inner_text("#files")
    tab.evaluate(
        "() => { const s = document.querySelector('.slider input'); s.value = 2; s.dispatchEvent(new Event('input')); }"
    )
    assert "db/router.py" not in tab.inner_text("#files")


@pytest.mark.parametrize(
    "tab", [{"java_script_enabled": False, "viewport": {"width": 1280, "height": 860}}], indirect=True
)
def test_without_javascript_everything_is_there(tab):
    """Every part is on the page, folds open by a click, links work, and no control is shown that does nothing."""
    for part in ("#timeline", "#findings", "#attempts", "#cost", "#events"):
        assert tab.is_visible(part), part
    assert not tab.is_visible(".slider")
    assert not tab.is_visible(".find")
    tab.click("summary:has-text('what the signs mean')")
    assert "an attempt without an outcome" in tab.inner_text(".legend")
    fold = tab.locator("details.tool:has-text('Read db/router.py')")
    fold.locator("summary").click()
    assert fold.locator("pre").is_visible()


@pytest.mark.parametrize(
    "tab",
    [{"viewport": {"width": 380, "height": 800}}, {"viewport": {"width": 640, "height": 430}, "color_scheme": "dark"}],
    indirect=True,
)
def test_narrow_and_dark(tab, folder):
    """On a phone, and at 200 %, nothing is wider than the window or below the bar; colours follow the system."""
    for name in ("session", "long"):
        tab.goto((folder / f"{name}.html").as_uri())
        for part in ("timeline", "findings", "attempts", "events"):
            show(tab, part)
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, part)
    tab.goto((folder / "session.html").as_uri() + "#e22")
    tab.wait_for_selector("#e22.sel")
    tab.wait_for_function(
        "() => document.querySelector('#e22').getBoundingClientRect().top >= document.querySelector('.bars').getBoundingClientRect().bottom"
    )
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    is_dark = tab.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert colour == ("rgb(19, 21, 22)" if is_dark else "rgb(251, 251, 250)")


def test_print_has_every_part(tab):
    """Printed, the report has the findings and attempts too, and no controls."""
    tab.emulate_media(media="print")
    assert tab.is_visible("#findings .card")
    assert tab.is_visible("#attempts table")
    assert not tab.is_visible(".slider")


def test_axe_finds_nothing(tab):
    """Every part of the report is accessible, as far as axe can tell, in light and dark."""
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it has no types

    tab.evaluate("() => document.querySelectorAll('.middle > section').forEach((part) => { part.hidden = false; })")
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        found = Axe().run(tab).response["violations"]
        assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []
    tab.click(".compare")
    found = Axe().run(tab).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in found] == []


def test_hostile_text_does_nothing(browser, folder):
    """Scripts, handlers, SVG, links and invisible characters in every field run nothing, load nothing, break nothing."""
    made = browser.new_context()
    watch = Watch(made, "")
    page = made.new_page()
    page.goto((folder / "hostile.html").as_uri())
    assert page.locator("article.turn").count() > 8
    page.evaluate("() => document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for link in page.locator("a").all()[:40]:
        assert link.get_attribute("href").startswith(("#", "http"))
    assert page.locator("script").count() == 1
    assert page.locator("#timeline img, iframe, object, embed").count() == 0
    made.close()
    watch.check()
