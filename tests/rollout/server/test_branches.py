"""Branches: with `--branches`, a request that does not continue its session starts a line of its own; nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from onrecord.rollout.recording import open_rollout
from onrecord.rollout.trajectory import Policy
from onrecord.session.handle import Session
from tests.rollout.server.places import USER, code_of, ids_of, message_of, says, waits

MORE = {"role": "user", "content": "Go on."}


@pytest.fixture
def proxy(start):
    """A proxy with branches."""
    return start(branches=True, policy=Policy(max_rollback=0))


def tree(proxy, session):
    return proxy.http.get(f"/sessions/{session}/tree").json()


def line(response):
    assert response.status_code == 200, response.text
    return response.headers["onrecord-session"]


def answered(proxy, session, turns=3):
    """A conversation of some turns."""
    messages = [USER]
    for number in range(turns):
        if number:
            messages = [*messages, {"role": "user", "content": f"Number {number}."}]
        messages = [*messages, message_of(proxy.chat(session, messages))]
    return messages


def samples(proxy, session):
    return proxy.http.post(f"/sessions/{session}/samples").json()


def test_a_conversation_without_branches_stays_one_line(proxy, engine):
    """Turns, lost replies and refusals are as without branches, and there is one sample."""
    session = proxy.new()
    messages = answered(proxy, session)
    again = proxy.chat(session, messages[:-1])
    assert (line(again), len(engine.requests)) == (session, 3)
    (only,) = tree(proxy, session)["lines"]
    assert (only["session_id"], only["turns"], only["leaf"], only["parent"]) == (session, 3, True, None)
    assert len(samples(proxy, session)["samples"]) == 1


def test_a_compacted_context_is_a_branch(proxy, engine):
    """The agent replaces its history by a summary: a line of its own from an empty prefix; the first one stays whole."""
    session = proxy.new()
    answered(proxy, session)
    compacted = [{"role": "user", "content": "Summary: we added numbers."}, MORE]
    first = proxy.chat(session, compacted)
    assert line(first) != session
    then = proxy.chat(session, [*compacted, message_of(first), MORE])
    assert line(then) == line(first)
    root, other = tree(proxy, session)["lines"]
    assert (root["turns"], other["turns"], other["shared_turns"], other["parent"]) == (3, 2, 0, session)
    handed = samples(proxy, session)
    assert [one["session"] for one in handed["samples"]] == [session, line(first)]
    assert handed["discarded_tokens"] == 0
    assert handed["sampled_tokens"] == sum(sum(one["loss_mask"]) for one in handed["samples"])


def test_a_deep_edit_is_a_branch_that_shares_its_prefix(proxy, engine):
    """Siblings have the same first ids, and `shared_length` says how many; what follows the edit is history."""
    session = proxy.new()
    messages = answered(proxy, session)
    edited = [*messages[:2], {"role": "user", "content": "Something else."}, *messages[3:], MORE]
    made = proxy.chat(session, edited)
    assert line(made) != session
    (_root, other) = tree(proxy, session)["lines"]
    assert (other["shared_turns"], other["turns"]) == (1, 2)
    one, two = samples(proxy, session)["samples"]
    shared = two["shared_length"]
    assert shared == one["turn_ends"][0] > 0
    assert one["tokens"][:shared] == two["tokens"][:shared]
    assert engine.prompts()[-1][:shared] == two["tokens"][:shared]


def test_subagents_run_side_by_side(proxy, engine):
    """Two first prompts at the same time are two lines, even while the first is still being answered."""
    session = proxy.new()
    engine.script.append(waits(says("Main.")))
    child = [{"role": "system", "content": "You are a helper."}, USER]
    with ThreadPoolExecutor(1) as threads:
        main = threads.submit(proxy.chat, session, [USER])
        assert engine.arrived.acquire(timeout=90)
        helper = proxy.chat(session, child)
        engine.go_on.set()
        assert message_of(main.result())["content"] == "Main."
    assert {line(main.result()), line(helper)} == {one["session_id"] for one in tree(proxy, session)["lines"]}
    assert line(proxy.chat(session, [USER, message_of(main.result()), MORE])) == line(main.result())
    assert line(proxy.chat(session, [*child, message_of(helper), MORE])) == line(helper)


def test_best_of_n(proxy, engine, tokenizer):
    """`n` answers are n lines after the same prefix; the agent continues the one it likes; a lost reply is given again."""
    session = proxy.new()
    messages = [*answered(proxy, session, 1), MORE]
    engine.script.extend([says("One."), says("Two."), says("Three.")])
    made = proxy.chat(session, messages, n=3, seed=5)
    texts = [choice["message"]["content"] for choice in made.json()["choices"]]
    assert sorted(texts) == ["One.", "Three.", "Two."]
    assert [choice["index"] for choice in made.json()["choices"]] == [0, 1, 2]
    assert sorted(asked["seed"] for asked in engine.requests[1:]) == [5, 6, 7]
    assert len({tuple(prompt) for prompt in engine.prompts()[1:]}) == 1
    assert proxy.chat(session, messages, n=3, seed=5).content == made.content
    assert len(engine.requests) == 4
    liked = made.json()["choices"][2]["message"]
    proxy.chat(session, [*messages, liked, MORE])
    assert engine.prompts()[-1][: len(engine.prompts()[1])] == engine.prompts()[1]
    lines = tree(proxy, session)["lines"]
    assert [(one["turns"], one["shared_turns"], one["leaf"]) for one in lines] == [
        (2, 0, True),
        (2, 1, True),
        (3, 1, True),
    ]
    sampled = sum(len(ids_of(tokenizer, text + "<|im_end|>")) for text in ("Fine.", "One.", "Two.", "Three.", "Fine."))
    assert tree(proxy, session)["sampled_tokens"] == sampled


def test_resampling_adds_a_line(proxy, engine):
    """With `onrecord-resample: true` the first answer stays, and the second is its sibling."""
    session = proxy.new()
    engine.script.extend([says("One."), says("Two.")])
    first = proxy.chat(session, [USER])
    second = proxy.chat(session, [USER], headers={"onrecord-resample": "true"})
    assert (message_of(first)["content"], message_of(second)["content"]) == ("One.", "Two.")
    assert line(first) != line(second)
    assert [one["turns"] for one in tree(proxy, session)["lines"]] == [1, 1]


def test_within_the_rollback_limit_a_turn_is_replaced_and_counted(start, engine):
    """`max_rollback` still discards: the last turn is replaced on its own line, and its tokens are counted."""
    proxy = start(branches=True, policy=Policy(max_rollback=1))
    session = proxy.new()
    messages = answered(proxy, session, 2)
    made = proxy.chat(session, [*messages[:2], {"role": "user", "content": "Something else."}])
    assert line(made) == session
    told = tree(proxy, session)
    assert len(told["lines"]) == 1
    assert told["discarded_tokens"] > 0
    assert told["sampled_tokens"] == told["discarded_tokens"] * 3  # three answers of the same length


def test_another_spelling_of_the_last_turn_is_refused(proxy):
    """It would be a new branch for each turn of an agent that changes its answers: the matcher is what has to change."""
    session = proxy.new()
    one, two = answered(proxy, session, 1)
    refused = proxy.chat(session, [one, two | {"content": "Fine!"}, MORE])
    assert code_of(refused) == (400, "invalid_input")
    assert len(tree(proxy, session)["lines"]) == 1


def test_a_tree_is_handed_over_once(proxy):
    """Freezing ends all lines; the same digest and bytes at every read; acknowledging retires all."""
    session = proxy.new()
    answered(proxy, session)
    other = line(proxy.chat(session, [MORE]))
    first, second = samples(proxy, session), samples(proxy, session)
    assert first == second
    assert code_of(proxy.chat(session, [USER, MORE])) == (409, "session_frozen")
    path = f"/sessions/{session}/samples"
    assert code_of(proxy.http.post(path, json={"acknowledge": "no"})) == (409, "conflict")
    assert proxy.http.post(path, json={"acknowledge": first["digest"]}).status_code == 200
    for id in (session, other):
        assert code_of(proxy.http.get(f"/sessions/{id}")) == (410, "session_retired")
    assert code_of(proxy.chat(session, [USER])) == (410, "session_retired")


@pytest.mark.parametrize("first", ["the trainer", "the branch"])
def test_a_line_begun_while_the_tree_is_frozen(start, monkeypatch, first):
    """A request that starts a line at that moment is refused, and changes nothing of what the trainer has."""
    proxy, other = (start(branches=True, policy=Policy(max_rollback=0)) for _ in range(2))
    session = proxy.new()
    answered(proxy, session, 1)
    fork, frozen = Session.fork, []

    def racing(self, *given, **named):
        monkeypatch.setattr(Session, "fork", fork)
        if first == "the trainer":
            frozen.append(samples(other, session))
        new = fork(self, *given, **named)
        if first == "the branch":
            frozen.append(samples(other, session))
        return new

    monkeypatch.setattr(Session, "fork", racing)
    assert code_of(proxy.chat(session, [MORE])) == (409, "session_frozen")
    assert [one["session"] for one in frozen[0]["samples"]] == [session]
    assert samples(proxy, session) == frozen[0]
    confirmed = proxy.http.post(f"/sessions/{session}/samples", json={"acknowledge": frozen[0]["digest"]})
    assert confirmed.status_code == 200
    assert len(tree(proxy, session)["lines"]) == 2


def test_a_line_retired_while_the_tree_is_frozen(proxy, monkeypatch):
    """One line that ended between two looks of the trainer's request does not end the tree."""
    session = proxy.new()
    answered(proxy, session, 1)
    other = line(proxy.chat(session, [MORE]))
    get = proxy.proxy.shelf.get

    async def racing(id, **how):
        if id == other:
            open_rollout(proxy.records, other, takeover=True).retire("too late", unacknowledged=True)
        return await get(id, **how)

    monkeypatch.setattr(proxy.proxy.shelf, "get", racing)
    assert [one["session"] for one in samples(proxy, session)["samples"]] == [session]


