"""Safe: who may read and change, what a request cannot do, and text from agents that never acts."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

import pytest

from onrecord.errors import InvalidInput, StoreReadOnly
from onrecord.log import codec, shapes
from onrecord.log.events import KINDS
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.web.app import Site
from onrecord.web.guard import Guard
from onrecord.web.home import home
from onrecord.web.read_only import ReadOnly
from onrecord.web.settings import Settings
from onrecord.web.sturdy import sturdy
from tests.web.test_browser import whole_text

pytestmark = pytest.mark.timeout(90)
TOKEN = "a-token-of-24-characters"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments, **_more):
        return None


def ask(served, path, method="GET", body=None, token=True, **headers):
    """Status, headers and text of an answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        named.setdefault("authorization", f"Bearer {served.token}")
    request = urllib.request.Request(served.base + path, method=method, headers=named, data=body)
    try:
        answer = urllib.request.build_opener(NoRedirect).open(request, timeout=90)
    except urllib.error.HTTPError as problem:
        answer = problem
    with answer:
        return answer.status, answer.headers, answer.read().decode()


def test_nothing_of_the_record_is_shown_without_the_token(served):
    """Every route answers 401 without it, and with a wrong one; only the style and the health are open."""
    session = served.id_of("fix-invite-403")
    for path in ("/", "/list", "/search?words=a", "/cost", f"/s/{session}", f"/s/{session}/rows/0", f"/s/{session}/look",
                 f"/s/{session}/view/log", f"/s/{session}/lanes", f"/s/{session}/event/1", f"/s/{session}/verify",
                 "/live", "/static/session.js", "/?token=wrong"):  # fmt: skip
        status, _headers, text = ask(served, path, token=False)
        assert status == 401, path
        assert "invite" not in text
    assert ask(served, "/health", token=False)[0] == 200
    assert ask(served, "/", cookie="onrecord-1=" + "0" * 64, token=False)[0] == 401
    assert ask(served, "/static/../settings.py")[0] == 404


def test_the_token_of_the_url_becomes_a_cookie_that_no_script_and_no_other_site_can_use(served):
    """The answer redirects to the same address without it, and the cookie is HttpOnly and SameSite=Strict."""
    status, headers, _text = ask(served, f"/cost?all=1&token={served.token}", token=False)
    assert (status, headers["location"]) == (303, "/cost?all=1")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    assert served.token not in headers["set-cookie"]
    _status, headers, _text = ask(served, f"//evil.example/?token={served.token}", token=False)
    assert not headers.get("location", "").startswith("//")


