"""`onrecord store` and `onrecord doctor` on PostgreSQL, as a user runs them."""

import contextlib

import pytest

from onrecord.stores.postgres import PostgresStore
from onrecord.surfaces.cli.upkeep import doctor_server
from tests.cli.conftest import Command, bytecode
from tests.postgres.replicas import paired
from tests.postgres.servers import APP, OWNER, Stores, free_port, running

__all__ = ["bytecode"]


@pytest.fixture
def admin(postgres, tmp_path, bytecode) -> Command:
    """The command on a database without a store, as a role that may create one."""
    return Command(tmp_path, bytecode, url=postgres.empty_database())


def as_app(command: Command, bytecode) -> Command:
    return Command(command.place, bytecode, url=command.url.replace(f"//{OWNER}@", f"//{APP}@"))


def test_a_store_is_made_looked_at_and_used(admin, bytecode):
    """`store init` creates roles, tables and policies; then the app role works, and a second init changes nothing."""
    for words in (["list"], ["open", "work"], ["store", "status"], ["store", "migrate"]):
        assert "store init" in admin.error(*words, code=3, kind="not_initialised")["hint"]
    made = admin.data("store", "init", admin.url, kind="store")
    assert (made["state"], made["owner"], made["app"]) == ("initialised", "onrecord_owner", APP)
    assert admin.data("store", "init", kind="store")["state"] == "already_initialised"
    assert admin.data("store", "migrate", kind="store")["state"] == "already_migrated"
    app = as_app(admin, bytecode)
    app.ok("open", "work", "--objective", "Try it")
    status = app.data("store", "status", kind="store")
    assert (status["sessions"], status["events"], status["tenant"]) == (1, 1, "default")
    assert "schema version" in app.ok("store", "status")
    assert app.ok("gate", "--tool", "Edit", "--path", "x.py") == "allow\n"
    assert app.ok("search", "try").startswith("work")
    assert app.run("list", env={"ONRECORD_TENANT": "other"}).out == ""


@pytest.mark.parametrize("wrong", ["password", "database", "server"])
def test_who_cannot_get_in_is_told_why(admin, postgres, tmp_path, bytecode, wrong):
    """A wrong password, a missing database, a server that is down: one error with the server's message and a hint."""
    url, said = {
        "password": (f"postgresql://{APP}:hush@127.0.0.1:{postgres.server.port}/postgres", "authentication failed"),
        "database": (admin.url.replace("/store", "/no-store"), "does not exist"),
        "server": (f"postgresql://{APP}:hush@127.0.0.1:{free_port()}/postgres", "refused"),
    }[wrong]
    outside = Command(tmp_path, bytecode, url=url)
    for action in ("init", "migrate", "status"):
        error = outside.error("store", action, code=7, kind="store_busy")
        assert said in error["message"]
        assert "hush" not in error["message"]
        assert "password" in error["hint"]


def test_roles_may_have_other_names(admin):
    """`--owner` and `--app` name the roles; any name is quoted as an identifier."""
    made = admin.data("store", "init", "--owner", 'a "b"; DROP', "--app", "agents app", kind="store")
    assert (made["owner"], made["app"]) == ('a "b"; DROP', "agents app")
    assert admin.data("store", "migrate", kind="store")["app"] == "agents app"


def test_a_store_in_a_file_needs_no_init(admin, tmp_path):
    """`store init` and `migrate` are for PostgreSQL; `status` works for a file too, and never makes one."""
    file = tmp_path / "x.db"
    for action in ("init", "migrate"):
        admin.error("store", action, str(file), code=2, kind="invalid_input")
    admin.error("store", "status", str(file), code=3, kind="not_initialised")
    assert not file.exists()
    admin.ok("open", "fix", "--store", str(file))
    assert admin.data("store", "status", str(file), kind="store")["sessions"] == 1
    admin.error("store", "destroy", code=2, kind="usage")


def checks(command: Command, code: int = 0, *words: str):
    data = command.data("doctor", *words, kind="doctor", code=code)
    return {check["name"]: check for check in data["checks"]}, data["store"]


