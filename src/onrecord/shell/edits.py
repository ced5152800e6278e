"""Edits through a shell: does a command line change files of the worktree? Certain, likely, or not seen.

Read from the command line alone: nothing is run, and no file is looked at. Certain is what the line itself says:
redirections, `tee`, `sed -i`, `git apply`, `cp`, `rm`, Python code that opens a file for writing. Likely is what
depends on a variable, on a directory that is not known, or on a program that usually rewrites files. Scripts, build
tools and tests that write files are not seen.
"""

from __future__ import annotations

import posixpath

from onrecord.shell import CERTAIN, LIKELY, UNSEEN, is_below
from onrecord.shell.words import Simple, Word, simple_commands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Own = Callable[[str], bool]

DEPTH_LIMIT = 5
"""How deep command lines inside of command lines are read, as in `sh -c`."""
_INSIDE, _OUTSIDE, _UNKNOWN = "inside", "outside", "unknown"
_ELSEWHERE = ("/dev/", "/tmp/", "/var/tmp/", "/proc/")  # noqa: S108  # names to compare with; nothing is written
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "fi", "done"})
_WRAPPERS = {
    "sudo": "-u -g -C", "doas": "-u", "env": "-u -C -S", "nohup": "", "nice": "-n", "ionice": "-c -n",
    "timeout": "-s -k", "command": "", "exec": "-a", "builtin": "", "stdbuf": "-i -o -e", "setsid": "",
    "xargs": "-I -n -P -L -d -s -a -E", "npx": "-p", "unbuffer": "", "chronic": "",
}  # fmt: skip
"""Programs that run another one, and their options that take a value."""
_RUNNERS = {("uv", "run"), ("poetry", "run"), ("hatch", "run"), ("pipx", "run"), ("pnpm", "exec"), ("pdm", "run")}
_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh"})
_CHANGES = {"rm", "unlink", "shred", "truncate", "touch", "mv", "patch", "tee", "rmdir"}
_COPIES = {"cp", "install", "ln", "rsync", "scp"}
_USUALLY = {
    "black": ("--check", "--diff"), "isort": ("--check", "--check-only", "--diff"), "rustfmt": ("--check",),
    "pre-commit": (), "jscodeshift": ("--dry",), "dos2unix": (), "ed": (), "ex": (), "vi": (), "vim": (), "nvim": (),
    "nano": (), "emacs": (), "unzip": ("-l", "-t"), "2to3": (), "pyupgrade": (),
}  # fmt: skip
"""Programs that rewrite files, unless they are given one of these options."""
_ASKED = {
    "prettier": ("--write", "-w"), "eslint": ("--fix",), "stylelint": ("--fix",), "gofmt": ("-w",),
    "goimports": ("-w",), "clang-format": ("-i",), "autopep8": ("-i", "--in-place"), "ruff": ("format", "--fix"),
    "cargo": ("fmt", "fix", "add"), "go": ("fmt", "generate", "tidy"), "npm": ("install", "i", "add", "ci", "update"),
    "yarn": ("add", "install"), "pnpm": ("add", "install"), "uv": ("add", "sync", "lock"), "poetry": ("add", "lock"),
    "terraform": ("fmt",),
}  # fmt: skip
"""Programs that rewrite files if they are given one of these words."""
_SCRIPTS = {
    "node": ("-e", "--eval"),
    "ruby": ("-e",),
    "perl": ("-e",),
    "php": ("-r",),
    "deno": ("eval",),
    "bun": ("-e",),
}
_WRITING = ("writeFile", "appendFile", "createWriteStream", "File.write", "IO.write", "unlink", "rename", "fopen",
            "file_put_contents", "'w'", '"w"', "'>'", "'a'", '"a"', "rmSync", "Deno.write")  # fmt: skip
_GIT_ALWAYS = frozenset({"am", "merge", "rebase", "pull", "cherry-pick", "revert", "mv", "bisect"})
_GIT_OTHERWISE = {
    "apply": ("--check", "--stat", "--numstat", "--summary", "--cached"), "rm": ("--cached",), "restore": ("--staged",),
    "clean": ("-n", "--dry-run"),
}  # fmt: skip
_STASH_ONLY_LOOKS = ("list", "show", "drop", "clear", "create", "store")