def test_a_name_that_points_here_is_refused(served):
    """DNS rebinding: the browser sends the attacker's name as Host, and it gets nothing even with the token."""
    port = urlsplit(served.base).port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[::1"):
        status, _headers, text = ask(served, "/", host=host)
        assert status in (400, 403), host
        assert "invite" not in text
    assert ask(served, "/", host=f"localhost:{port}")[0] == 200


def test_another_site_can_neither_read_nor_change(served):
    """A foreign Origin is refused for every method; also another port of this machine, and a form without our header."""
    path, body = f"/s/{served.id_of('dark-mode')}/act", json.dumps({"action": "decide", "text": "forged"}).encode()
    good = {"origin": served.base, "x_onrecord": "act", "sec_fetch_site": "same-origin"}
    for change in ({"origin": "https://evil.example"}, {"origin": "http://127.0.0.1:1"}, {"origin": "null"},
                   {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}):  # fmt: skip
        assert ask(served, path, "POST", body, **(good | change))[0] == 403, change
    for left_out in ("origin", "x_onrecord"):
        assert ask(served, path, "POST", body, **{k: v for k, v in good.items() if k != left_out})[0] == 403, left_out
    assert ask(served, "/", origin="https://evil.example")[0] == 403
    assert ask(served, path, "POST", b"x" * 100_000, **good)[0] == 413
    assert "forged" not in str(served.records.get("dark-mode").views.facts.decisions)
    assert ask(served, path, "POST", body, **good)[0] == 200


def test_a_form_that_is_no_object_is_refused(served):
    """Half a form, another value, and one that is nested too deeply to be read get 400 and one sentence."""
    path, own = f"/s/{served.id_of('dark-mode')}/act", {"origin": served.base, "x_onrecord": "1"}
    for body in (b"{", b"[]", b"5", b"[" * 60_000):
        status, _headers, text = ask(served, path, "POST", body, **own)
        assert (status, json.loads(text)["code"]) == (400, "invalid_input"), body[:5]


def test_what_a_request_names_is_a_session_or_nothing(served):
    """Paths, SQL and foreign words in a request give 400 or 404 with a sentence, never a traceback."""
    session = served.id_of("fix-invite-403")
    for path in ("/s/..%2f..%2fetc%2fpasswd", "/s/' OR 1=1 --".replace(" ", "%20"), "/s/01ARZ3NDEKTSV4RRFFQ69G5FAV",
                 f"/s/{session}?tab=../x", f"/s/{session}?at=-1", f"/s/{session}?at=1e9", f"/s/{session}/event/0",
                 f"/s/{session}/event/999999", f"/s/{session}/rows/999999?at=99x", f"/s/{session}/media/1/0?p=/a",
                 f"/s/{session}/compare?from=9&to=2", f"/s/{session}/compare", "/search?words=" + "x" * 300,
                 f"/search?words=a&session={'x' * 26}", "/nothing"):  # fmt: skip
        status, _headers, text = ask(served, path)
        assert status in (400, 404), (path, status)
        assert "Traceback" not in text
        assert "onrecord" in text
    assert ask(served, f"/s/{session}/rows/999999")[0] == 200
    assert ask(served, "/search?words=%27%22%3B%20DROP%20TABLE%20events--%20*")[0] == 200


def test_every_answer_carries_the_policy(served):
    """Also refusals: no inline script or style, no frame, no sniffing, no referrer, no cache."""
    for path, token in (("/", True), ("/", False), ("/nothing", True), ("/static/page.css", False)):
        _status, headers, _text = ask(served, path, token=token)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] != ""
    assert ask(served, "/")[1]["cache-control"] == "no-store"


def test_the_page_reads_with_a_store_that_refuses_every_change():
    """Whatever the code of the page did by mistake, nothing is appended through it."""
    store = ReadOnly(MemoryStore())
    for verb in (
        store.create,
        store.append,
        store.acquire,
        store.join,
        store.renew,
        store.release,
        store.erase,
        store.install,
    ):
        with pytest.raises(StoreReadOnly):
            verb("session", [])
    assert store.heads() == []


def test_a_login_that_may_only_read_sees_the_pages(monkeypatch):
    """Caches that cannot be saved are not: an auditor's page works without them."""
    inner = MemoryStore()
    SessionStore(inner, project="audited").create("seen", objective="Read me")

    def refuse(*_arguments):
        raise StoreReadOnly("the login is an auditor")

    monkeypatch.setattr(inner, "save", refuse)
    monkeypatch.setattr(inner, "save_all", refuse)
    site = Site(SessionStore(inner, project="audited"), Settings(TOKEN))
    assert "seen" in home(site.frame, site.shelf, None, "", site.desk.now())
    assert "Read me" in site.desk.page("seen", "timeline", None, None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"host": "0.0.0.0"}, "everyone with the token"), ({"token": "short"}, "at least 16"),
        ({"token": "two words of a token"}, "one word"), ({"prefix": "x"}, "prefix"), ({"prefix": "//evil.example"}, "prefix"),
    ],
)  # fmt: skip
def test_settings_that_are_not_safe_are_refused(change, words):
    """Other addresses need a token that a person chose; a token has a length; a prefix is a path."""
    with pytest.raises(InvalidInput, match=words):
        Settings(**({"token": TOKEN} | change)).checked()
    assert Settings(TOKEN, host="0.0.0.0", chosen_token=True).checked().host == "0.0.0.0"


