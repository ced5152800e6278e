"""What a page may contain: a parser that finds everything else."""

import re
from html.parser import HTMLParser

_words = str.split
TAGS = frozenset(_words(
    "a article aside b blockquote body br button circle code dd del details div dl dt em figcaption figure footer form h1 "
    "h2 h3 head header hr html i img input ins kbd li line link main meta nav ol output p path polyline pre rect s script "
    "section small span strong style summary svg table tbody td text tfoot th thead time title tr ul"
))  # fmt: skip
ATTRIBUTES = frozenset(_words(
    "alt aria-current aria-hidden aria-label charset class content cx cy d datetime dx height hidden href http-equiv id lang "
    "loading max min name open placeholder points r rel role rx src start title type value viewbox width x x1 x2 y y1 y2 "
    "data-at data-because data-e data-from data-p data-play data-run data-to data-zoom"
))  # fmt: skip
LINKS = re.compile(r"(?:https?://|mailto:|#[\w-]+$|data:,$)")
IMAGES = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}$")
VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Page(HTMLParser):
    """The tags, ids, links and words of a page, and what is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts = 0
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        if self._open:
            self.problems.append(f"not closed: {self._open}")

    @property
    def text(self) -> str:
        return "".join(self.words)

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS:
            self.problems.append(f"<{tag}>")
        if tag not in VOID and (self.get_starttag_text() or "")[-2:] != "/>":
            self._open.append(tag)
        self.scripts += tag == "script"
        for name, value in attrs:
            if name not in ATTRIBUTES:
                self.problems.append(f"<{tag} {name}>")
            if name == "href":
                self.links.append(value or "")
                if not LINKS.match(value or ""):
                    self.problems.append(f"a link to {value}")
            if name == "src" and not IMAGES.match(value or ""):
                self.problems.append(f"an image from {value}")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if self._open[-1:] not in (["style"], ["script"]):
            self.words.append(data)

    def handle_comment(self, data):
        self.problems.append(f"a comment: {data}")
