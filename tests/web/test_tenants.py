"""Many tenants behind one proxy: a header of the proxy names the tenant, and nothing else can."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from onrecord.connection import open_store
from onrecord.errors import InvalidInput, StoreError, TenantRefused
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.web import tenants
from onrecord.web.settings import Settings
from onrecord.web.tenants import Tenants, refuse_fixed_tenant

pytestmark = pytest.mark.timeout(60)
TOKEN = "a-secret-of-the-proxy-alone"
SETTINGS = Settings(TOKEN, tenant_header="X-Tenant", chosen_token=True)


def ask(url, path, *, token=TOKEN, **headers):
    """Status and text of an answer, as a proxy asks that names a tenant."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        named["authorization"] = f"Bearer {token}"
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url + path, headers=named), timeout=90)
    except urllib.error.HTTPError as problem:
        answer = problem
    with answer:
        return answer.status, answer.read().decode()


@pytest.fixture(scope="module")
def many(postgres, tmp_path_factory):
    """The real command on a store of two tenants, and the session of each of them."""
    folder = tmp_path_factory.mktemp("tenants")
    token = folder / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    urls = [postgres.empty_store(), postgres.empty_store()]
    store, names = urls[0].partition("&tenant=")[0], [url.partition("&tenant=")[2] for url in urls]
    sessions = []
    for url, name in zip(urls, names, strict=True):
        with SessionStore(open_store(url), project="shop") as records:
            sessions.append(records.create(f"of-{name}", objective=f"Secret of {name}").id)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONRECORD_")}
    command = [sys.executable, "-m", "onrecord", "web", "--json", "--port", "0", "--store", store, "--project", "shop",
               "--token-file", str(token), "--tenant-header", "X-Tenant"]  # fmt: skip
    server = subprocess.Popen(
        command, env=environment | {"HOME": str(folder)}, cwd=folder, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    yield json.loads(server.stdout.readline())["data"]["url"].rstrip("/"), names, sessions
    server.terminate()
    assert server.wait(90) == 0
    server.stdout.close()


def test_the_header_of_the_proxy_chooses_the_tenant_and_nothing_else_does(many):
    """Each sees its own sessions only: not by a parameter, not by the id of a session, not by a search."""
    url, names, sessions = many
    for mine, other in ((0, 1), (1, 0)):
        status, text = ask(url, f"/?all=1&tenant={names[other]}", x_tenant=names[mine])
        assert (status, f"of-{names[mine]}" in text, f"of-{names[other]}" in text) == (200, True, False)
        assert ask(url, f"/s/{sessions[mine]}", x_tenant=names[mine])[0] == 200
        status, text = ask(url, f"/s/{sessions[other]}", x_tenant=names[mine])
        assert (status, "Secret" in text) == (404, False)
        _status, text = ask(url, "/search?all=1&words=secret", x_tenant=names[mine])
        assert (names[mine] in text, names[other] in text) == (True, False)


def test_without_the_proxy_nobody_sees_anything(many):
    """No token, a token in the URL or in a cookie, no tenant, two of them, a name that is none: each is refused."""
    url, names, _sessions = many
    for status, path, token, headers in (
        (401, "/?all=1", "", {"x_tenant": names[0]}),
        (401, "/?all=1", "a-token-that-is-wrong", {"x_tenant": names[0]}),
        (401, f"/?all=1&token={TOKEN}", "", {"x_tenant": names[0]}),
        (400, "/?all=1", TOKEN, {}),
        (400, "/?all=1", TOKEN, {"x_tenant": "../x"}),
        (400, "/?all=1", TOKEN, {"x_tenant": ""}),
    ):
        got, text = ask(url, path, token=token, **headers)
        assert (got, "of-" in text) == (status, False), (path, headers)
    assert ask(url, "/health", token="")[0] == 200
    assert asked(Tenants(lambda _name: pytest.fail("opened"), SETTINGS), "a", "b")[0] == 400


def asked(site, *names, path="/"):
    """Status and body that a site of many tenants answers inside of this process."""
    sent = []

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {TOKEN}".encode())]
    headers += [(b"x-tenant", name.encode()) for name in names]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"all=1", "headers": headers}
    coroutine = site.application()(scope, receive, send)
    with ThreadPoolExecutor(1) as apart:  # the browser's driver has a loop in this thread
        apart.submit(asyncio.run, coroutine).result()
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent).decode()


def test_a_few_tenants_are_open_at_once_and_an_idle_one_makes_room(monkeypatch):
    """The one that was not used for longest is closed with its connections; if all are watched, one more has to wait."""
    monkeypatch.setattr(tenants, "TENANTS_OPEN", 2)
    closed = []

    def connect(name):
        store = MemoryStore()
        monkeypatch.setattr(store, "close", lambda: closed.append(name))
        records = SessionStore(store)
        records.create(f"of-{name}")
        return records

    site = Tenants(connect, SETTINGS)
    for name in ("a", "b", "a", "c"):
        status, text = asked(site, name)
        assert (status, f"of-{name}" in text) == (200, True)
    assert closed == ["b"]
    for one in site._open.values():
        one.busy = 1
    assert asked(site, "d")[0] == 503
    for one in site._open.values():
        one.site.hub.stop()
        one.site.shelf.stop()


@pytest.mark.parametrize(("problem", "status"), [(TenantRefused, 403), (StoreError, 503)])
def test_a_tenant_that_the_login_may_not_see_is_refused_without_details(problem, status):
    """The error names a login and a server: a viewer gets one sentence, and the next request tries again."""
    asks = []

    def connect(name):
        asks.append(name)
        raise problem("the login web of db.example is not a member")

    site = Tenants(connect, SETTINGS)
    for _ in range(2):
        got, text = asked(site, "a")
        assert (got, "login" in text, "db.example" in text) == (status, False, False)
    assert asks == ["a", "a"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tenant_header": "Cookie"}, "cannot be the header"), ({"tenant_header": "a b"}, "cannot be the header"),
        ({"chosen_token": False}, "prove itself"), ({"allow_writes": True}, "can only read"),
    ],
)  # fmt: skip
def test_a_header_is_only_taken_from_a_proxy_that_proves_itself(change, words):
    """Without a token that a person chose, with writes, or with a header of browsers, the server does not start."""
    with pytest.raises(InvalidInput, match=words):
        SETTINGS._replace(**change).checked()
    assert SETTINGS.checked().tenant_header == "X-Tenant"


@pytest.mark.parametrize(
    ("url", "named", "words"),
    [
        ("/x/y.db", None, "only a store in PostgreSQL"), ("postgresql://h/d?tenant=a", None, "fixed already"),
        ("postgresql://h/d", "a", "fixed already"),
    ],
)  # fmt: skip
def test_a_store_with_one_tenant_refuses_the_header(url, named, words):
    """A file has no tenants, and a URL or an environment that names one has decided."""
    with pytest.raises(InvalidInput, match=words):
        refuse_fixed_tenant(url, named)
    refuse_fixed_tenant("postgresql://h/d?sslmode=require", None)
