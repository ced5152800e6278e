"""The test that fails now and then."""

import unittest

from invites import accept, may_enter
from middleware import handle


class TestInvites(unittest.TestCase):
    """What accepting an invitation leads to."""

    def test_enters_after_accepting(self) -> None:
        """A person who accepts an invitation as a member may enter."""
        role = accept({"role": "member"})
        assert handle({"session": "s", "role": role}) == 200

    def test_enters_without_middleware(self) -> None:
        """The same without the middleware: is it to blame?"""
        assert may_enter(accept({"role": "member"}))


if __name__ == "__main__":
    unittest.main()
