"""A verb of the command line and its options, as the catalogue lists them. Every command loads this."""

from __future__ import annotations


class Option:
    """One option of a verb. `value` names what follows it, in capitals; an option without one is a switch."""

    __slots__ = ("about", "choices", "flag", "many", "short", "value")

    def __init__(
        self, flag: str, about: str, value: str = "", *, short: str = "", choices: tuple[str, ...] = (),
        many: bool = False,
    ) -> None:  # fmt: skip
        self.flag = flag
        self.about = about
        self.value = value
        self.short = short
        self.choices = choices
        self.many = many

    @property
    def name(self) -> str:
        """The option's name without dashes."""
        return self.flag.lstrip("-")


PASSED_ON = "[-- ARGUMENTS...]"


class Verb:
    """One verb: its arguments, where its function is, and its help."""

    __slots__ = (
        "about",
        "example",
        "function",
        "group",
        "module",
        "name",
        "options",
        "passes_on",
        "raw",
        "takes",
        "usage",
    )

    def __init__(
        self, group: str, name: str, usage: str, about: str, module: str, *options: Option, example: str = "",
        takes: tuple[str, ...] | None = None, function: str = "", raw: bool = False,
    ) -> None:  # fmt: skip
        self.group = group
        self.name = name
        self.usage = usage
        self.about = about
        self.module = module
        self.options = options
        self.example = example
        self.passes_on = takes is None and usage.endswith(PASSED_ON)
        """Whether the words after `--` are for an agent's program."""
        self.takes = tuple(usage.removesuffix(PASSED_ON).split()) if takes is None else takes
        self.function = function or name.replace("-", "_")
        self.raw = raw
        """Whether the function gets its words unparsed."""

    def all_options(self) -> tuple[Option, ...]:
        """Its own options, and those of every verb that it does not define itself."""
        own = {option.flag for option in self.options}
        return (*self.options, *(option for option in EVERYWHERE if option.flag not in own))


EVERYWHERE = (
    Option("--json", 'print {"schema_version", "kind", "data"}'),
    Option("--quiet", "print no notes, and only the position of a change", short="-q"),
    Option("--no-input", "never ask; fail instead"),
    Option("--store", "the store (default: ONRECORD_STORE, or the user's own)", "URL"),
    Option("--project", "the project (default: ONRECORD_PROJECT, or this directory's)", "PATH"),
    Option("--help", "show this help", short="-h"),
)
