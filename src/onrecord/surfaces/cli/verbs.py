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

    def of(self, actions: str) -> Option:
        """The same option for these actions of a verb only."""
        return Option(
            self.flag, f"{actions}: {self.about}", self.value, short=self.short, choices=self.choices, many=self.many
        )


PASSED_ON = "[-- ARGUMENTS...]"


class Action:
    """One of several things that a verb does, with a help of its own."""

    __slots__ = ("about", "example", "name", "usage")

    def __init__(self, name: str, usage: str, about: str, example: str) -> None:
        self.name = name
        self.usage = usage
        self.about = about
        self.example = example


class Verb:
    """One verb: its arguments, where its function is, and its help."""

    __slots__ = (
        "about",
        "actions",
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
        actions: tuple[Action, ...] = (),
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
        self.actions = actions
        """What it does, if each has a help of its own. The text of an option begins with the action it belongs to."""
        self.raw = raw
        """Whether the function gets its words unparsed."""

    def options_of(self, action: str) -> tuple[Option, ...]:
        """The options of an action, and those of all its actions."""
        return tuple(
            option for option in self.options if action in self.actions_of(option) or not self.actions_of(option)
        )

    def actions_of(self, option: Option) -> tuple[str, ...]:
        """The actions that an option belongs to: its text begins with their names. Empty if it belongs to all."""
        names = tuple(option.about.partition(": ")[0].split(", "))
        return names if {one.name for one in self.actions}.issuperset(names) else ()

    def general_options(self) -> tuple[Option, ...]:
        """The options of every verb that it does not define itself."""
        own = {option.flag for option in self.options}
        return tuple(option for option in EVERYWHERE if option.flag not in own)

    def all_options(self) -> tuple[Option, ...]:
        """Its own options, and those of every verb."""
        return (*self.options, *self.general_options())


EVERYWHERE = (
    Option("--json", 'print {"schema_version", "kind", "data"}'),
    Option("--quiet", "print no notes, and only the position of a change", short="-q"),
    Option("--no-input", "never ask; fail instead"),
    Option("--store", "the store (default: ONRECORD_STORE, or your own)", "URL"),
    Option("--project", "the project (default: ONRECORD_PROJECT, or this directory's)", "PATH"),
    Option("--help", "show this help", short="-h"),
)
KEYS = (
    Option("--key-file", "encrypt, rekey, new-key: the file of the key (default: the settings)", "FILE"),
    Option("--keyring", "encrypt, rekey, new-key: the key's name in the system's keyring", "NAME"),
)
"""Which key `onrecord store` uses."""
STORE_ACTIONS = (
    Action("init", "[URL]", "Create a store in PostgreSQL: its tables, roles and policies",
           "onrecord store init postgresql://admin@db.example/agents"),
    Action("migrate", "[URL]", "Upgrade the schema of a store", "onrecord store migrate"),
    Action("status", "[URL]", "Print what a store is: version, tenant, sessions, durability", "onrecord store status"),
    Action("encrypt", "[FILE]", "Encrypt a store in a file", "onrecord store encrypt --key-file onrecord.key"),
    Action("rekey", "[FILE]", "Encrypt the store with another key", "onrecord store rekey --key-file new.key"),
    Action("decrypt", "[FILE]", "Make it a plain file again", "onrecord store decrypt"),
    Action("new-key", "", "Make a new random key and keep it", "onrecord store new-key --key-file onrecord.key"),
    Action("session-keys", "[URL]", "Give every new session a key of its own, so that an erasure reaches every copy",
           "onrecord store session-keys"),
    Action("grant", "LOGIN", "Let a login of PostgreSQL work in a tenant, or only read it",
           "onrecord store grant acme_agents --tenant acme"),
    Action("revoke", "LOGIN", "Take that right back", "onrecord store revoke acme_agents --tenant acme"),
    Action("who", "", "List the members of tenants, and logins that no policy binds", "onrecord store who"),
    Action("audit", "[on|off]", "List who read which session; on and off record it or not",
           "onrecord store audit --tenant acme"),
    Action("retention", "[RULE=DAYS...]", "Set how long a tenant keeps its sessions",
           "onrecord store retention erase_closed_after=30 --tenant acme"),
    Action("erase", "", "Erase the sessions of a tenant that no hold protects",
           "onrecord store erase --tenant acme --dry-run"),
)  # fmt: skip
SEALING = (
    Option("--encrypt-to", "encrypt a bundle for this public key, or for those in a file", "KEY", many=True),
    Option("--sign", "sign a bundle with this SSH key", "FILE"),
)
"""For whom, and by whom, an export is."""
UNSEALING = (
    Option("--identity", "decrypt a bundle with this age identity or SSH key", "FILE"),
    Option("--signers", "the signers you know, in OpenSSH's format of allowed signers", "FILE"),
    Option("--signed-by", "import only what this signer has signed", "NAME"),
)
"""The other side of it, for an import."""
TENANTS = (
    Option("--owner", "init: the role that owns the tables (default: onrecord_owner)", "ROLE"),
    Option("--app", "init: the role that agents connect as (default: onrecord_app)", "ROLE"),
    Option("--auditors", "init: the role of logins that only read (default: onrecord_auditor)", "ROLE"),
    Option("--tenant", "the tenant (default: of the URL, ONRECORD_TENANT, or `default`)", "TENANT"),
    Option("--every-tenant", "grant, revoke: the right to work in any tenant"),
    Option("--auditor", "grant: the login may only read"),
    Option("--session", "audit: only reads of this session", "NAME", short="-s"),
    Option("--limit", "audit: at most this many lines (default: 50)", "N", short="-n"),
)
"""Roles, tenants and logins of a store in PostgreSQL."""
PROXY = (
    Option("--upstream", "serve: the inference engine, or several", "URL", many=True),
    Option("--tokenizer", "serve: the model's directory, or module:name", "DIR"),
    Option("--dialect", "serve: the engine's protocol (default: sglang)", "DIALECT",
           choices=("sglang", "sglang-completions", "vllm", "vllm-completions", "vllm-generate", "llama")),
    Option("--abort-policy", "serve: for an aborted turn (default: retry)", "POLICY",
           choices=("retry", "continue", "pass", "503")),
    Option("--retries", "serve: retries of an aborted turn (default: 8)", "N"),
    Option("--branches", "serve: record edits, subagents and n answers as branches"),
    Option("--whole-streams", "serve: send chunks only after the commit"),
    Option("--matcher", "serve: strict, loose_reasoning (default), loose_tool_call, role_content_only, or "
           "module:name", "MATCHER"),
    Option("--parser", "serve: your parser of tool calls, as module:name", "NAME"),
    Option("--max-rollback", "serve: turns a request may discard (default: 1)", "N"),
    Option("--max-trim-tokens", "serve: ids an engine may render again (default: 0)", "N"),
    Option("--refuse-after-length", "serve: refuse turns after one that ran out of tokens"),
    Option("--new-tools", "serve: tools and template arguments may change"),
    Option("--host", "serve: where to listen (127.0.0.1); others need a token", "HOST"),
    Option("--port", "serve: the port (default: 8700); 0 takes a free one", "PORT"),
    Option("--token-file", "serve: the clients' token (or ONRECORD_ROLLOUT_TOKEN)", "FILE"),
    Option("--allow-host", "serve: another host name clients may use", "NAME", many=True),
    Option("--turns-limit", "serve: how many turns may run at once", "N"),
    Option("--lease-seconds", "serve: when another proxy may take over", "SECONDS"),
    Option("--timeout", "serve: how long a generation may take", "SECONDS"),
)  # fmt: skip
"""How the recording proxy serves."""