def edit_in(line: str, root: str = "", own: Own | None = None, home: str = "") -> str:
    """Whether a command line changes files of the worktree with this root. `own` names files that do not count.

    `home` is the worktree in which the line runs, if that is another one: its relative paths start there.
    """
    return _Reader(root, own or (lambda _path: False), home).line(line, 0)


class _Reader:
    """Reads one command line, and follows its `cd` as far as that is possible."""

    def __init__(self, root: str, own: Own, home: str) -> None:
        self.root = root.rstrip("/")
        self.own = own
        self.home = home.rstrip("/")
        self.base = self.home
        """Where relative paths start, if that is known to be another worktree."""
        self.where = _OUTSIDE if home else _INSIDE

    def here(self) -> str:
        """What a command does that changes files of the directory it runs in."""
        return {_INSIDE: CERTAIN, _UNKNOWN: LIKELY}.get(self.where, UNSEEN)

    def line(self, text: str, depth: int) -> str:
        """The strongest of what the commands of a line do."""
        commands = simple_commands(text)
        if commands is None or depth > DEPTH_LIMIT:
            marks = (">", "sed -i", "tee ", "git apply", "patch ")
            return LIKELY if any(mark in text for mark in marks) else UNSEEN
        return _strongest(self.command(one, depth) for one in commands)

    def command(self, simple: Simple, depth: int) -> str:
        """What one simple command does: its redirections, the command lines inside it, its program."""
        found = [self.target(word) for word in simple.written]
        found += [self.line(inner, depth + 1) for inner in simple.inner]
        words = list(simple.words)
        while words and words[0].text in _KEYWORDS and words[0].sure:
            del words[0]
        found.append(self.program(words, simple.body, depth))
        return _strongest(found)

    def program(self, words: list[Word], body: str, depth: int) -> str:
        words = _unwrapped(words)
        if not words:
            return UNSEEN
        name, rest = words[0].text.rpartition("/")[2], words[1:]
        texts = [word.text for word in rest]
        if name in ("cd", "pushd"):
            self.where = self.moved(rest)
            if self.base and rest:
                self.base = posixpath.join(self.base, rest[0].text)
            return UNSEEN
        if name in _SHELLS or name == "eval":
            return self.line(_inner_line(name, texts) or body, depth + 1)
        if name == "find":
            return self.found(rest, depth)
        if name.startswith("python") or name == "pypy3":
            return self.python(texts, body, depth)
        return _own_judgement(self, name, rest, texts)

    def moved(self, rest: list[Word]) -> str:
        """Where `cd` leads: it stays inside, leaves the worktree, or that is not known."""
        if self.base and len(rest) == 1 and rest[0].sure:
            return _INSIDE if self.is_inside(rest[0].text) else _OUTSIDE
        if len(rest) != 1 or not rest[0].sure or ".." in rest[0].text.split("/") or rest[0].text.startswith(("-", "~")):
            return _UNKNOWN
        if not rest[0].text.startswith("/"):
            return self.where
        return {CERTAIN: _INSIDE, LIKELY: _UNKNOWN}.get(self.target(Word(f"{rest[0].text}/x")), _OUTSIDE)

    def is_inside(self, path: str) -> bool:
        """Whether a path that is written in another worktree leads into this one."""
        return is_below(posixpath.normpath(posixpath.join(self.base, path)), self.root, self.home)

    def target(self, word: Word) -> str:
        """Whether a file that is written belongs to the worktree."""
        path = word.text
        if self.base and word.sure and not path.startswith("~"):
            if not self.is_inside(path):
                return UNSEEN
            path = posixpath.normpath(posixpath.join(self.base, path))
        if path.startswith(_ELSEWHERE) and not (self.root and f"{path}/".startswith(f"{self.root}/")):
            return UNSEEN
        if not word.sure or path.startswith("~"):
            return LIKELY
        if path.startswith("/"):
            if not self.root:
                return LIKELY
            if not path.startswith(f"{self.root}/"):
                return UNSEEN
            path, known = path[len(self.root) + 1 :], _INSIDE
        else:
            known = self.where
        if ".." in path.split("/"):
            return LIKELY
        if self.own(path.removeprefix("./")):
            return UNSEEN
        return {_INSIDE: CERTAIN, _UNKNOWN: LIKELY}.get(known, UNSEEN)

    def targets(self, words: Iterable[Word]) -> str:
        """The strongest of several files; without any, the files come from elsewhere."""
        named = [word for word in words if not word.text.startswith("-")]
        return _strongest(self.target(word) for word in named) if named else LIKELY

    def found(self, rest: list[Word], depth: int) -> str:
        texts = [word.text for word in rest]
        first = next((place for place, text in enumerate(texts) if text.startswith(("-", "(", "!"))), len(texts))
        if "-delete" in texts:
            return self.targets(rest[:first] or [Word(".")])
        for action in ("-exec", "-execdir", "-ok"):
            if action in texts:
                inner = [word for word in rest[texts.index(action) + 1 :] if word.text not in (";", "+")]
                # `{}` is below the directories that are searched.
                known = [Word(".") if word.text == "{}" else word for word in inner]
                return self.program(known, "", depth + 1)
        return UNSEEN

    def python(self, texts: list[str], body: str, depth: int) -> str:
        if "-c" in texts[:-1]:
            return self.python_code(texts[texts.index("-c") + 1], depth)
        if "-m" in texts[:-1]:
            module = texts.index("-m") + 1
            return self.program([Word(text) for text in texts[module:]], "", depth + 1)
        if body and (not texts or texts[0] == "-"):
            return self.python_code(body, depth)
        return UNSEEN

    def python_code(self, code: str, depth: int) -> str:
        from onrecord.shell.python_code import written_by

        found = written_by(code)
        if found is None:
            return LIKELY if any(mark in code for mark in ("write", "open(", "shutil.", "os.re")) else UNSEEN
        seen = [self.target(Word(path)) for path in found.paths]
        seen += [self.line(line, depth + 1) for line in found.lines]
        if found.unknown:
            seen.append(CERTAIN if CERTAIN in [self.target(Word(path)) for path in found.named] else LIKELY)
        return _strongest([*seen, LIKELY if found.maybe else UNSEEN])


