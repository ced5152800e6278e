"""URLs of PostgreSQL stores: our parameters, libpq's, and that no password is shown."""

import subprocess
import sys

import psycopg
import pytest

import onrecord
from onrecord.connection import open_store, shown_url
from onrecord.errors import InvalidInput, InvalidName
from onrecord.stores.postgres.address import address_of


def options_of(url):
    return psycopg.conninfo.conninfo_to_dict(address_of(url).conninfo)


def test_the_tenant_is_ours_and_the_rest_is_libpqs():
    """`tenant` is removed; hosts, ports, options and passwords with special characters reach libpq unchanged."""
    place = address_of("postgres://ada:p%40ss%2Fw@one:5433,two:5434/agents?tenant=acme&sslmode=require")
    assert place.tenant == "acme"
    found = psycopg.conninfo.conninfo_to_dict(place.conninfo)
    assert (found["host"], found["port"], found["dbname"]) == ("one,two", "5433,5434", "agents")
    assert (found["user"], found["password"], found["sslmode"]) == ("ada", "p@ss/w", "require")
    assert "tenant" not in found


def test_of_several_hosts_the_one_that_writes_is_found():
    """By default only a server that accepts writes is used, and a lost one is noticed in seconds; a URL may override both."""
    found = options_of("postgresql://one,two/x")
    assert found["target_session_attrs"] == "read-write"
    assert int(str(found["connect_timeout"])) <= 10
    assert int(str(found["tcp_user_timeout"])) <= 10_000
    assert options_of("postgresql://one/x?target_session_attrs=any")["target_session_attrs"] == "any"


def test_the_tenant_comes_from_url_then_environment_then_default(postgres, monkeypatch):
    """The URL's tenant counts, then ONRECORD_TENANT, then `default`; an illegal name is refused."""
    url = postgres.fresh_database()
    monkeypatch.setenv("ONRECORD_TENANT", "from-environment")
    for given, tenant in ((f"{url}&tenant=given", "given"), (url, "from-environment")):
        store = open_store(given)
        assert store.tenant == tenant  # type: ignore[attr-defined]  # a store in PostgreSQL
        store.close()
    assert address_of(url).tenant == "default"
    for wrong in ("a b", "../x", "x" * 65):
        with pytest.raises(InvalidName):
            address_of(f"postgresql://h/x?tenant={wrong}")
    with pytest.raises(InvalidInput):
        address_of("mysql://h/x")


@pytest.mark.parametrize(
    "url", ["postgresql://u:hush@h/x", "postgresql://h/x?user=u&password=hush", "postgres://u:hu%40hush@h/x"]
)
def test_no_password_is_shown(url):
    """A URL is shown without its password."""
    assert "hush" not in address_of(url).shown
    assert "hush" not in shown_url(url)
    assert "hush" in address_of(url).conninfo


@pytest.mark.parametrize("letter", "/?#%")
def test_a_password_that_is_not_encoded_is_refused_and_not_shown(letter):
    """If a character ends or spoils the password, the error does not repeat the text around it."""
    with pytest.raises(InvalidInput) as refused:
        open_store(f"postgresql://u:hush{letter}hush@127.0.0.1:1/x")
    assert "hush" not in f"{refused.value} {refused.value.hint}"


def test_a_url_without_a_host_means_this_machine(postgres, monkeypatch):
    """`postgresql:///database` keeps its slashes, for libpq and for people; the tenant of the environment is shown too."""
    monkeypatch.setenv("ONRECORD_TENANT", "acme")
    url = postgres.fresh_database().replace("onrecord_app@", "") + "&user=onrecord_app"
    assert url.startswith("postgresql:///store")
    store = open_store(url)
    store.close()
    assert shown_url(url) == store.url
    assert store.url.startswith("postgresql:///store")
    assert store.url.endswith("&tenant=acme")


def test_an_option_nobody_knows_is_refused():
    """A parameter that libpq does not know is invalid input, and the error names it."""
    with pytest.raises(InvalidInput, match="bogus"):
        open_store("postgresql://127.0.0.1:1/x?bogus=1")


def test_both_schemes_open_the_same_store(postgres):
    """`postgres://` and `postgresql://` are the same, also through `connect`."""
    url = postgres.empty_store()
    with onrecord.connect(url, project="/p") as records:
        records.open("work").leave()
    with onrecord.connect(url.replace("postgresql://", "postgres://"), project="/p") as records:
        assert [head.name for head in records.sessions()] == ["work"]


def test_without_the_driver_there_is_one_clear_error():
    """Without the extra, a PostgreSQL URL says what to install, and `import onrecord` needs none of it."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import onrecord\n"
        "try: onrecord.connect('postgresql://h/x')\n"
        "except onrecord.OnrecordError as problem: print(problem.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'pip install "onrecord[postgres]"'
