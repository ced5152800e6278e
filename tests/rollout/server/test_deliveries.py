"""What a trainer gets and sends over HTTP: nothing is delivered twice, counted twice or lost."""

import pytest

from onrecord.rollout.trajectory import Policy
from onrecord.session.retention import Policy as Retention
from tests.rollout.server.places import USER, code_of, message_of, says

SUB = {"role": "user", "content": "A task for a subagent."}
LEAST = -3.4028234663852886e38
"""The least number of float32."""


def post(proxy, session, what, **body):
    return proxy.http.post(f"/sessions/{session}/{what}", json=body)


def test_an_agent_that_keeps_the_last_messages_is_told(proxy, engine):
    """With an example in its first prompt, too, no turn is replaced: 400 with what to do, and the record stays."""
    session = proxy.new()
    first = [{"role": "system", "content": "Be brief."}, USER, {"role": "assistant", "content": "42"}, SUB]
    answer = message_of(proxy.chat(session, first))
    refused = proxy.chat(session, [first[0], SUB, answer, USER])
    assert code_of(refused) == (400, "invalid_input")
    assert "with branches" in refused.json()["error"]["hint"]
    deep = proxy.chat(session, [*first, answer, USER, message_of(proxy.chat(session, [*first, answer, USER])), SUB])
    message_of(deep)
    refused = proxy.chat(session, [*first, SUB])
    assert "POST .../branches" in refused.json()["error"]["hint"]
    assert proxy.record(session)["discarded"] == {"turns": 0, "tokens": 0}
    assert len(engine.requests) == 3


def test_the_least_logprobs_are_delivered(proxy, engine):
    """Logprobs whose sum no float32 can hold are finite all the same: samples are made, at every read."""

    def least(engine, asked):
        status, headers, body = says("Fine.")(engine, asked)
        for row in body["choices"][0]["meta_info"]["output_token_logprobs"]:
            row[0] = LEAST
        return status, headers, body

    session = proxy.new()
    engine.script.append(least)
    proxy.chat(session, [USER])
    for _read in range(2):
        (sample,) = post(proxy, session, "samples").json()["samples"]
        assert sample["logprobs"].count(LEAST) == sum(sample["loss_mask"])


def test_what_cannot_be_delivered_is_not_frozen(proxy):
    """A log with a logprob that JSON cannot carry is refused before the freeze: the session continues."""
    session = proxy.new()
    one = message_of(proxy.chat(session, [USER]))
    live = proxy.proxy.shelf.peek(session)
    live.rollout.trajectory.records[0].logprobs[0] = float("nan")
    assert code_of(post(proxy, session, "samples")) == (422, "assembly_failed")
    assert proxy.http.get(f"/sessions/{session}").json()["frozen"] is None
    message_of(proxy.chat(session, [USER, one, SUB]))


def test_a_branch_has_its_own_rewards(proxy):
    """The same reward of the same turn, given to trunk and branch, is in the samples of both."""
    session = proxy.new()
    one = message_of(proxy.chat(session, [USER]))
    assert post(proxy, session, "reward", reward=1.0, turn=0).json()["recorded"] is True
    proxy.chat(session, [USER, one, SUB])
    branch = post(proxy, session, "branches").json()["session_id"]
    for asked in ({"turn": 0}, {}):
        assert post(proxy, branch, "reward", reward=1.0, **asked).json()["recorded"] is True
    (sample,) = post(proxy, branch, "samples").json()["samples"]
    assert (sample["reward"], sample["turn_rewards"]) == (1.0, [1.0, None])


def test_the_same_name_gives_the_same_branch(proxy):
    """A repeated POST .../branches gets the same branch; another number of turns, or another session, is refused."""
    session, other = proxy.new(), proxy.new()
    for one in (session, other):
        proxy.chat(one, [USER])
    first = post(proxy, session, "branches", name="b", turns=1).json()
    assert post(proxy, session, "branches", name="b", turns=1).json() == first | {"created": False}
    assert post(proxy, session, "branches", name="b").json()["session_id"] == first["session_id"]
    assert (first["created"], first["turns"]) == (True, 1)
    assert code_of(post(proxy, session, "branches", name="b", turns=0)) == (409, "name_taken")
    assert code_of(post(proxy, other, "branches", name="b", turns=1)) == (409, "name_taken")
    proxy.http.delete(f"/sessions/{first['session_id']}")
    assert code_of(post(proxy, session, "branches", name="b", turns=1)) == (410, "session_retired")


@pytest.mark.parametrize("branches", [False, True])
def test_a_field_beside_an_acknowledgement_is_refused(start, branches):
    """It would have no effect; and nothing is acknowledged."""
    proxy = start(branches=branches, policy=Policy(max_rollback=0))
    session = proxy.new()
    proxy.chat(session, [USER])
    digest = post(proxy, session, "samples").json()["digest"]
    assert code_of(post(proxy, session, "samples", acknowledge=digest, merge=True)) == (400, "invalid_input")
    assert post(proxy, session, "samples", acknowledge=digest).status_code == 200