def _own_judgement(reader: _Reader, name: str, rest: list[Word], texts: list[str]) -> str:  # noqa: PLR0911  # one for each family of programs
    """What a program with a meaning of its own does."""
    if name == "git":
        return _git(reader, rest)
    if name in ("sed", "gsed"):
        return reader.targets(_files_of_sed(rest)) if _edits_in_place(texts) else UNSEEN
    if name == "awk":
        return reader.here() if "inplace" in texts else UNSEEN
    if name in ("perl", "ruby") and any(text.startswith("-") and "i" in text.partition("e")[0] for text in texts):
        return reader.targets(rest[-1:])
    if name in _SCRIPTS and any(option in texts for option in _SCRIPTS[name]):
        return LIKELY if any(mark in text for text in texts for mark in _WRITING) else UNSEEN
    if name in _CHANGES:
        return UNSEEN if "--dry-run" in texts else _changes(reader, name, rest)
    if name in _COPIES:
        return reader.targets(_copied_to(rest))
    if name == "dd":
        return _strongest(reader.target(Word(word.text[3:], word.sure)) for word in rest if word.text.startswith("of="))
    if name in ("curl", "wget"):
        return _fetches(reader, name, rest)
    if name in ("tar", "bsdtar"):
        unpacks = bool(texts) and ("x" in texts[0].lstrip("-").partition("f")[0] or "--extract" in texts)
        return (LIKELY if "-C" in texts else reader.here()) if unpacks else UNSEEN
    if name in _USUALLY:
        return UNSEEN if any(option in texts for option in _USUALLY[name]) else LIKELY
    if name in _ASKED:
        return LIKELY if any(option in texts for option in _ASKED[name]) and "--check" not in texts else UNSEEN
    return UNSEEN


def _changes(reader: _Reader, name: str, rest: list[Word]) -> str:
    if name == "patch" and not [word for word in rest if not word.text.startswith("-")]:
        return reader.here()
    return reader.targets(rest)


def _copied_to(rest: list[Word]) -> list[Word]:
    texts = [word.text for word in rest]
    if "-t" in texts[:-1]:
        return [rest[texts.index("-t") + 1]]
    return [word for word in rest if not word.text.startswith("-")][-1:]