def test_a_port_that_does_not_exist_is_refused(served):
    """The command says which ports there are, and which one it was given."""
    command = [sys.executable, "-m", "onrecord", "web", "--port", "70000", "--store", served.records.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the port must be 0 to 65535, not 70000\nhint: port 0 picks a free one\n"


def test_a_token_file_that_others_can_read_is_refused(served, tmp_path):
    """The command says so in one sentence, with the command that helps."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    command = [sys.executable, "-m", "onrecord", "web", "--token-file", str(file), "--store", served.records.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == f"error: other users may read the token file {file}\nhint: `chmod 600 {file}`\n"


def answered(path, **headers):
    """What a guard behind a reverse proxy under a prefix lets through: the path that the application sees."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    seen, sent = [], []

    async def application(scope, _receive, send):
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    guard = Guard(application, Settings(TOKEN, hosts=("tools.example",), prefix="/onrecord", port=1))
    given = {"host": "tools.example", "authorization": f"Bearer {TOKEN}"} | headers
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"",
             "headers": [(name.encode(), value.encode()) for name, value in given.items()]}  # fmt: skip
    with ThreadPoolExecutor(1) as apart:  # the browser's driver has a loop in this thread
        apart.submit(asyncio.run, guard(scope, receive, send)).result()
    return seen[0] if seen else sent[0]["status"]


def test_behind_a_reverse_proxy_a_prefix_may_be_passed_on_or_removed():
    """Both ways lead to the same page; the proxy's own name is a good Host and Origin, any other is not."""
    assert answered("/onrecord/s/x") == answered("/s/x") == "/s/x"
    assert answered("/onrecord") == "/"
    assert answered("/onrecordings") == "/onrecordings"
    assert answered("/", origin="https://tools.example") == "/"
    assert answered("/", origin="https://evil.example") == 403
    assert answered("/", host="other.example") == 403


HOSTILE = (
    '"><img src=x onerror="window.hacked=1"><script>window.hacked=2</script><svg onload="window.hacked=3">'
    "</pre></details></article><iframe src=javascript:window.parent.hacked=4></iframe> [x](javascript:window.hacked=5) "
    "![y](http://192.0.2.1/a.png) <a href=http://192.0.2.1/>z</a> \x1b]8;;http://192.0.2.1\x07link \x1b[31m \u202e\u0000 "
    "```html\n<script>window.hacked=6</script>\n``` <style>*{display:none}</style> &lt;b&gt; {{7*7}} ' onmouseover='x"
)
KEPT = frozenset({
    "label", "outcome", "status", "role", "kind", "vendor", "cause", "id", "call", "model", "attempt", "finding", "evidence",
    "vendor_id", "captured", "format", "proof", "host", "boot", "space", "token", "mode", "via", "process", "project", "v",
})  # fmt: skip
"""Fields that choose a meaning: with other words the event would be a different one."""


@pytest.fixture
def from_elsewhere(monkeypatch):
    """Let events be written that this version refuses, as an older one or another program did."""
    monkeypatch.setattr(codec, "SHAPES", {})


ITEM = {
    "role": "assistant", "content": [{"type": "text", "text": HOSTILE}, {"type": HOSTILE, "text": HOSTILE}],
    "tool_calls": [{"id": "h", "name": HOSTILE, "arguments": {"command": HOSTILE, HOSTILE: [HOSTILE]}}],
}  # fmt: skip
SHAPED: dict[str, dict[str, Any]] = {
    "turn.recorded": {"items": [{"role": "user", "content": HOSTILE}, ITEM]}, "item.added": {"item": ITEM},
    "profile.chosen": {"profile": {"name": HOSTILE, "phases": [{"name": HOSTILE, "goal": HOSTILE, "checkpoint": [HOSTILE]}],
                                   "sections": [{"name": HOSTILE, "description": HOSTILE}]}},
    "feature.judged": {"passes": True}, "transcript.compacted": {"upto": 1}, "session.resumed": {"reopen": True},
    "tool.used": {"command": HOSTILE, "paths": [HOSTILE], "exit_code": 1}, "usage.recorded": {"input_tokens": 5},
    "tokens.recorded": {"part": "prompt", "ids": "", "runs": [[HOSTILE, 1]]},
    "secret.found": {"found": [{"rule": HOSTILE, "place": HOSTILE, "count": 1}], "kind": HOSTILE},
    "payload.erased": {"count": 1, "scope": HOSTILE},
    "payload.kept": {"vendor": "claude", "vendor_id": HOSTILE, "lines": [json.dumps({HOSTILE: HOSTILE})], "mark_before": [0]},
}  # fmt: skip
"""Kinds whose payload needs a form: hostile text inside of it."""
VALUES = {
    "text": HOSTILE, "number": 1, "count": 1, "moment": 1.0, "object": {HOSTILE: HOSTILE}, "list": [HOSTILE],
    "texts": [HOSTILE], "objects": [{HOSTILE: HOSTILE}], "amounts": {HOSTILE: 1},
    "revision": {"revision": HOSTILE, "branch": HOSTILE, "changed": [HOSTILE], "dirty": True},
}  # fmt: skip
"""A hostile value of each type that a field can have."""


