"""Every vendor's own payloads, as its program sent them, through the real process."""

import json

import pytest

from onrecord.vendors.hooks import BEFORE_TOOL, START
from onrecord.vendors.port import VENDORS as KNOWN
from onrecord.vendors.port import vendor
from tests.hook.conftest import VENDORS, payloads
from tests.proofs import cite

NAMED = {"ONRECORD_SESSION": "fix-403", "ONRECORD_AGENT": "solver"}


@pytest.mark.parametrize("name", VENDORS)
def test_nothing_happens_outside_of_a_registered_session(hooks, name):
    """A whole recorded life of an agent that is not on record gets no answer, no store and no file."""
    seen = set()
    for event, payload in payloads(name):
        if event not in seen:
            seen.add(event)
            said = hooks.send(name, event, payload)
            assert said.is_empty, (event, said)
    assert not hooks.store.parent.exists()


@pytest.mark.parametrize("name", VENDORS)
def test_a_recorded_life_is_followed(hooks, name):
    """Started in a session, the conversation is on record with its location, and the brief arrives once, fenced.

    Where injected text is lost with the process, it arrives once per start.
    """
    hooks.records().create("fix-403", objective="Fix the 403 after invite acceptance")
    of, told = vendor(name), []
    calls = [of.parse_hook({"hook_event_name": event} | payload, {}) for event, payload in payloads(name)]
    ids = {call.vendor_id for call in calls}
    starts = sum(call.moment == START for call in calls)
    for event, payload in payloads(name):
        said = hooks.send(name, event, payload | ({"cwd": str(hooks.project)} if "cwd" in payload else {}), NAMED)
        assert said.code == 0, (event, said)
        told += [(event, said.context or said.out)] if "Fix the 403" in said.out else []
    assert hooks.trouble() == ""
    links = hooks.session().views.roster.agents["solver"]["links"]
    assert {link["id"] for link in links} == ids
    for link in links:
        assert link["vendor"] == name
        assert link["last"]["worktree"] == str(hooks.project)
        assert link["last"]["process"]["pid"]
    assert len(told) == (len(ids) if of.context_lasts else starts), [event for event, _text in told]
    for _event, text in told:
        assert len(text.encode()) <= of.capabilities.context_bytes
        assert "[onrecord-data nonce=" in text


@pytest.mark.parametrize("name", VENDORS)
def test_the_gate_denies_while_an_attempt_runs_and_allows_after_it_settled(hooks, name):
    """By the conversation's id alone, a call is allowed, then denied with the command that clears it, then allowed again."""
    event, payload = hooks.of(name, BEFORE_TOOL)
    of = vendor(name)
    call = of.parse_hook({"hook_event_name": event} | payload, {})
    session = hooks.records().create("fix-403", agent="solver")
    session.agents.locate(name, call.vendor_id)
    before = session.head.position
    assert hooks.send(name, event, payload).refusal == ""
    assert session.views.position == before, "a plain yes writes nothing"
    session.attempts.start("make deploy")
    refused = hooks.send(name, event, payload)
    assert "attempt 1" in refused.refusal + refused.out + refused.err, refused
    assert "onrecord attempt fail 1 --session fix-403" in json.loads(json.dumps(refused.out + refused.err)).replace(
        '\\"', '"'
    )
    decided = next(session.events(kinds=["gate.decided"]))
    assert (decided.data["decision"], decided.data["agent"]) == ("deny", "solver")
    session.attempts.settle(None, "succeeded")
    assert hooks.send(name, event, payload | {"tool_use_id": "another", "callID": "another"}).refusal == ""


@pytest.mark.parametrize("name", VENDORS)
def test_a_start_within_its_limit(hooks, name):
    """However much is on record, the injected text has at most as many bytes as the vendor accepts."""
    session = hooks.records().create("fix-403", objective="é" * 3_000)
    for number in range(40):
        session.findings.state(f"claim {number} " + "ü" * 300, "rejected", evidence=cite(session, "run-1"))
    of = vendor(name)
    event, payload = hooks.of(name, of.context_moment)
    said = hooks.send(name, event, payload, NAMED)
    text = said.context or said.out
    assert "[onrecord-data nonce=" in text, said
    assert len(text.encode()) <= of.capabilities.context_bytes


def test_every_vendor_is_shown_here():
    """Payloads are the programs' own; opencode's are what our plugin sends, Cursor's come from its documentation."""
    assert set(VENDORS) == set(KNOWN)
    assert [name for name in VENDORS if not vendor(name).capabilities.verified] == ["cursor"]