def test_an_empty_line_is_frozen_too(proxy):
    """A line whose first turn has not begun accepts none after the samples were read."""
    session = proxy.new()
    answered(proxy, session, 1)
    empty = proxy.http.post(f"/sessions/{session}/branches", json={"turns": 0}).json()["session_id"]
    frozen = samples(proxy, session)
    assert code_of(proxy.chat(empty, [MORE])) == (409, "session_frozen")
    assert samples(proxy, session) == frozen


def test_a_tree_without_a_turn_is_frozen_too(proxy):
    """There is no sample, so a trainer that got none misses none."""
    session = proxy.new()
    told = samples(proxy, session)
    assert told["samples"] == []
    assert code_of(proxy.chat(session, [USER])) == (409, "session_frozen")
    path = f"/sessions/{session}/samples"
    assert proxy.http.post(path, json={"acknowledge": told["digest"]}).status_code == 200


def test_an_acknowledgement_retires_nothing_that_was_not_delivered(proxy):
    """The digest of no samples is no leave to give up turns."""
    session = proxy.new()
    answered(proxy, session, 1)
    path = f"/sessions/{session}/samples"
    assert code_of(proxy.http.post(path, json={"acknowledge": sha256().hexdigest()})) == (409, "conflict")


def test_a_frozen_tree_has_no_new_branches(proxy):
    """A branch would replace what the trainer has."""
    session = proxy.new()
    answered(proxy, session, 2)
    frozen = samples(proxy, session)
    refused = proxy.http.post(f"/sessions/{session}/branches", json={"turns": 1})
    assert code_of(refused) == (409, "session_frozen")
    assert samples(proxy, session) == frozen