def hostile_payload(kind):
    """A payload with hostile text in every field that the catalogue names, of the type that this version accepts."""
    named = (field.partition(":") for field in shapes._FIELDS.get(kind, "").split())
    fields = {name: VALUES[of] for name, _colon, of in named}
    needed = dict.fromkeys(KINDS[kind].needs.split(), HOSTILE)
    return needed | fields | {"text": HOSTILE, "reason": HOSTILE} | SHAPED.get(kind, {})


def poisoned(value, key=""):
    """A payload with the hostile text in every field that has text."""
    if isinstance(value, dict):
        return {name: one if name in KEPT else poisoned(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [poisoned(one, key) for one in value]
    return f"{HOSTILE} {value}" if isinstance(value, str) else value


def fill_with_hostile_text(served):
    """A session with the events of the samples and one of every kind, hostile text in all of them; and one more for two."""
    session = served.scratch.create("hostile", objective=HOSTILE, metadata={HOSTILE: HOSTILE})
    agent = served.scratch.get("hostile", agent="claude").acquire()
    for name in ("fix-invite-403", "flaky-search", "nightly-migration", "dark-mode"):
        for event in served.records.get(name).events():
            if not event.kind.startswith(("session.", "agent.left", "payload.")):
                draft = agent.log.draft(event.kind, poisoned(event.data))
                agent.log.append(draft, fenced=event.kind.startswith(("turn.", "item.")))
    line = json.dumps({"text": HOSTILE, "file": f"a{HOSTILE}.py"})
    reading = [{"line": 0, "turn": "begins", "items": [{"role": "user", "content": {"$": "/text"}}]},
               {"line": 0, "items": [{"role": "assistant", "content": {"$": "/text"},
                                      "tool_calls": [{"id": "c", "name": HOSTILE, "arguments": {HOSTILE: HOSTILE, "command": HOSTILE, "file_path": HOSTILE}}]}]}]  # fmt: skip
    agent.log.append(agent.log.draft("payload.kept", {
        "vendor": "claude", "vendor_id": "v", "agent": "claude", "lines": [line, line], "mark_before": [0], "reading": reading,
    }))  # fmt: skip
    ends = [kind for kind in KINDS if kind.startswith(("session.", "agent.left"))]
    for kind in [kind for kind in KINDS if kind not in ends]:
        draft = agent.log.draft(kind, hostile_payload(kind))
        agent.log.append(draft, fenced=kind.startswith(("turn.", "item.", "tokens.")))
    agent.leave()
    for kind in ("session.paused", "session.resumed", "session.titled", "session.held", "session.released",
                 "session.closed", "session.archived", "session.resumed", "session.renamed"):  # fmt: skip
        again = {"reopen": kind == "session.resumed" and session.refresh().status == "archived"}
        session.log.append(session.log.draft(kind, hostile_payload(kind) | again))
    fork = served.scratch.create("hostile-fork", objective=HOSTILE, metadata={HOSTILE: HOSTILE})
    fork.log.append(fork.log.draft("agent.left", hostile_payload("agent.left")))
    fork.log.append(fork.log.draft("session.forked", hostile_payload("session.forked")))
    return session, fork


def test_hostile_text_in_every_field_of_every_kind_never_acts(page, served, from_elsewhere):
    """Script, SVG, Markdown, ANSI and bidi in all events: nothing runs, the policy reports nothing, no request leaves."""
    session, fork = fill_with_hostile_text(served)
    written = {event.kind for one in (session, fork) for event in one.events() if "hacked" in json.dumps(event.data)}
    assert written == KINDS.keys(), "a kind of the catalogue has no hostile event: add it above"
    page.goto(f"{served.base}/?all=1")
    page.wait_for_selector(f"[data-session='{session.id}']")
    assert "onerror" in page.inner_text(f"[data-session='{session.id}'] b")
    page.fill("#words", "hacked")
    page.wait_for_selector("#hits mark")
    for one in (fork, session):
        page.goto(f"{served.base}/s/{one.id}")
        page.wait_for_selector("#rows [data-position]")
        page.wait_for_selector("#lanes svg")
        seen = whole_text(page)
        assert "window.hacked=2" in seen
        for tab in (
            ("findings", "attempts", "team", "files", "cost", "rollout", "note", "log") if one is session else ()
        ):
            page.goto(f"{served.base}/s/{one.id}?tab={tab}")
            page.wait_for_selector("#view > *")
        page.evaluate(EVERY_EVENT, [one.refresh().head.position])
        assert page.evaluate("window.hacked") is None
        assert page.locator("#view iframe, #inspector script, [onerror], [onload], [onmouseover]").count() == 0
        assert page.locator("img:not([src^='/'])").count() == 0
        links = page.evaluate(
            "[...document.querySelectorAll('a[href]')].map(one => one.getAttribute('href').toLowerCase())"
        )
        assert [one for one in links if one.startswith(("javascript:", "data:"))] == []


EVERY_EVENT = """async ([last]) => {
    const { text, put } = await import(document.querySelector("script[src*='session.js']").src.replace(/session\\.js.*/, "page.js"));
    const session = document.documentElement.dataset.session;
    for (let at = 1; at <= last; at++) put(document.querySelector("#inspector"), await text(`/s/${session}/event/${at}`));
    put(document.querySelector("#view"), await text(`/s/${session}/compare`, { from: 1, to: last }));
}"""


def test_what_the_policy_blocks_is_noticed(page, served):
    """The control of these tests: an inline handler, a style and a request to another host are blocked and reported."""
    page.goto(served.base)
    page.wait_for_selector("#live.ok")
    page.evaluate("""async () => {
        const { put } = await import(document.querySelector("script[src*='home.js']").src.replace(/home\\.js.*/, "page.js"));
        const place = document.createElement("div");
        document.body.append(place);
        put(place, "<img src=http://192.0.2.1/a.png onerror='window.hacked = 1'><style>* { display: none }</style>");
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("window.hacked") is None
    assert page.is_visible("#words")
    found = " ".join(page.watch.problems)
    for directive in ("script-src-attr", "img-src", "style-src-elem"):
        assert f"policy: {directive}" in found
    page.watch.problems.clear()


def test_an_event_of_an_unexpected_form_does_not_hide_the_page(page, served, from_elsewhere):
    """A profile that is a text, a finding that is a list: what cannot be read says so, and the rest is shown."""
    session = served.scratch.create("malformed", objective="Read me all the same")
    session.log.record("profile.chosen", {"profile": "not a profile"})
    session.log.record("finding.stated", {"claim": ["a", "list"], "label": {"x": 1}})
    session.log.record("attempt.started", {"command": 7, "signature": None})
    session.acquire()
    line = json.dumps({"text": "hello"})
    reading = [{"line": 0, "turn": "begins", "items": [{"role": "user", "content": {"$": "/text"}}]}]
    odd = {
        "vendor": "claude",
        "vendor_id": "v",
        "agent": "human",
        "lines": [line],
        "mark_before": [0],
        "reading": reading,
    }
    drafts = [session.log.draft("turn.recorded", {"items": "not items"}), session.log.draft("payload.kept", odd)]
    session.log.append(*drafts, fenced=True)
    session.decide("still readable")
    page.goto(f"{served.base}/s/{session.id}")
    page.wait_for_function("() => document.querySelector('#timeline').textContent.includes('still readable')")
    assert "still readable" in page.inner_text("#left")
    assert "the event at" in sturdy(lambda: str(int("a log from elsewhere")), 7)
    for tab in ("findings", "attempts", "team", "files", "cost", "note", "log"):
        assert ask(served, f"/s/{session.id}?tab={tab}")[0] == 200, tab
    assert ask(served, "/?all=1")[0] == 200
