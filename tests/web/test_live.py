"""The page keeps up with the record: events appear, a lost connection is shown and repaired, and people act."""

import json
import socket
from contextlib import suppress
from threading import Event, Thread
from urllib.parse import urlsplit

import pytest

from onrecord.connection import connect, open_store
from tests.postgres.servers import free_port
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
    port = str(free_port())
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


class Line:
    """A TCP line to a server that can fall silent, as for a machine that sleeps: nothing is closed, nothing arrives."""

    def __init__(self, port):
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._awake = Event()
        self._awake.set()
        self._generation = 0
        self._open: list[socket.socket] = []
        Thread(target=self._accept, daemon=True).start()

    def sleep(self):
        self._generation += 1
        self._awake.clear()

    def wake(self):
        """New connections work; those from before stay silent."""
        self._awake.set()

    def _accept(self):
        with suppress(OSError):
            while True:
                near, _address = self._listener.accept()
                self._awake.wait()
                far = socket.create_connection(("127.0.0.1", self._target))
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    Thread(target=self._pass, args=(one, other, self._generation), daemon=True).start()

    def _pass(self, one, other, generation):
        with suppress(OSError):
            while said := one.recv(65_536):
                if generation == self._generation:
                    other.sendall(said)
            other.close()

    def close(self):
        self._listener.close()
        for one in self._open:
            one.close()


def test_a_page_that_slept_sees_that_its_connection_is_dead_and_catches_up(browser, tmp_path, monkeypatch):
    """Nothing closes the connection. After a few beats without a word the page says so, connects again and is complete."""
    import uvicorn

    from onrecord.machine.http_server import listen
    from onrecord.web import live
    from onrecord.web.app import Site
    from onrecord.web.settings import Settings

    monkeypatch.setattr(live, "BEAT_SECONDS", 0.4)
    with connect(str(tmp_path / "web.db"), project=samples.PROJECT) as records:
        session = records.create("asleep", objective="Sleep well")
        listener = listen("127.0.0.1", 0)
        line = Line(listener.getsockname()[1])
        settings = Settings("a-token-of-24-characters", port=line.port)
        site = Site(records, settings)
        server = uvicorn.Server(uvicorn.Config(site.application(), log_level="error", ws="none"))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        made = browser.new_context()
        watch = Watch(made, f"127.0.0.1:{line.port}")
        watch.allowed.append("ERR_")
        tab = made.new_page()
        tab.goto(f"http://127.0.0.1:{line.port}/s/{session.id}?token={settings.token}")
        tab.wait_for_selector("#live.ok")
        line.sleep()
        session.decide("recorded while it slept")
        tab.wait_for_selector("#live.bad")
        assert "recorded while it slept" not in tab.inner_text("#timeline")
        line.wake()
        shows(tab, "recorded while it slept")
        tab.wait_for_selector("#live.ok")
        made.close()
        watch.check()
        site.hub.hush()
        server.should_exit = True
        thread.join(90)
        line.close()
    assert not thread.is_alive()


def test_a_person_acts_and_each_act_is_an_event_with_their_name(page, served):
    """Next action, decision, attempt, hold and release, pause and resume, close; what is refused is said in the form."""
    session = served.scratch.create("live-4", objective="Act on me")
    session.attempts.start("make deploy")
    open_session(page, served, "live-4")
    for action, fields, kind in (
        ("next", {"text": "Run the suite", "command": "make test"}, "next_action.set"),
        ("decide", {"text": "Ship it", "why": "it passes"}, "decision.made"),
        ("settle", {"number": "1", "outcome": "abandoned", "text": "the machine was replaced"}, "attempt.settled"),
        ("hold", {"text": "an incident"}, "session.held"),
        ("release", {"text": "the incident is over"}, "session.released"),
        ("pause", {"text": "over night"}, "session.paused"),
        ("resume", {"text": "good morning"}, "session.resumed"),
        ("close", {"text": "it works"}, "session.closed"),
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
        said = json.dumps(event.data)
        assert all(value in said for name, value in fields.items() if name != "number")
    assert session.refresh().status == "closed"
    page.click("#act")
    page.select_option("dialog [name=action]", "settle")
    page.fill("dialog [name=number]", "1")
    page.select_option("dialog [name=outcome]", "failed")
    page.watch.allowed.append("409")
    page.watch.allowed.append("400")
    page.click("dialog button.act")
    page.wait_for_function("() => document.querySelector('dialog [role=alert]').textContent.length > 10")
    assert "attempt" in page.inner_text("dialog [role=alert]")


def test_a_lost_attempt_is_what_the_form_asks_about(page, served):
    """Its number is filled in, and its outcome has to be chosen, so that one click too many is no success."""
    session = served.scratch.create("live-5")
    session.attempts.start("make deploy", process=samples.gone())
    open_session(page, served, "live-5")
    page.wait_for_selector(".needs [data-attempt='1']")
    page.click("#act")
    assert page.input_value("dialog [name=action]") == "settle"
    assert page.input_value("dialog [name=number]") == "1"
    assert page.input_value("dialog [name=outcome]") == ""
    page.click("dialog button.act")
    assert page.evaluate("document.querySelector('dialog [name=outcome]').validity.valueMissing")
    page.select_option("dialog [name=outcome]", "abandoned")
    page.fill("dialog [name=text]", "the machine was replaced")
    page.click("dialog button.act")
    page.wait_for_selector("dialog", state="detached")
    assert next(session.log.newest()).kind == "attempt.settled"


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
