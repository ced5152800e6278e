"""Markdown of agents: drawn as it is meant, and never more than text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.pages.markdown import to_html
from onrecord.pages.text import plain, short, shown
from onrecord.views.render import visible
from tests.pages.safe import Page

TABLE = "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td><code>x</code></td></tr></tbody></table>"
CODE = """<pre class="code"><code><b class=k>return</b> <b class=s>'x'</b> <b class=c># y</b></code></pre>"""


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a **b** *c* _d_ ~~e~~ `f`", "<p>a <strong>b</strong> <em>c</em> <em>d</em> <s>e</s> <code>f</code></p>"),
        ("snake_case_name 2*3*4", "<p>snake_case_name 2*3*4</p>"),
        ("# Big\ntext", '<p class="h1">Big</p><p>text</p>'),
        ("- a\n- b\n  - c", "<ul><li>a</li><li>b<ul><li>c</li></ul></li></ul>"),
        ("3. x\n4. y", "<ol start=3><li>x</li><li>y</li></ol>"),
        ("- [x] done\n- [ ] left", "<ul><li>☑ done</li><li>☐ left</li></ul>"),
        ("> said\n> so", "<blockquote><p>said\nso</p></blockquote>"),
        ("|a|b|\n|-|-|\n|1|`x`|", TABLE),
        ("```\n<b>\n```", '<pre class="code"><code>&lt;b&gt;</code></pre>'),
        ("```py\nreturn 'x' # y\n```", CODE),
        ("```diff\n-a\n+b\n```", '<pre class="code"><code><del>-a\n</del><ins>+b\n</ins></code></pre>'),
        ("[x](https://a.b/?c=1&d=2)", '<p><a href="https://a.b/?c=1&amp;d=2" rel=noreferrer>x</a></p>'),
        ("see https://a.b/c.", '<p>see <a href="https://a.b/c" rel=noreferrer>https://a.b/c</a>.</p>'),
        ("event [12](#e12)", '<p>event <a href="#e12">12</a></p>'),
        ("![secret](https://a.b/x.png)", '<p><a href="https://a.b/x.png" rel=noreferrer>secret</a></p>'),
        ("---", "<hr>"),
    ],
)  # fmt: skip
def test_markdown_is_drawn(text: str, html: str):
    """Headings, lists, tasks, quotes, tables, code, links and emphasis become what they mean."""
    assert to_html(text) == html


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "[x](data:text/html,1)",
     "[x](JaVaScRiPt:alert(1))", "[x](//evil.example)", "[x](vbscript:x)", '[`<b>`](https://a.b/"onclick="x)',
     'https://a.b/"onmouseover=alert(1)', "**<svg/onload=alert(1)>**", "```html\n</code></pre><script>1</script>\n```",
     "|<b>|\n|-|\n|<i onclick=x>|", "&lt;script&gt;", "<!-- x", "> <style>*{}</style>", "[a](https://a.b) <a href=x>",
     "![x](javascript:1)", '<a href="javascript:1">x</a>', "[<img src=x>](https://a.b)", "`</code><script>`"],
)  # fmt: skip
def test_markup_is_only_text(text: str):
    """HTML, handlers and links to anything but the web and events stay text."""
    assert Page(to_html(text)).problems == []


PIECES = st.sampled_from(
    ["<script>", "</p>", "&lt;", "&#60;", '"', "'", "`", "```", "~~~", "**", "*", "_", "~~", "[", "](", ")", "!", "|", "|-|",
     "\n", "\n\n", "- ", "  - ", "1. ", "> ", "# ", "https://a.b/", "javascript:", "data:", "#e1", "word", "<", ">", "&", " ",
     "\t", "\x1b[31m", "\u202e", "\x00", "[x](https://a.b)", "onerror=", "<img src=x>", "\\", "[ ] "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=60).map("".join))
def test_no_text_becomes_markup_of_its_own(text: str):
    """Whatever pieces of Markdown and HTML a text is made of, the page has allowed elements only, each of them closed."""
    page = Page(to_html(text))
    assert page.problems == []
    assert page.scripts == 0


@given(st.text(st.characters(exclude_characters="[`~|", exclude_categories=["Nd", "Nl", "No"])))
def test_every_word_is_shown(text: str):
    """Emphasis, lists, quotes and headings lose no letter of the text."""
    drawn = Page(to_html(text)).text
    assert [letter for letter in drawn if letter.isalpha()] == [letter for letter in plain(text) if letter.isalpha()]


def test_long_texts_take_linear_time():
    """Texts that look like endless beginnings of emphasis, links and lists are drawn at once."""
    for text in (
        "*a " * 30_000,
        "**a" * 30_000,
        "a`" * 45_000,
        "[a](b" * 20_000,
        "> " * 3_000,
        "- " * 3_000,
        "_a " * 30_000,
    ):
        assert to_html(text)


def test_what_a_terminal_hides_a_page_hides_too():
    """Every control, bidi and invisible character is written out, as on a terminal; marks of HTML are escaped."""
    letters = [chr(code) for code in (*range(0x20000), *range(0xE0000, 0xE0200), 0xF0000, 0x10FFFD)]
    hidden = [letter for letter in letters if letter not in "\n\t" and visible(letter, lines=True) != letter]
    assert [hex(ord(letter)) for letter in hidden if plain(letter) == letter] == []
    assert shown("\x1b[31m<&>\u202e\n") == "\\e[31m&lt;&amp;&gt;\\u{202e}\n"
    assert short("  many \n words " * 9, 12) == "many words …"