def test_deleting_a_tree_deletes_its_lines(proxy):
    """All lines are given up with the session that the agent knows."""
    session = proxy.new()
    answered(proxy, session, 2)
    other = line(proxy.chat(session, [MORE]))
    assert proxy.http.delete(f"/sessions/{session}").status_code == 204
    assert code_of(proxy.http.get(f"/sessions/{other}")) == (410, "session_retired")


def test_another_proxy_finds_the_lines(start, engine):
    """Lines are on record: a proxy that has just started continues each of them, and starts none."""
    first = start(branches=True, policy=Policy(max_rollback=0))
    session = first.new()
    answered(first, session)
    made = first.chat(session, [MORE])
    second = start(branches=True, policy=Policy(max_rollback=0))
    assert line(second.chat(session, [MORE, message_of(made), USER])) == line(made)
    assert line(first.chat(session, [MORE])) != line(made)  # the first answer was built upon
    assert len(tree(second, session)["lines"]) == 3


@pytest.mark.parametrize("fields", [{"n": 0}, {"n": 65}, {"n": True}, {"n": 2, "stream": True}])
def test_how_many_answers(proxy, engine, fields):
    """`n` is a number within the limit, and several answers do not come in one stream."""
    assert code_of(proxy.chat(proxy.new(), [USER], **fields)) == (400, "invalid_input")
    assert engine.requests == []