def test_the_doctor_tells_what_can_be_lost(tmp_path, bytecode):
    """The doctor says what a power cut or the loss of the server can lose, from settings and standbys; nothing only if true."""
    safe = [("fsync", "on"), ("full_page_writes", "on")]
    with running(safe) as server:
        app = Command(tmp_path, bytecode, url=Stores(server).fresh_database())
        app.ok("open", "work")
        found, facts = checks(app)
        assert {check["state"] for check in found.values()} <= {"ok", "info"}
        assert found["a power cut"]["value"] == "can lose nothing that was acknowledged"
        assert "everything since the last backup" in found["a lost server"]["value"]
        assert "18" in found["postgresql"]["value"]
        assert facts["synchronous_commit"] == "on"
        assert found["tenants"]["state"] == found["roles"]["state"] == found["bloat"]["state"] == "ok"
        assert "deleted" in checks(app, 0, "--fix")[0]["snapshots"]["value"]
        server.execute("ALTER SYSTEM SET synchronous_standby_names = 'one'", "SELECT pg_reload_conf()")
        found, _facts = checks(app, 1)
        assert found["a lost server"]["value"] == "can lose nothing that was acknowledged"
        assert "none is connected" in found["replication"]["value"]


def test_the_doctor_tells_how_far_a_standby_is(tmp_path, bytecode):
    """For an asynchronous standby it says how much could be lost, if the role may see it; for a synchronous one, nothing."""
    with paired(synchronous=False) as pair:
        app = Command(tmp_path, bytecode, url=pair.store())
        superuser = Command(tmp_path, bytecode, url=app.url.replace(f"//{APP}@", f"//{OWNER}@"))
        app.ok("open", "work")
        assert "pg_read_all_stats" in checks(app, 1)[0]["a lost server"]["value"]
        found, _facts = checks(superuser, 1)
        assert "bytes behind" in found["a lost server"]["value"]
        assert found["replication"]["value"].startswith("no commit waits for a standby; standby async streaming, ")
        pair.wait_for_standby()
        found, _facts = checks(superuser, 1)
        assert found["a lost server"]["value"] == "can lose nothing that was acknowledged"
        assert found["replication"]["state"] == "ok"
        assert found["replication"]["value"].startswith("commits wait for standby; standby sync streaming, ")


def test_the_doctor_names_bloated_tables(postgres, monkeypatch):
    """A table with many dead rows, more than living ones, is reported with its fix."""
    monkeypatch.setattr(doctor_server, "DEAD_ROWS", 100)
    url = postgres.fresh_database()
    postgres.server.execute(
        "INSERT INTO onrecord.names SELECT 't', 'p', n::text, 's' FROM generate_series(1, 200) AS n",
        "DELETE FROM onrecord.names",
        "SELECT pg_stat_force_next_flush()",
        database=url.partition("?")[0].rpartition("/")[2],
    )
    with contextlib.closing(PostgresStore(url)) as store:
        found = {check.name: check for check in doctor_server.server_checks(store, store.describe(), fix=False)}
    assert found["bloat"].state == "wrong"
    assert found["bloat"].value == "names (200 dead rows)"
    assert "VACUUM" in found["bloat"].advice


def test_the_doctor_names_what_is_unsafe(postgres, tmp_path, bytecode):
    """Fsync off, a role that bypasses row-level security, and a table without it are reported, each with its fix."""
    app = Command(tmp_path, bytecode, url=postgres.fresh_database())
    superuser = Command(tmp_path, bytecode, url=app.url.replace(f"//{APP}@", f"//{OWNER}@"))
    found, _facts = checks(superuser, 1)
    assert [name for name, check in found.items() if check["state"] == "wrong"] == ["a power cut", "roles", "tenants"]
    assert APP in found["roles"]["advice"]
    database = app.url.partition("?")[0].rpartition("/")[2]
    postgres.server.execute("ALTER TABLE onrecord.events NO FORCE ROW LEVEL SECURITY", database=database)
    found, _facts = checks(app, 1)
    assert found["tenants"]["state"] == "wrong"
    assert "events" in found["tenants"]["value"]


def test_the_doctor_shows_no_password(postgres, tmp_path, bytecode):
    """Neither the store's URL nor the environment is shown with a password."""
    url = postgres.fresh_database().replace(f"//{APP}@", f"//{APP}:hush@")
    done = Command(tmp_path, bytecode, url=url).run("doctor")
    assert "hush" not in done.out + done.err
    assert APP in done.out
