"""How the page looks and who can use it: axe, phone, dark, large text, print, and a session of many events."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from onrecord.connection import open_store
from onrecord.session.session_store import SessionStore
from tests.web.test_browser import open_session

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="session")
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


@pytest.mark.parametrize(("width", "height", "zoom"), [(380, 740, 1), (650, 425, 2)])
def test_nothing_is_cut_off_on_a_phone_or_at_twice_the_size(page, served, width, height, zoom):
    """The page scrolls in one direction only, and everything that matters is there."""
    page.set_viewport_size({"width": width, "height": height})
    for address in ("/", f"/s/{served.id_of('fix-invite-403')}"):
        page.goto(served.base + address)
        page.wait_for_selector("#live.ok")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{address} is {wide} wide"
    assert page.locator("#timeline").bounding_box()["height"] > 200
    page.click("#rows [data-position] >> nth=-1")
    page.wait_for_selector("#inspector dl")


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
        shift = page.evaluate(
            """() => new Promise(done => new PerformanceObserver(list => done(list.getEntries().filter(
                one => !one.hadRecentInput).reduce((sum, one) => sum + one.value, 0)))
                .observe({ type: "layout-shift", buffered: true }) || setTimeout(() => done(0), 200))"""
        )
        assert shift < 0.05, address


@pytest.fixture(scope="session")
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
