"""The page in a real browser: what people see, the keys, live updates, the past, and what a person does."""

import re
from datetime import datetime, timedelta, timezone

import pytest

pytestmark = pytest.mark.timeout(90)

TOKYO = timezone(timedelta(hours=9))


def open_session(page, served, name="fix-invite-403", more=""):
    page.goto(f"{served.base}/s/{served.id_of(name)}{more}")
    page.wait_for_selector("#rows [data-position]")
    return page


def position_of(served, name, kind, by=None):
    events = served.records.get(name).events(kinds=[kind])
    return next(event.position for event in events if by in (None, event.by))


def whole_text(page):
    """Everything that the timeline shows while a reader scrolls through it."""
    return page.evaluate(
        """async () => {
            const box = document.querySelector("#timeline"), seen = new Map();
            for (let at = 0; ; at += box.clientHeight / 2) {
                box.scrollTop = at;
                for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
                for (const row of document.querySelectorAll("#rows > *")) seen.set(row.id, row.textContent);
                if (at > box.scrollHeight) return [...seen.values()].join("\\n");
            }
        }"""
    )


def test_the_first_page_shows_who_needs_a_person_and_why(page, served):
    """The sessions that need a person come first, each with its reason in few words; the others follow."""
    page.goto(served.base)
    assert page.inner_text("#needs") == "NEEDS YOU · 4"
    needing = page.locator("ul[aria-labelledby=needs] .row")
    assert needing.locator("b").all_inner_texts() == [
        "dark-mode",
        "fix-invite-403",
        "nightly-migration",
        "flaky-search",
    ]
    reasons = needing.locator(".why").all_inner_texts()
    assert reasons[0] == "waits for you"
    assert re.fullmatch(r"limit until \d\d:\d\d (UTC|GMT\S*|[A-Z]{3,4})", reasons[1])
    assert reasons[2:] == ["settle attempt 1", "2 findings stale"]
    others = page.locator("ul[aria-labelledby=others] .row")
    assert others.locator("b").all_inner_texts() == ["release-notes", "rate-limiter", "invoice-rounding"]
    assert others.locator(".why").first.inner_text() == "working"
    page.wait_for_selector("#live.ok")
    assert page.title().startswith("(4) "), "a tab in the background says it too"


def test_typing_filters_the_sessions_and_searches_their_text_with_marks(page, served):
    """A word of a name or title filters the lists; a word of a message finds the event and marks the word."""
    page.goto(served.base)
    page.fill("#words", "schema")
    page.wait_for_function("() => document.querySelectorAll('#list .row').length === 1")
    assert page.inner_text("#list b") == "nightly-migration"
    page.fill("#words", "replica")
    page.wait_for_function("() => document.querySelector('#hits mark')?.textContent.toLowerCase() === 'replica'")
    page.locator("#hits a").first.click()
    page.wait_for_selector("#inspector h2")
    page.wait_for_url(re.compile(r"#e\d+$"))


