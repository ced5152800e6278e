"""A web page, or another program of this machine, wants to use the recording proxy with its user's rights."""

import pytest

pytest.importorskip("starlette")

from starlette.datastructures import Headers

from onrecord.rollout.server.guard import Guard
from onrecord.rollout.server.settings import Settings


@pytest.fixture
def guard() -> Guard:
    return Guard(app=None, settings=Settings("http://127.0.0.1:1"))  # type: ignore[arg-type]  # it is not called


HOST = "127.0.0.1:8000"


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:9999", "http://localhost:8000.evil.example", "null", "http://evil.example", "http://[::1"],
)
def test_a_page_of_another_port_is_another_program(guard, origin):
    """An Origin with another port, host or nothing in it is refused; the proxy's own is accepted."""
    refusal = guard.refusal(Headers({"host": HOST, "origin": origin}))
    assert refusal is not None
    assert refusal.status_code == 403
    assert guard.refusal(Headers({"host": HOST, "origin": f"http://{HOST}"})) is None


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "text/plain; charset=utf-8", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
def test_a_form_is_not_a_request(guard, kind):
    """What a page can send without a preflight is refused; JSON, and a request without a body, are accepted."""
    refusal = guard.refusal(Headers({"host": HOST, "content-type": kind}), "POST")
    assert refusal is not None
    assert refusal.status_code == 415
    assert guard.refusal(Headers({"host": HOST, "content-type": "application/json"}), "POST") is None
    assert guard.refusal(Headers({"host": HOST}), "POST") is None


def test_a_token_must_be_long_and_private(desk, tmp_path):
    """A token file that others may read, or with one letter, is refused before the proxy listens."""
    token = tmp_path / "token"
    words = ("rollout", "serve", "--upstream", "http://127.0.0.1:1", "--tokenizer", "none", "--token-file", str(token))
    token.write_text("x" * 32)
    token.chmod(0o644)
    assert "other users may read the token file" in desk.run(*words).err
    token.chmod(0o600)
    token.write_text("x")
    assert "it needs at least 16" in desk.run(*words).err
    token.write_text("x" * 32)
    assert "token" not in desk.run(*words).err.partition("hint")[0].replace("tokenizer", ""), (
        "the control: another problem"
    )
