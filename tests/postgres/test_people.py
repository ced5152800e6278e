"""`onrecord store grant`, `revoke`, `who`, `audit`, `retention` and `erase`, as the owner of a store runs them."""

import pytest

from onrecord.stores.postgres import PostgresStore, people, schema
from onrecord.stores.postgres.address import address_of, with_tenant
from tests.cli.conftest import Command, bytecode
from tests.postgres.servers import APP, OWNER
from tests.postgres.test_schema import as_app, first

__all__ = ["bytecode", "first"]


class Company:
    """A store, and commands on it under several logins."""

    def __init__(self, postgres, tmp_path, bytecode) -> None:
        self.url = postgres.empty_database()
        self.postgres, self.place, self.bytecode = postgres, tmp_path, bytecode
        self.admin = self.command(OWNER, "acme")
        self.admin.data("store", "init", with_tenant(self.url, "acme"), kind="store")

    def command(self, login: str, tenant: str) -> Command:
        url = with_tenant(self.url.replace(f"//{OWNER}@", f"//{login}@"), tenant)
        return Command(self.place, self.bytecode, url=url)

    def login(self, name: str) -> str:
        made = f"{name}_{self.url.partition('?')[0].rpartition('/')[2]}"
        self.postgres.server.execute(f"CREATE ROLE {made} LOGIN")
        return made


@pytest.fixture
def company(postgres, tmp_path, bytecode) -> Company:
    return Company(postgres, tmp_path, bytecode)


def test_a_login_is_granted_a_tenant_and_loses_it_again(company):
    """The app role works for the tenant of the init; another login and another tenant need a grant each, and a revoke ends it."""
    company.command(APP, "acme").ok("open", "work")
    error = company.command(APP, "globex").error("list", code=10, kind="tenant_refused")
    assert error["message"] == f"the login {APP} is not a member of tenant globex"
    assert f"`onrecord store grant {APP} --tenant globex`" in error["hint"]
    agent = company.login("agent")
    assert company.admin.ok("store", "grant", agent) == f"{agent} is now a writer of tenant acme\n"
    assert company.admin.data("store", "grant", agent, kind="member")["state"] == "already_granted"
    mine = company.command(agent, "acme")
    assert "work" in mine.ok("list", "--all")
    changed = company.admin.data("store", "grant", agent, "--auditor", kind="member")
    assert (changed["role"], changed["state"]) == ("auditor", "granted")
    error = mine.error("open", "more", code=1, kind="store_read_only")
    assert error["message"] == f"the login {agent} is an auditor of tenant acme: it may only read"
    assert f"`onrecord store grant {agent} --tenant acme`" in error["hint"]
    assert "work" in mine.ok("list", "--all")
    for verb in ("show", "log", "note", "verify"):
        mine.ok(verb, "work")
    assert mine.ok("search", "work")
    company.admin.ok("store", "grant", agent, "--tenant", "globex")
    done = company.admin.run("store", "revoke", agent)
    assert (done.out, done.err) == (
        f"{agent} may no longer work for tenant acme\n", f"note: {agent} may still work for tenant globex\n",
    )  # fmt: skip
    mine.error("list", code=10, kind="tenant_refused")
    assert company.admin.data("store", "revoke", agent, kind="member")["state"] == "already_revoked"


def test_who_lists_members(company):
    """`store who` lists logins, roles and tenants, superusers included; a login without the owner's rights sees itself."""
    service = company.login("service")
    company.admin.ok("store", "grant", service, "--every-tenant")
    company.admin.ok("store", "grant", APP, "--tenant", "globex", "--auditor")
    listed = company.admin.data("store", "who", kind="members")
    assert listed["everybody"]
    rows = {(row["login"], row["tenant"], row["role"]) for row in listed["members"]}
    assert {
        (APP, "acme", "writer"),
        (APP, "globex", "auditor"),
        (service, "*", "writer"),
        (OWNER, "*", "owner"),
    } <= rows
    assert "(every tenant)" in company.admin.ok("store", "who")
    one = company.admin.data("store", "who", "--tenant", "globex", kind="members")["members"]
    assert (APP, "acme") not in {(row["login"], row["tenant"]) for row in one}
    own = company.command(service, "anything")
    own.ok("open", "work")
    done = own.run("store", "who")
    assert service in done.out
    assert APP not in done.out
    assert "your own login" in done.err
    login = {check["name"]: check for check in own.data("doctor", kind="doctor", code=1)["checks"]}["login"]
    assert login["value"] == f"{service} may name any tenant"