@pytest.mark.parametrize("body", [{"version": "8", "updating": True}, {"version": "8", "updating": 1}, {"updating": 1}])
def test_an_announcement_says_one_thing(proxy, body):
    """A version together with `updating` is refused: one of them would be dropped."""
    refused = proxy.http.post("/weights", json=body)
    assert code_of(refused) == (400, "invalid_input")
    assert "before the update" in refused.json()["error"]["hint"]
    assert proxy.http.post("/weights", json={"version": "8", "updating": False}).json() == {"version": "8"}


def test_a_version_that_cannot_be_recorded(proxy):
    """Half a letter as a version is refused at once: no turn could be recorded with it."""
    refused = proxy.http.post("/weights", content=b'{"version": "\\ud800"}')
    assert code_of(refused) == (400, "invalid_input")
    assert proxy.proxy.chat.weights is None


@pytest.mark.parametrize("how", ["deleted", "swept", "acknowledged"])
def test_a_line_that_ended_leaves_its_tree(start, how):
    """One line was deleted, or acknowledged alone: the tree continues and delivers the others, in every proxy."""
    proxy = start(branches=True, policy=Policy(max_rollback=0))
    session = proxy.new()
    one = message_of(proxy.chat(session, [USER]))
    line = proxy.chat(session, [SUB]).headers["onrecord-session"]
    if how == "acknowledged":
        digest = post(proxy, line, "samples").json()["digest"]
        assert post(proxy, line, "samples", acknowledge=digest).status_code == 200
    else:
        assert proxy.http.delete(f"/sessions/{line}").status_code == 204
    if how == "swept":
        swept = proxy.records.sweep(Retention(archive_closed_after=None, erase_retired_after=0))
        assert [(one.session, one.action) for one in swept] == [(line, "erase")]
    again = proxy.chat(session, [SUB])
    assert message_of(again)["content"] == "Fine."
    message_of(proxy.chat(session, [USER, one, SUB]))
    due = [session, again.headers["onrecord-session"]]
    for reader in (proxy, start(branches=True, policy=Policy(max_rollback=0))):
        told = post(reader, session, "samples").json()
        assert [sample["session"] for sample in told["samples"]] == due
        assert told["discarded_tokens"] == (6 if how == "deleted" else 0)
    assert post(proxy, session, "samples", acknowledge=told["digest"]).status_code == 200
    assert code_of(post(proxy, session, "samples")) == (410, "session_retired")


@pytest.mark.parametrize("branches", [False, True])
def test_an_acknowledgement_may_be_repeated(start, branches):
    """After a lost reply the same digest is confirmed again, by every proxy; another one, or a deletion, is not."""
    proxy = start(branches=branches, policy=Policy(max_rollback=0))
    session = proxy.new()
    proxy.chat(session, [USER])
    if branches:
        proxy.chat(session, [SUB])
    digest = post(proxy, session, "samples").json()["digest"]
    first = post(proxy, session, "samples", acknowledge=digest)
    assert first.status_code == 200
    for one in (proxy, start(branches=branches, policy=Policy(max_rollback=0))):
        again = post(one, session, "samples", acknowledge=digest)
        assert (again.status_code, again.content) == (200, first.content)
        assert post(one, session, "samples", acknowledge="0" * 64).status_code in (409, 410)
        assert code_of(proxy.chat(session, [USER])) == (410, "session_retired")
    deleted = proxy.new()
    proxy.chat(deleted, [USER])
    digest = post(proxy, deleted, "samples").json()["digest"]
    proxy.http.delete(f"/sessions/{deleted}")
    assert code_of(post(proxy, deleted, "samples", acknowledge=digest)) == (410, "session_retired")


def test_a_conflict_of_rewards_shows_the_difference(proxy):
    """Two rewards that differ in their last digit are shown with all of them."""
    session = proxy.new()
    post(proxy, session, "reward", reward=0.1 + 0.2)
    refused = post(proxy, session, "reward", reward=0.3)
    assert code_of(refused) == (409, "conflict")
    assert "0.30000000000000004 on record, not 0.3" in refused.json()["error"]["message"]


def test_hints_about_json_are_for_clients(proxy):
    """What cannot be recorded is refused with a hint about the request, and not about Python."""
    for body in ('{"group": "\\ud800"}', '{"metadata": {"x": 1e999}}'):
        refused = proxy.http.post("/sessions", content=body)
        assert code_of(refused) == (400, "invalid_input")
        assert refused.json()["error"]["hint"].startswith("send ")
