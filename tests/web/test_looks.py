"""How the page looks and who can use it: axe, phone, dark, large text, print, and a session of many events."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from onrecord.connection import open_store
from onrecord.session.session_store import SessionStore
from tests.web.test_browser import open_session

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="package")
def axe() -> str:
    found = find_spec("axe_playwright_python")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    page.evaluate(axe + ";0")
    found = page.evaluate("axe.run().then(found => found.violations)")
    return [(one["id"], [node["html"][:160] for node in one["nodes"][:3]]) for one in found]


def test_axe_finds_nothing_on_any_page_in_light_and_dark(page, served, axe):
    """The first page, a session with an open event, each tab, and the dialogs."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.goto(served.base)
        page.wait_for_selector("#live.ok")
        assert violations(page, axe) == [], f"the first page, {scheme}"
        open_session(page, served, more="#e14")
        page.wait_for_selector("#inspector dl")
        page.wait_for_selector("#lanes svg")
        assert violations(page, axe) == [], f"a session, {scheme}"
    for tab in ("findings", "attempts", "log"):
        page.click(f"#tabs a[data-tab={tab}]")
        page.wait_for_function(
            "tab => document.querySelector(`#tabs a[data-tab=${tab}]`).hasAttribute('aria-current')", arg=tab
        )
        assert violations(page, axe) == [], tab
    page.click("#act")
    assert violations(page, axe) == [], "the form"


def test_the_keyboard_skips_the_lanes(page, served):
    """The first stop of the keyboard leads past header and lanes, and reading there changes nothing else."""
    page.goto(f"{served.base}/s/{served.id_of('fix-invite-403')}?tab=files")
    page.wait_for_selector("#lanes svg")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#view') !== null")
    assert page.inner_text("#tabs [aria-current=page]").startswith("Files")


@pytest.mark.parametrize(("width", "height"), [(380, 740), (650, 425)])
def test_nothing_is_cut_off_on_a_phone_or_at_twice_the_size(page, served, width, height):
    """The page scrolls in one direction only, on every tab: on a phone, and in a window of 1300 pixels at 200 %."""
    page.set_viewport_size({"width": width, "height": height})
    session = f"/s/{served.id_of('fix-invite-403')}"
    tabs = [f"{session}?tab={name}" for name in ("findings", "attempts", "team", "files", "cost", "note", "log")]
    for address in ("/", "/cost", *tabs, session):
        page.goto(served.base + address)
        page.wait_for_selector("main")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{address} is {wide} wide"
    page.wait_for_selector("#live.ok")
    assert page.locator("#timeline").bounding_box()["height"] > 200
    page.click("#rows [data-position] >> nth=-1")
    page.wait_for_selector("#inspector dl")


def test_the_lanes_of_a_wide_window_fit_their_room(page, served):
    """Its time is stretched, its letters are not: every lane and the times below them are in sight, also after a resize."""
    shape = "() => { const box = document.querySelector('#lanes text.name').getBoundingClientRect(); return box.width / box.height; }"
    fits = "() => { const box = document.querySelector('#lanes'); return box.scrollHeight <= box.clientHeight; }"
    page.set_viewport_size({"width": 1240, "height": 800})
    open_session(page, served)
    page.wait_for_selector("#lanes svg")
    usual = page.evaluate(shape)
    for width in (1920, 2560):
        page.set_viewport_size({"width": width, "height": 1000})
        page.wait_for_function(
            "width => document.querySelector('#lanes svg').getBoundingClientRect().width > width", arg=width - 60
        )
        page.wait_for_function(fits)
        assert page.evaluate(shape) == pytest.approx(usual, rel=0.1)


def test_a_session_prints_without_controls_and_says_how_to_print_all_of_it(page, served):
    """On paper there are the lanes with their bars, the note and the entries, at full height; and no button."""
    open_session(page, served)
    page.wait_for_selector("#lanes svg .bar")
    assert not page.is_visible(".paper")
    page.emulate_media(media="print")
    assert page.is_visible("#lanes svg .bar >> nth=0")
    assert page.is_visible("#left :text('Read memberships from the primary')")
    assert "onrecord export fix-invite-403 --format html" in page.inner_text(".paper")
    for control in ("button", ".slider", "#live"):
        assert page.locator(control).locator("visible=true").count() == 0, control
    # Both at one moment: rows may still arrive.
    box, rows = page.evaluate(
        "['#timeline', '#rows'].map(one => document.querySelector(one).getBoundingClientRect().height)"
    )
    assert rows <= box < rows + 20
    assert page.evaluate("getComputedStyle(document.body).overflow") == "visible"
    page.goto(served.base)
    assert page.is_visible(".row >> nth=0")
    assert page.locator("button, #words").locator("visible=true").count() == 0