def test_branches_in_the_other_protocols(proxy, engine):
    """A response that follows an earlier one, not the last, is a branch too."""
    session = proxy.new()
    path = f"/sessions/{session}/v1/responses"
    first = proxy.http.post(path, json={"model": "policy", "input": "One"}).json()
    then = {"model": "policy", "input": "Two", "previous_response_id": first["id"]}
    assert line(proxy.http.post(path, json=then)) == session
    assert line(proxy.http.post(path, json=then | {"input": "Three"})) != session
    assert [one["shared_turns"] for one in tree(proxy, session)["lines"]] == [0, 1]


def test_without_the_setting_nothing_branches(start):
    """The linear form is the default: a request that does not continue its session is refused."""
    proxy = start()
    session = proxy.new()
    answered(proxy, session)
    assert code_of(proxy.chat(session, [MORE])) == (400, "invalid_input")
    assert len(tree(proxy, session)["lines"]) == 1


def test_text_completions_are_not_branched(proxy, engine):
    """With branches, a session of text turns may do what it may without: its last turn can be replaced."""
    session = proxy.new()
    path = f"/sessions/{session}/v1/completions"

    def asks(prompt, headers=None, **options):
        answer = proxy.http.post(path, json={"model": "policy", "prompt": prompt, **options}, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["text"]

    said = asks("Count:")
    asks("Sing:")
    said = asks("Count:")
    more = f"Count:{said} more"
    asks(more)
    asks(more, temperature=0.3)
    asks(more, {"onrecord-resample": "true"}, temperature=0.3)
    assert len(engine.requests) == 6
    assert len(tree(proxy, session)["lines"]) == 1
    assert proxy.record(session)["discarded"]["turns"] == 4
    chat = proxy.new()
    wrong = proxy.http.post(f"/sessions/{chat}/v1/completions", json={"model": "policy", "prompt": [-1]})
    assert wrong.status_code == 400
    answered(proxy, chat, turns=1)
    proxy.chat(chat, [MORE])
    assert len(tree(proxy, chat)["lines"]) == 2, "chat turns are branched as before"


def test_without_leave_to_discard_a_turn_the_hint_says_how(start):
    """`--max-rollback 0` refuses to generate a turn again, and the hint names what allows it."""
    proxy = start(policy=Policy(max_rollback=0))
    session = proxy.new()
    messages = answered(proxy, session, turns=2)
    refused = proxy.chat(session, messages[:-1], headers={"onrecord-resample": "true"})
    assert code_of(refused) == (400, "invalid_input")
    assert "raise max_rollback" in refused.json()["error"]["hint"]
    allowed = start(policy=Policy(max_rollback=1))
    assert allowed.chat(session, messages[:-1], headers={"onrecord-resample": "true"}).status_code == 200