def _fetches(reader: _Reader, name: str, rest: list[Word]) -> str:
    texts = [word.text for word in rest]
    for option in ("-o", "--output") if name == "curl" else ("-O", "--output-document"):
        if option in texts[:-1]:
            saved = rest[texts.index(option) + 1]
            return UNSEEN if saved.text == "-" else reader.target(saved)
    if name == "curl" and not any(text in ("-O", "--remote-name") for text in texts):
        return UNSEEN
    return reader.target(Word("x"))


def _edits_in_place(texts: list[str]) -> bool:
    """Whether sed gets `-i`, alone or among other letters; a script after `-e` or `-f` is no option."""
    short = [text[1:] for text in texts if text.startswith("-") and not text.startswith("--")]
    long = any(text.startswith("--in-place") for text in texts)
    return long or any("i" in text.partition("e")[0].partition("f")[0] for text in short)


def _files_of_sed(rest: list[Word]) -> list[Word]:
    """The files that sed edits: what follows its script."""
    texts = [word.text for word in rest]
    named, skip = [], False
    for place, text in enumerate(texts):
        if skip:
            skip = False
        elif text in ("-e", "-f", "--expression", "--file"):
            skip = True
        elif text and not text.startswith("-"):
            named.append(rest[place])
    scripted = any(text in ("-e", "-f") or text.startswith(("--expression", "--file")) for text in texts)
    return named if scripted else named[1:]


def _git(reader: _Reader, rest: list[Word]) -> str:
    texts = [word.text for word in rest]
    elsewhere = UNSEEN
    while texts and texts[0].startswith("-"):
        if texts[0] == "-C" and len(texts) > 1:
            elsewhere = reader.moved(rest[1:2])
        count = 2 if texts[0] in ("-C", "-c", "--git-dir", "--work-tree") else 1
        texts, rest = texts[count:], rest[count:]
    if not texts or not _git_changes(texts[0], texts[1:]):
        return UNSEEN
    where = elsewhere or reader.where
    return {_INSIDE: CERTAIN, _UNKNOWN: LIKELY}.get(where, UNSEEN)


def _git_changes(action: str, options: list[str]) -> bool:
    """Whether a git command changes files of the worktree."""
    named = [option for option in options if not option.startswith("-")]
    if action in _GIT_ALWAYS:
        return "--abort" in options or not any(option in options for option in ("--help", "-h"))
    if action in _GIT_OTHERWISE:
        staged = action == "restore" and ("--worktree" in options or "-W" in options)
        return staged or not any(option in options for option in _GIT_OTHERWISE[action])
    if action in ("checkout", "switch"):
        new = any(option in options for option in ("-b", "-B", "-c", "-C", "--orphan"))
        return bool(named) and not (new and len(named) == 1)
    if action == "reset":
        return any(option in options for option in ("--hard", "--merge", "--keep"))
    return action == "stash" and not (named and named[0] in _STASH_ONLY_LOOKS)


def _inner_line(name: str, texts: list[str]) -> str:
    """The command line that `sh -c` or `eval` runs."""
    if name == "eval":
        return " ".join(texts)
    for place, text in enumerate(texts[:-1]):
        if text.startswith("-") and not text.startswith("--") and "c" in text:
            return texts[place + 1]
    return ""


def _unwrapped(words: list[Word]) -> list[Word]:
    """A command without assignments, and without programs that only run another one."""
    while words:
        name = words[0].text.rpartition("/")[2]
        if "=" in words[0].text and words[0].text.partition("=")[0].isidentifier():
            words = words[1:]
        elif len(words) > 1 and (name, words[1].text) in _RUNNERS:
            words = words[2:]
        elif name in _WRAPPERS:
            words = _without_options(words[1:], _WRAPPERS[name].split(), timed=name == "timeout")
        else:
            return words
    return words


def _without_options(words: list[Word], valued: list[str], *, timed: bool) -> list[Word]:
    while words and words[0].text.startswith("-"):
        words = words[2 if words[0].text in valued else 1 :]
    return words[1:] if timed else words


def _strongest(found: Iterable[str]) -> str:
    seen = set(found)
    return CERTAIN if CERTAIN in seen else LIKELY if LIKELY in seen else UNSEEN