def test_every_step_on_the_first_page_has_a_key(page, served):
    """J and k move, r copies the command that resumes, enter opens, ? shows the keys, g goes back."""
    page.goto(served.base)
    page.wait_for_selector("#live.ok")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.inner_text(".row.focus b") == "fix-invite-403"
    page.keyboard.press("k")
    assert page.inner_text(".row.focus b") == "dark-mode"
    page.keyboard.press("j")
    page.keyboard.press("r")
    page.wait_for_selector("#said.on")
    assert page.evaluate("navigator.clipboard.readText()") == "onrecord resume fix-invite-403 --agent claude --wait"
    page.keyboard.press("?")
    assert "copy the command that resumes it" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !document.querySelector('dialog[open]')")
    page.keyboard.press("/")
    page.wait_for_function("() => document.activeElement.id === 'words'")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/s/*")
    page.wait_for_selector("#rows [data-position]")
    page.keyboard.press("g")
    page.wait_for_selector("#needs")


def test_a_session_reads_like_what_happened(page, served):
    """Markdown is rendered, commands have exit codes, diffs are drawn, an aborted turn is visibly superseded."""
    open_session(page, served)
    page.locator("#timeline").evaluate("box => box.scrollTop = 0")
    page.wait_for_selector("#rows .turn .md li")
    seen = whole_text(page)
    assert "3 of 10 requests fail" in seen
    assert "exit 1" in seen
    assert re.search(r"aborted.*engine stopped answering.*superseded by", seen)
    page.goto(f"{page.url}#e{position_of(served, 'fix-invite-403', 'turn.begun', by='codex')}")
    page.wait_for_selector("#rows .diff ins", state="attached")
    left = page.inner_text("#left")
    for words in ("Read memberships from the primary after accept", "Auth middleware caches a stale role", "3/10"):
        assert words in left
    page.wait_for_selector("#chain.ok")
    assert page.inner_text("#chain") == "chain verified"
    assert page.locator("#lanes svg a").count() > 5


def test_an_event_is_inspected_by_click_and_by_key(page, served):
    """A link in a sentence leads to the event that proves it; arrows continue from there; c copies a link to it."""
    open_session(page, served)
    page.wait_for_selector("#chain.ok")
    page.locator("#left a.at[href='#e1']").first.click()
    page.wait_for_function("() => document.querySelector('#inspector h2')?.textContent === 'Event 1'")
    assert "session.opened" in page.inner_text("#inspector")
    assert "verified" in page.inner_text("#inspector dl")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#inspector h2').textContent === 'Event 2'")
    page.keyboard.press("c")
    page.wait_for_selector("#said.on")
    assert page.evaluate("navigator.clipboard.readText()").endswith(f"/s/{served.id_of('fix-invite-403')}#e2")
    open_session(page, served, more="#e14")
    page.wait_for_function("() => document.querySelector('#inspector h2')?.textContent === 'Event 14'")
    assert page.locator("#rows .sel").count() == 1


def test_everything_on_the_page_goes_back_with_the_slider(page, served):
    """At an earlier position there are fewer findings, no later rows and no later next action; now brings them back."""
    open_session(page, served)
    page.wait_for_selector("#lanes svg")
    before = int(page.inner_text("#tabs a[data-tab=findings] .count"))
    assert page.inner_text("#used") == "56.9k tokens · $0.25"
    page.locator("#position").evaluate("one => { one.value = 12; one.dispatchEvent(new Event('input')) }")
    page.wait_for_selector(".chip.past")
    page.wait_for_function("() => !document.querySelector('#left').textContent.includes('Read memberships')")
    assert "12" in page.inner_text("#where b")
    assert int(page.inner_text("#tabs a[data-tab=findings] .count")) < before
    assert page.inner_text("#used") == "14.2k tokens · $0.09"
    positions = [int(one.get_attribute("data-position")) for one in page.locator("#rows [data-position]").all()]
    assert max(positions) <= 12
    assert page.locator("#lanes .later").count() > 0
    page.wait_for_url(re.compile("at=12"))
    page.reload()
    page.wait_for_selector(".chip.past")
    page.click("#now")
    page.wait_for_function("() => document.querySelector('#left').textContent.includes('Read memberships')")
    page.click("#compare")
    page.wait_for_selector("dialog table, dialog li")
    assert "finding" in page.inner_text("dialog")


def test_a_session_is_searched_played_and_zoomed_by_keys(page, served):
    """`/` finds words and leads to their event, `p` plays, `n` returns to now, `+` zooms, `?` explains keys and signs."""
    open_session(page, served)
    page.keyboard.press("?")
    assert "an attempt without an outcome" in page.inner_text("dialog .legend")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    page.keyboard.press("/")
    page.fill("dialog input", "replica")
    page.wait_for_selector("dialog mark")
    page.locator("dialog a").first.click()
    page.wait_for_selector("dialog", state="detached")
    page.wait_for_selector("#rows .sel")
    page.wait_for_selector("#lanes svg")
    before = page.evaluate("document.querySelector('#lanes svg').getBoundingClientRect().width")
    page.keyboard.press("+")
    assert page.evaluate("document.querySelector('#lanes svg').getBoundingClientRect().width") > 1.9 * before
    page.keyboard.press("p")
    page.wait_for_function("() => /[?]at=([3-9]|\\d\\d)/.test(location.href)")
    page.keyboard.press("n")
    page.wait_for_function("() => !location.href.includes('at=')")
    assert page.get_attribute("#play", "aria-pressed") == "false"


TABS = {
    "findings": "Mobile client retries too early", "attempts": "pytest -k invite --count 20", "team": "8d1f4a5e-11c2",
    "files": "db/router.py", "cost": "claude-opus-5", "note": "Next action:", "log": "session.opened",
}  # fmt: skip


def test_every_tab_shows_its_part_under_an_address_of_its_own(page, served):
    """Findings, attempts, team, files, cost, the note and the raw log; a key for each; without a script too."""
    open_session(page, served)
    for tab, words in TABS.items():
        page.click(f"#tabs a[data-tab={tab}]")
        page.wait_for_function("words => document.querySelector('#view').textContent.includes(words)", arg=words)
        page.wait_for_url(re.compile(f"tab={tab}"))
        plain = page.request.get(page.url).text()
        assert words in re.sub("<[^>]*>", "", plain)
    page.keyboard.press("1")
    page.wait_for_selector("#rows [data-position]")
    page.keyboard.press("2")
    page.wait_for_selector("#view .board")


def test_every_time_is_on_the_clock_of_the_reader(browser, served):
    """The server writes UTC; a browser in Tokyo shows its own hours, with the zone wherever there is room for it."""
    made = browser.new_context(timezone_id="Asia/Tokyo")
    page = made.new_page()
    page.goto(served.url)
    assert re.fullmatch(r"limit until \d\d:\d\d GMT\+9", page.locator(".why:has-text('limit')").inner_text())
    page.goto(f"{served.base}/s/{served.id_of('fix-invite-403')}?tab=log")
    page.wait_for_selector("#lanes text[data-at]")
    last = list(served.records.get("fix-invite-403").events())[-1]
    there = datetime.fromtimestamp(last.at / 1e6, TOKYO)
    assert page.locator(".log time").first.inner_text() == f"{there:%Y-%m-%d %H:%M:%S} GMT+9"
    assert page.locator(".log time").first.get_attribute("datetime").endswith("Z")
    assert page.inner_text("#where").endswith(f"{there:%Y-%m-%d %H:%M} GMT+9")
    page.keyboard.press("1")
    page.wait_for_selector("#rows [data-position]")
    shown = {row.get_attribute("datetime"): row.inner_text() for row in page.locator("#rows time").all()}
    for moment, clock in shown.items():
        assert f"{datetime.fromisoformat(moment).astimezone(TOKYO):%H:%M}" in clock
    assert len(shown) > 3
    tick = page.locator("#lanes text[data-at]").first
    there = datetime.fromtimestamp(int(tick.get_attribute("data-at")) / 1e3, TOKYO)
    assert tick.text_content() == f"{there:%m-%d %H:%M}"
    made.close()


def test_a_file_says_what_happened_to_it(page, served):
    """Each file has its findings, its last commit and the run that saw it changed, each with a link to the event."""
    page.goto(f"{served.base}/s/{served.id_of('flaky-search')}?tab=files")
    file = page.locator("#view li:has(code:text-is('search/weeks.py'))")
    assert "finding f1, stale: The week starts on Sunday" in file.inner_text()
    position = int(file.locator("a.at").first.inner_text())
    assert served.records.get("flaky-search").log.event(position).kind == "finding.stated"
    file.locator("a.at").first.click()
    page.wait_for_function("() => document.querySelector('#inspector').textContent.includes('finding.stated')")
