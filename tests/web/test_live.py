"""The page keeps up with the record: events appear, a lost connection is shown and repaired, and people act."""

import socket
from urllib.parse import urlsplit

import pytest

from onrecord.connection import connect, open_store
from tests.web import samples
from tests.web.conftest import Watch, start, stop
from tests.web.test_browser import open_session

pytestmark = pytest.mark.timeout(90)


def shows(page, words, where="#timeline"):
    page.wait_for_function(
        "([where, words]) => document.querySelector(where).textContent.includes(words)", arg=[where, words]
    )


def test_an_event_appears_without_a_reload_and_reading_is_not_disturbed(page, served):
    """At the end of the timeline new rows scroll in; further up the page says how many are new, and stays."""
    session = served.scratch.create("live-1", objective="Watch me")
    open_session(page, served, "live-1")
    page.wait_for_selector("#live.ok")
    session.decide("seen at once")
    shows(page, "seen at once")
    shows(page, "seen at once", "#left")
    for number in range(80):
        session.phases.log_work(f"line {number}")
    shows(page, "line 79")
    page.locator("#timeline").evaluate("box => box.scrollTop = 0")
    page.wait_for_timeout(100)
    session.decide("below the fold")
    page.wait_for_selector("#fresh:not([hidden])")
    assert page.locator("#timeline").evaluate("box => box.scrollTop") < 50
    assert "below the fold" not in page.inner_text("#timeline")
    page.click("#fresh")
    shows(page, "below the fold")


def test_the_first_page_keeps_up_too(page, served):
    """A new session appears, and one that begins to need a person moves up."""
    page.goto(f"{served.base}/?all=1")
    page.wait_for_selector("#live.ok")
    session = served.scratch.create("live-2", objective="Appear by yourself")
    shows(page, "live-2", "#list")
    session.findings.state("No access to the logs", "blocked")
    page.wait_for_function("() => document.querySelector('ul[aria-labelledby=needs]').textContent.includes('live-2')")
    session.close("done")
    page.wait_for_function("() => document.querySelector('ul[aria-labelledby=others]').textContent.includes('live-2')")


def test_eight_tabs_share_one_connection(context, served):
    """A browser allows six connections per host; eight tabs load all the same, and all of them hear of an event."""
    made, watch = context
    watch.problems.clear()
    session = served.scratch.create("live-3", objective="Many tabs")
    tabs = [made.new_page() for _ in range(8)]
    for tab in tabs:
        tab.goto(f"{served.base}/s/{session.id}")
    for tab in tabs:
        tab.wait_for_selector("#live.ok")
    session.decide("heard by all")
    for tab in tabs:
        shows(tab, "heard by all")
        tab.close()
    watch.check()


def test_a_lost_connection_is_shown_and_what_was_missed_comes_back(browser, tmp_path):
    """While the server is down the page says so; when it is back, what was recorded meanwhile appears."""
    store, token = tmp_path / "web.db", tmp_path / "token"
    token.write_text("a-token-that-somebody-chose\n")
    token.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with connect(str(store), project=samples.PROJECT) as records:
        session = records.create("away", objective="Survive a restart")
        options = ("--token-file", str(token), "--port", port)
        server, url = start(tmp_path, *options)
        made = browser.new_context()
        watch = Watch(made, urlsplit(url).netloc)
        watch.allowed.append("ERR_")  # a refused connection is what this test is about
        tab = made.new_page()
        tab.goto(f"{url}s/{session.id}?token={token.read_text().strip()}")
        tab.wait_for_selector("#live.ok")
        stop(server)
        tab.wait_for_selector("#live.bad")
        assert tab.inner_text("#live") == "disconnected"
        session.decide("recorded while it was away")
        server, _url = start(tmp_path, *options)
        shows(tab, "recorded while it was away")
        tab.wait_for_selector("#live.ok")
        made.close()
        watch.check()
        stop(server)


def test_a_person_acts_and_each_act_is_an_event_with_their_name(page, served):
    """Next action, decision, attempt, hold, pause and close, each after a form; what is refused is said in the form."""
    session = served.scratch.create("live-4", objective="Act on me")
    session.attempts.start("make deploy")
    open_session(page, served, "live-4")
    for action, fields, kind in (
        ("next", {"text": "Run the suite", "command": "make test"}, "next_action.set"),
        ("decide", {"text": "Ship it", "why": "it passes"}, "decision.made"),
        ("settle", {"number": "1", "outcome": "abandoned", "text": "the machine was replaced"}, "attempt.settled"),
        ("hold", {"text": "an incident"}, "session.held"),
        ("pause", {"text": "over night"}, "session.paused"),
    ):
        page.click("#act")
        page.select_option("dialog [name=action]", action)
        for name, value in fields.items():
            field = page.locator(f"dialog [name={name}]")
            field.select_option(value) if name == "outcome" else field.fill(value)
        page.click("dialog button.act")
        page.wait_for_selector("dialog", state="detached")
        event = next(session.log.newest())
        assert (event.kind, event.by) == (kind, "Ada")
    page.click("#act")
    page.select_option("dialog [name=action]", "settle")
    page.fill("dialog [name=number]", "1")
    page.watch.allowed.append("409")
    page.watch.allowed.append("400")
    page.click("dialog button.act")
    page.wait_for_function("() => document.querySelector('dialog [role=alert]').textContent.length > 10")
    assert "attempt" in page.inner_text("dialog [role=alert]")


def test_a_store_in_postgres_is_followed_too(postgres):
    """A viewer hears of a position that another connection committed, and gets the pages from the same store."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from onrecord.session.session_store import SessionStore
    from onrecord.web.app import Site
    from onrecord.web.home import home
    from onrecord.web.live import Hub
    from onrecord.web.read_only import ReadOnly
    from onrecord.web.settings import Settings

    url = postgres.empty_store()
    with SessionStore(open_store(url)) as records, SessionStore(ReadOnly(open_store(url))) as reading:
        session = records.create("followed")

        async def hear():
            hub = Hub(reading)
            hub.start()
            stream = hub.stream(frozenset({session.id}))
            heard = [await anext(stream), await anext(stream)]
            await asyncio.to_thread(session.decide, "heard")
            while f'"{session.id}":{session.head.position}' not in heard[-1]:
                heard.append(await asyncio.wait_for(anext(stream), 20))
            await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
            hub.stop()

        with ThreadPoolExecutor(1) as apart:  # the browser's driver has a loop in this thread
            apart.submit(asyncio.run, hear()).result()
        site = Site(reading, Settings("a-token-of-24-characters"))
        assert "followed" in home(site.frame, site.shelf, None, "", site.desk.now())
        assert "heard" in site.desk.page(session.id, "timeline", None, None)
        assert "heard" not in site.desk.page(session.id, "timeline", 1, None)
