"""Names and titles of sessions that no person named: made from the first prompt and the day."""

from __future__ import annotations

import time

from onrecord.errors import NameTaken
from onrecord.log.names import NAME_LIMIT, check_name
from onrecord.views.render import clip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.views.values import Json

TITLE_CHARACTERS = 100
WORDS_NAMED = 7
"""How many words of a prompt a name has."""
STEM_CHARACTERS = 40
"""How many characters of a name come from the prompt."""
NUMBERS_TRIED = 9
"""After so many equal names of one day, a part of the conversation's id makes a name unique."""
_SHORT_ID = 8
AUTOMATIC: dict[str, Json] = {"automatic": True}
"""The metadata of a session that a hook or an import opened."""


def title_of_prompt(prompt: str) -> str:
    """A prompt as a title: its words on one line, cut, without quotes that a program put around it."""
    flat = " ".join(prompt.split())
    return clip(flat[1:-1] if len(flat) > 1 and flat[0] == flat[-1] == '"' else flat, TITLE_CHARACTERS)


def stem_of(prompt: str, spare: str) -> str:
    """The part of a name that comes from the prompt; `spare` if the prompt has no letters that a name can have."""
    text = prompt[:1_000]
    if not text.isascii():
        from unicodedata import normalize

        text = normalize("NFKD", text)
    kept = "".join(one if one.isascii() and one.isalnum() else "" if not one.isascii() else " " for one in text.lower())
    stem = ""
    for word in kept.replace("'", "").split()[:WORDS_NAMED]:
        if stem and len(stem) + 1 + len(word) > STEM_CHARACTERS:
            break
        stem = f"{stem}-{word}" if stem else word[:STEM_CHARACTERS]
    return stem or spare


def create_for_prompt(records: SessionStore, prompt: str, *, agent: str, spare: str, vendor_id: str) -> Session:
    """A new session, named after the prompt and the day of the store's clock, and titled by the prompt."""
    day = time.strftime("%Y-%m-%d", time.localtime(records.clock()))
    stem = stem_of(prompt, spare)
    letters = "".join(letter for letter in vendor_id if letter.isascii() and letter.isalnum())
    endings = ["", *(f"-{number}" for number in range(2, NUMBERS_TRIED + 1)), f"-{letters[:_SHORT_ID]}", f"-{letters}"]
    for ending in endings:
        whole = f"-{day}{ending}"
        name = check_name(stem[: NAME_LIMIT - len(whole)] + whole)
        if records.named(name) is not None:
            continue
        try:
            made = records.create(name, agent=agent, metadata=AUTOMATIC)
        except NameTaken:  # another conversation of the same words began at the same moment
            continue
        if title := title_of_prompt(prompt):
            made.facts.set_title(title)
        return made
    raise NameTaken(f"no free name is left for the conversation {vendor_id:.80}")