def test_who_wants_no_motion_gets_none(page, served):
    """Nothing on the page is animated, and playing steps slowly; without that wish it steps four times as fast."""
    times = {}
    for wish in ("reduce", "no-preference"):
        page.emulate_media(reduced_motion=wish)
        page.add_init_script("window.setInterval = new Proxy(window.setInterval, { apply(of, self, given) {"
                             " window.paces = [...(window.paces || []), given[1]]; return Reflect.apply(of, self, given); } })")  # fmt: skip
        open_session(page, served)
        page.keyboard.press("p")
        page.wait_for_selector(".chip.past")
        assert page.evaluate("document.getAnimations().length") == 0
        times[wish] = page.evaluate("window.paces.at(-1)")
        page.keyboard.press("p")
    assert times["reduce"] >= 4 * times["no-preference"]


def test_the_colours_follow_the_system(page, served):
    """Dark is dark and light is light, without a switch."""
    page.emulate_media(color_scheme="dark")
    page.goto(served.base)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="light")
    assert (dark, page.evaluate("getComputedStyle(document.body).backgroundColor")) == (
        "rgb(19, 21, 22)",
        "rgb(251, 251, 250)",
    )


def test_nothing_moves_while_a_page_loads(page, served):
    """The layout shift of the first page and of a session is below what a reader notices."""
    for address in ("/", f"/s/{served.id_of('fix-invite-403')}"):
        page.goto(served.base + address)
        page.wait_for_selector("#live.ok")
        page.wait_for_timeout(300)
        assert page.evaluate(SHIFT) < 0.05, address
    page.evaluate("document.querySelector('#view').style.marginTop = '200px'")
    page.wait_for_timeout(100)
    assert page.evaluate(SHIFT) > 0.05, "a part that moves is not noticed"


SHIFT = """() => new Promise(done => {
    new PerformanceObserver(list => done(list.getEntries().filter(one => !one.hadRecentInput).reduce((sum, one) => sum + one.value, 0)))
        .observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(0), 200);
})"""
"""How far things moved, as the browser counts it."""


@pytest.fixture(scope="package")
def long_session(served):
    """A session of many turns, written in a few commits."""
    store = open_store(served.records.url)
    with SessionStore(store, project="long") as records:
        session = records.create("long", objective="Ten thousand turns")
        agent = records.get("long", agent="claude").acquire()
        for start in range(0, 10_000, 500):
            drafts = [
                agent.log.draft("turn.recorded", {"items": [{"role": "user", "content": f"question {number}"},
                                                            {"role": "assistant", "content": f"answer {number}\n\n" + "words " * (number % 60)}]})
                for number in range(start + 1, start + 501)
            ]  # fmt: skip
            agent.log.append(*drafts, fenced=True)
        agent.leave()
        return session.id


def test_ten_thousand_turns_stay_light_however_far_one_scrolls(page, served, long_session):
    """The document never has more than 3,000 elements, any position is reached, and what is in sight is contiguous."""
    page.goto(f"{served.base}/s/{long_session}")
    page.wait_for_function("() => document.querySelector('#timeline').textContent.includes('answer 10000')")
    most = page.evaluate(
        """async () => {
            const box = document.querySelector("#timeline");
            let most = 0;
            for (let step = 0; step < 40; step++) {
                box.scrollTop = (step * 7919 % 40) / 40 * box.scrollHeight;
                for (let frame = 0; frame < 4; frame++) await new Promise(requestAnimationFrame);
                most = Math.max(most, document.querySelectorAll("*").length);
            }
            return most;
        }"""
    )
    assert most < 3_000
    page.goto(f"{served.base}/s/{long_session}#e5002")
    page.wait_for_function("() => document.querySelector('#rows .sel')?.textContent.includes('question 5000')")
    positions = page.evaluate("[...document.querySelectorAll('#rows > *')].map(one => Number(one.dataset.position))")
    assert positions == list(range(positions[0], positions[-1] + 1))


def test_a_row_that_was_jumped_to_stays_where_it_is_while_rows_above_it_are_measured(page, served, long_session):
    """Also with the next one by its key; until a person scrolls, and then everything moves that far."""
    page.goto(f"{served.base}/s/{long_session}")
    page.wait_for_function("() => document.querySelector('#timeline').textContent.includes('answer 10000')")
    for position in (5102, 3001, 2002):
        page.goto(f"{served.base}/s/{long_session}#e{position}")
        sees = "words => document.querySelector('#rows .sel')?.textContent.includes(words)"
        page.wait_for_function(sees, arg=f"question {position - 2}")
        page.keyboard.press("j")
        page.wait_for_function(sees, arg=f"question {position - 1}")
        box = page.locator("#timeline").bounding_box()
        for _ in range(12):
            page.wait_for_timeout(25)
            above = page.locator("#rows .sel").bounding_box()["y"] - box["y"]
            assert above == pytest.approx(box["height"] / 4, abs=2)
    page.locator("#timeline").evaluate("box => box.scrollTop += 40")
    page.wait_for_timeout(100)
    assert page.locator("#rows .sel").bounding_box()["y"] - box["y"] == pytest.approx(above - 40, abs=2)
