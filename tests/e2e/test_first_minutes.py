from tests.docs.first_minutes import commands_for
from tests.e2e.lab import Lab
from tests.e2e.suite import Laboratory


class TestFirstMinutes(Laboratory):
    programs = ("claude",)

    def test_the_guide_does_what_it_says(self, lab: Lab):
        """Set up, used as before, listed, shown, counted, searched and resumed: typed as the guide for people with agents has it."""
        said = {}
        for words, code in commands_for("agents"):
            done = lab.onrecord(*words[1:]) if words[0] == "onrecord" else lab.run(words)
            assert done.status == code, (words, done)
            said[words[1]] = done.out
        assert "Why do some invited users get a 403?" in said["list"]
        assert "Why do some invited users get a 403?" in said["show"]
        assert "total" in said["usage"]
        assert "invited" in said["search"]
        assert "Why do some invited users get a 403?" in lab.server.conversation()[-1].text