@pytest.mark.parametrize(
    ("words", "code", "kind", "said"),
    [
        (["grant"], 2, "usage", "LOGIN is missing"),
        (["grant", "nobody-here"], 4, "not_found", "there is no login 'nobody-here'"),
        (["grant", OWNER], 2, "invalid_input", "is a superuser"),
        (["grant", "onrecord_auditor"], 2, "invalid_input", "cannot log in"),
        (["grant", APP, "--tenant", "../x"], 2, "invalid_name", "is not a valid tenant name"),
        (["grant", APP, "--tenant", "a", "--every-tenant"], 2, "usage", "contradict"),
        (["revoke"], 2, "usage", "LOGIN is missing"),
        (["who", "x"], 2, "usage", "unexpected argument"),
        (["audit", "maybe"], 2, "usage", "neither on nor off"),
        (["retention", "erase_closed_after"], 2, "usage", "is not RULE=DAYS"),
        (["retention", "forever=3"], 2, "invalid_input", "is not a setting"),
        (["erase"], 2, "usage", "--reason is missing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_one_sentence(company, words, code, kind, said):
    """Every mistake is refused with its reason and the way out."""
    error = company.admin.error("store", *words, code=code, kind=kind)
    assert said in error["message"]
    assert error["hint"]


def test_members_cannot_decide(company):
    """The app role may grant nothing: the refusal names the role that may."""
    for words in (["grant", APP], ["revoke", APP], ["audit", "on"], ["retention", "erase_closed_after=1"]):
        error = company.command(APP, "acme").error("store", *words, code=1, kind="store_read_only")
        assert "the role that created the store" in error["hint"], words
    file = Command(company.place, company.bytecode)
    assert "is not a PostgreSQL URL" in file.error("store", "who", code=2, kind="invalid_input")["message"]


def test_who_read_a_session_is_recorded_where_the_owner_wants_it(company):
    """Off by default; switched on, every reader of the tenant is listed, and an auditor may see the list too."""
    assert company.admin.data("store", "audit", kind="audit")["reads"] == []
    assert "`onrecord store audit on`" in company.admin.run("store", "audit").err
    on = company.admin.data("store", "audit", "on", kind="audit")
    assert on["state"] == "switched_on"
    assert on["from"]
    assert company.admin.data("store", "audit", "on", kind="audit")["state"] == "already_on"
    app, auditor = company.command(APP, "acme"), company.login("auditor")
    app.ok("open", "work")
    company.admin.ok("store", "grant", auditor, "--auditor")
    reader = company.command(auditor, "acme")
    reader.ok("show", "work")
    found = reader.data("store", "audit", "--session", "work", kind="audit")["reads"]
    assert {(read["login"], read["name"]) for read in found} == {(APP, "work"), (auditor, "work")}
    assert f"{auditor}\twork (" in company.admin.ok("store", "audit")
    off = company.admin.data("store", "audit", "off", kind="audit")
    assert (off["state"], off["audited"]) == ("switched_off", False)


def test_retention_is_decided_per_tenant(company):
    """What the owner decides for a tenant, `sweep` applies there, whatever the user's settings say; other tenants keep theirs."""
    app = company.command(APP, "acme")
    settings = company.place / ".config" / "onrecord" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[retention]\nerase_closed_after = 900\n")
    decided = company.admin.data(
        "store", "retention", "erase_closed_after=0", "archive-closed-after=never", kind="retention"
    )
    assert decided["decided"] == {"erase_closed_after": 0, "archive_closed_after": -1}
    assert "never" in company.admin.ok("store", "retention")
    app.ok("open", "work")
    app.ok("record", "--session", "work", "--user", "a transcript of some length")
    app.ok("close", "work", "--anyway", "a test")
    policy = app.data("sweep", "--dry-run", kind="sweep")["policy"]
    assert (policy["erase_closed_after"], policy["archive_closed_after"]) == (0, None)
    assert "the owner of the store decided" in app.run("sweep", "--dry-run").err
    assert [one["action"] for one in app.data("sweep", "--yes", kind="sweep")["swept"]] == ["erase"]
    company.admin.ok("store", "grant", APP, "--tenant", "globex")
    other = company.command(APP, "globex")
    assert other.data("sweep", "--dry-run", kind="sweep")["policy"]["erase_closed_after"] == 900
    assert company.admin.data("store", "retention", "default", kind="retention")["decided"] == {}


def test_a_tenant_is_erased_whole(company):
    """All content of a tenant goes, forks first; a hold is respected and reported; other tenants keep theirs."""
    app = company.command(APP, "acme")
    company.admin.ok("store", "grant", APP, "--tenant", "globex")
    other = company.command(APP, "globex")
    for one in (app, other):
        one.ok("open", "work", "--objective", "a canary")
    app.ok("fork", "work", "branch")
    app.ok("open", "kept")
    app.ok("hold", "kept", "--reason", "a lawsuit")
    app.error("store", "erase", "--reason", "x", "--no-input", code=2, kind="usage")
    planned = app.data("store", "erase", "--reason", "the contract ended", "--dry-run", kind="erasure", code=8)
    assert {one["name"]: one["action"] for one in planned["sessions"]} == {
        "work": "erase", "branch": "erase", "kept": "kept",
    }  # fmt: skip
    done = app.data("store", "erase", "--reason", "the contract ended", "--yes", kind="erasure", code=8)
    assert done["sessions"] == planned["sessions"]
    assert "canary" not in app.ok("list", "--all")
    assert app.data("verify", "--all", kind="verification")["ok"]
    database = company.url.partition("?")[0].rpartition("/")[2]
    left = "SELECT count(*) FROM onrecord.events WHERE tenant = '{}' AND convert_from(payload, 'UTF8') LIKE '%canary%'"
    for tenant, count in (("acme", 0), ("globex", 1)):
        assert company.postgres.server.execute(left.format(tenant), database=database) == [(count,)]


def test_an_older_store_works_on_as_it_is(first, postgres):
    """Migrating keeps every login at work: those with the app role may name any tenant until the owner binds them."""
    database = first.partition("?")[0].rpartition("/")[2]
    postgres.server.execute(f"CREATE ROLE agent_{database} LOGIN IN ROLE {APP}", f"CREATE ROLE other_{database} LOGIN")
    schema.migrate(address_of(first))
    members = {member[:3] for member in people.who(address_of(first), None)[0]}
    assert {(APP, "*", "writer"), (f"agent_{database}", "*", "writer")} <= members
    assert f"other_{database}" not in {login for login, _tenant, _role in members}
    for tenant in ("acme", "globex"):
        PostgresStore(with_tenant(as_app(first), tenant)).close()
    assert people.revoke(address_of(first), APP, people.EVERY_TENANT) == ["*"]
    schema.migrate(address_of(first))  # a second migration gives nothing back
    assert (APP, "*", "writer") not in {member[:3] for member in people.who(address_of(first), None)[0]}
