"""The short form of bench/coldstart: what reaches the model of the next agent, with one vendor's real program."""

from bench.coldstart import facts
from bench.coldstart.scenes import GO_ON, NAME, WITHIN, plain
from tests.e2e.lab import Lab
from tests.e2e.suite import Laboratory
from tests.e2e.wire import FENCED


class TestColdStart(Laboratory):
    programs = ("claude",)

    def test_the_first_request_of_a_fresh_agent_has_every_planted_fact(self, lab: Lab):
        """Facts of three killed sessions are all in the next agent's first request, within 4 KB, and nothing is repeated; an empty note has none."""
        probe = lab.root / "probe.sh"
        probe.write_text("echo '403: no membership' >&2; exit 1\n")
        assert lab.onrecord("setup", "claude", "--user", "--no-tools", "--no-input").status == 0
        assert lab.onrecord("open", NAME, "--objective", facts.OBJECTIVE).status == 0
        for session in facts.SESSIONS:
            script = lab.root / f"record-{session}.sh"
            script.write_text(facts.on_record(session, probe))
            env = {"ONRECORD_SESSION": NAME, "ONRECORD_AGENT": f"agent-{session}"}
            assert lab.run(["sh", str(script)], env=env).status == 0
        assert lab.onrecord("show", NAME).status == 0
        assert lab.onrecord("start", "claude", "--session", NAME, "-p", GO_ON).status == 0
        first = plain(lab.server.conversation()[0])
        own = "\n".join(found[0] for found in FENCED.finditer(first))
        assert len(own.encode()) <= WITHIN
        missing = [fact.phrase for fact in facts.FACTS if fact not in facts.known(own, facts.FACTS)]
        assert missing == []
        assert facts.repeated(own, facts.FACTS) == []
        before = len(lab.server.conversation())
        assert lab.onrecord("start", "claude", "--name", "empty", "-p", GO_ON).status == 0
        control = facts.known(plain(lab.server.conversation()[before]), facts.FACTS)
        assert [fact for fact in control if fact.kind != facts.EDITED] == [], "the measure can fail"
