"""`onrecord rollout serve` as a user runs it: how it starts, what it says, how it stops."""

import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from examples.rollout.running import proxy as start_proxy
from tests.rollout.server.places import USER, says, waits


def run(*words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "onrecord", "rollout", "serve", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.fixture
def serve(tmp_path, engine, tokenizer_place):
    """Starts the command and stops it at the end."""
    running = []

    def serve(*options, **environment):
        log = tmp_path / "proxy.log"
        running.append(
            start_proxy(tmp_path / "store.db", engine.url, tokenizer_place, *options, log=log, **environment)
        )
        return running[-1]

    yield serve
    for each in running:
        each.stop()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_in_order(serve, engine, tmp_path, how):
    """SIGTERM and Ctrl-C let a running turn finish, release the leases, and exit with 0 and without a traceback."""
    server = serve()
    session = httpx.post(f"{server.url}/sessions", trust_env=False).json()["session_id"]
    engine.script.append(waits(says("Fine.")))
    with ThreadPoolExecutor(1) as threads:
        path = f"{server.url}/sessions/{session}/v1/chat/completions"
        asked = threads.submit(httpx.post, path, json={"messages": [USER]}, timeout=90, trust_env=False)
        assert engine.arrived.acquire(timeout=90)
        server.process.send_signal(how)
        engine.go_on.set()
        assert asked.result().json()["choices"][0]["message"]["content"] == "Fine."
    assert server.wait() == 0
    assert (tmp_path / "proxy.log").read_text() == "note: stopped; every session can continue later\n"
    again = serve()
    answer = httpx.post(
        f"{again.url}/sessions/{session}/v1/chat/completions", json={"messages": [USER]}, trust_env=False
    )
    assert answer.json()["choices"][0]["message"]["content"] == "Fine."
    assert len(engine.requests) == 1


def test_a_second_ctrl_c_does_not_wait(serve, engine, tmp_path):
    """A second Ctrl-C cancels running turns: the client gets 503, and the next proxy runs the turn again."""
    server = serve()
    session = httpx.post(f"{server.url}/sessions", trust_env=False).json()["session_id"]
    path = f"/sessions/{session}/v1/chat/completions"
    engine.script.append(waits(says("Late.")))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(httpx.post, server.url + path, json={"messages": [USER]}, timeout=90, trust_env=False)
        assert engine.arrived.acquire(timeout=90)
        server.process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.process.wait(1)
        server.process.send_signal(signal.SIGINT)
        assert asked.result().status_code == 503
    assert server.wait() == 0
    assert (tmp_path / "proxy.log").read_text() == "note: stopped; every session can continue later\n"
    engine.go_on.set()
    answer = httpx.post(serve().url + path, json={"messages": [USER]}, timeout=90, trust_env=False)
    assert answer.json()["choices"][0]["message"]["content"] == "Fine."
    assert engine.prompts()[0] == engine.prompts()[1]


def test_turns_after_one_that_ran_out_of_tokens(serve, engine):
    """`--refuse-after-length` refuses them; without it they are accepted."""
    for options, status in ((["--refuse-after-length"], 400), ([], 200)):
        server = serve(*options)
        session = httpx.post(f"{server.url}/sessions", trust_env=False).json()["session_id"]
        path, messages = f"{server.url}/sessions/{session}/v1/chat/completions", [USER]
        engine.script.append(says("Let me", finish="length"))
        answer = httpx.post(path, json={"messages": messages}, timeout=90, trust_env=False).json()
        messages = [USER, answer["choices"][0]["message"], USER]
        assert httpx.post(path, json={"messages": messages}, timeout=90, trust_env=False).status_code == status


def test_it_says_where_it_is(tokenizer_place, tmp_path, engine):
    """The first line names the address, the engine and the policy; with --json it is an envelope."""
    command = [
        sys.executable, "-m", "onrecord", "rollout", "serve", "--upstream", engine.url, "--tokenizer",
        str(tokenizer_place / "tokenizer.json"), "--port", "0", "--store", str(tmp_path / "s.db"),
    ]  # fmt: skip
    for options in (["--abort-policy", "continue"], ["--json"]):
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(90) == 0
        if options == ["--json"]:
            answer = json.loads(said)
            assert (answer["kind"], answer["data"]["upstream"]) == ("rollout_proxy", engine.url)
        else:
            assert said.startswith("recording proxy on http://127.0.0.1:")
            assert "aborts: continue" in said


def test_a_token_comes_from_a_file_or_the_environment(serve, tmp_path):
    """The token is never on the command line; with one, every route but /health requires it."""
    (tmp_path / "token").write_text("open-sesame-open-sesame\n")
    (tmp_path / "token").chmod(0o600)
    for server in (
        serve("--token-file", str(tmp_path / "token")),
        serve(ONRECORD_ROLLOUT_TOKEN="open-sesame-open-sesame"),
    ):
        assert httpx.post(f"{server.url}/sessions", trust_env=False).status_code == 401
        headers = {"authorization": "Bearer open-sesame-open-sesame"}
        assert httpx.post(f"{server.url}/sessions", headers=headers, trust_env=False).status_code == 200
        assert httpx.get(f"{server.url}/health", trust_env=False).status_code == 200


def test_what_cannot_start_says_why(tokenizer_place, tmp_path):
    """A missing or wrong setting ends with the usage status and a sentence that names it; no store is created."""
    store = str(tmp_path / "new.db")
    known = ("--upstream", "http://127.0.0.1:1", "--tokenizer", str(tokenizer_place), "--store", store)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        (tmp_path / "empty").touch(0o600)
        for words, part in (
            (("--tokenizer", str(tokenizer_place), "--store", store), "needs --upstream"),
            (("--upstream", "http://x", "--store", store), "needs --tokenizer"),
            ((*known, "--host", "0.0.0.0", "--port", "0"), "without a token, anyone who can reach 0.0.0.0"),
            ((*known, "--port", port), "cannot listen"),
            ((*known, "--tokenizer", str(tmp_path)), "cannot read the tokenizer"),
            ((*known, "--abort-policy", "hope"), "abort-policy"),
            ((*known, "--token-file", str(tmp_path / "empty")), "is empty"),
            ((*known, "--upstream", "127.0.0.1:1"), "is not an engine's URL"),
            ((*known, "--upstream", "http://"), "is not an engine's URL"),
            ((*known, "--port", "65536"), "the port must be 0 to 65535"),
            ((*known, "--timeout", "0"), "--timeout must be more than 0 seconds"),
            ((*known, "--lease-seconds", "0"), "--lease-seconds must be more than 0 seconds"),
            ((*known, "--max-rollback", "9"), "max_rollback must be 0 to 8"),
            ((*known, "--matcher", "loose"), "a matcher must be a callable or one of strict, loose_reasoning"),
            ((*known, "--max-trim-tokens", "65"), "max_trim_tokens must be 0 to 64"),
            ((*known, "extra"), "extra"),
        ):
            done = run(*words, ONRECORD_ROLLOUT_TOKEN="")
            assert (done.returncode, done.stdout) == (2, ""), done.stderr
            assert part in done.stderr
            assert "Traceback" not in done.stderr
            assert not (tmp_path / "new.db").exists()
            if part.endswith("is missing"):
                assert "hint: onrecord rollout serve --upstream" in done.stderr


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "prometheus_client", "tokenizers", "jinja2"])
def test_without_the_extra_it_says_what_to_install(tokenizer_place, missing):
    """A package that is not installed is one clear error with the command that installs it."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from onrecord.surfaces.cli.main import main;"
        f"sys.exit(main(['rollout', 'serve', '--upstream', 'http://x', '--store', 'memory:', '--tokenizer', {str(tokenizer_place)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert 'pip install "onrecord[rollout]"' in done.stderr
    assert "Traceback" not in done.stderr
