"""The catalogue of verbs: what each takes, says and shows as an example. Parser, help and completion read it.

It is plain data and cheap to load: every command passes through here.
"""

from __future__ import annotations

from onrecord.surfaces.cli.shared.exits import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_AGENTS_IMPORT = "onrecord.surfaces.cli.agents.importing"
_AGENTS_START = "onrecord.surfaces.cli.agents.start"
_ATTEMPTS = "onrecord.surfaces.cli.work.attempts"
_BACKUPS = "onrecord.surfaces.cli.upkeep.backups"
_COPIES = "onrecord.surfaces.cli.upkeep.copies"
_COMPLETION = "onrecord.surfaces.cli.completion"
_DEMO = "onrecord.surfaces.cli.demo.verb"
_DEMO_WORKER = "onrecord.surfaces.cli.demo.worker"
_DOCTOR = "onrecord.surfaces.cli.upkeep.doctor"
_EVENTS = "onrecord.surfaces.cli.sessions.events"
_GATE = "onrecord.surfaces.cli.work.gate"
_EVIDENCE = "onrecord.surfaces.cli.work.evidence"
_FACTS = "onrecord.surfaces.cli.sessions.facts"
_FINDINGS = "onrecord.surfaces.cli.work.findings"
_GUIDE = "onrecord.surfaces.cli.help"
_HOOK = "onrecord.surfaces.cli.main"
_LIFECYCLE = "onrecord.surfaces.cli.sessions.lifecycle"
_MOVING = "onrecord.surfaces.cli.sessions.bundles"
_NOTES = "onrecord.surfaces.cli.work.notes"
_OVERVIEW = "onrecord.surfaces.cli.sessions.overview"
_PHASES = "onrecord.surfaces.cli.work.phases"
_PROVE = "onrecord.surfaces.cli.upkeep.prove"
_RECORD = "onrecord.surfaces.cli.sessions.record"
_RETAIN = "onrecord.surfaces.cli.upkeep.retain"
_ROLLOUT = "onrecord.surfaces.cli.rollout.verb"
_RUN = "onrecord.surfaces.cli.work.run"
_SESSIONS = "onrecord.surfaces.cli.sessions.sessions"
_SETUP = "onrecord.surfaces.cli.agents.setup"
_SHOW = "onrecord.surfaces.cli.sessions.show"
_STATE_FILE = "onrecord.surfaces.cli.work.state_file"
_TEAM = "onrecord.surfaces.cli.agents.team"
_TEAM_MEMBER = "onrecord.surfaces.cli.agents.team_member"
_STORES = "onrecord.surfaces.cli.upkeep.stores"


class Option:
    """One option of a verb. `value` is what follows it, in capitals; without one it is a switch."""

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


class Verb:
    """One verb: how it is called, where its function is, what it is for."""

    __slots__ = ("about", "example", "function", "group", "module", "name", "options", "raw", "takes", "usage")

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
        self.takes = tuple(usage.split()) if takes is None else takes
        self.function = function or name.replace("-", "_")
        self.raw = raw
        """Whether the function gets the words as they are, unparsed."""

    def all_options(self) -> tuple[Option, ...]:
        """Its own options and those of every verb, unless it has another one of that name."""
        own = {option.flag for option in self.options}
        return (*self.options, *(option for option in EVERYWHERE if option.flag not in own))


EVERYWHERE = (
    Option("--json", 'answer with {"schema_version", "kind", "data"}'),
    Option("--quiet", "no notes on stderr; of a change, only its position", short="-q"),
    Option("--no-input", "never ask; fail instead"),
    Option("--store", "another store than ONRECORD_STORE or the default", "URL"),
    Option("--project", "another project than ONRECORD_PROJECT or the one of this directory", "PATH"),
    Option("--help", "show this", short="-h"),
)
SESSION = Option("--session", "which one (or ONRECORD_SESSION; else the project's only live one)", "NAME", short="-s")
AGENT = Option("--agent", "who says it (or ONRECORD_AGENT; else human)", "AGENT")
LANE = Option("--agent", "whose lane it is (or ONRECORD_AGENT; else main)", "AGENT")
REASON = Option("--reason", "why, for the record", "TEXT", short="-m")
LIMIT = Option("--limit", "how many at the most", "N", short="-n")
ALL_PROJECTS = Option("--all", "of all projects", short="-a")
YES = Option("--yes", "do it without asking", short="-y")
ID = Option("--id", "an id of your own: the same command again records nothing twice", "ID")
BECAUSE = Option("--because", "the position in the log it comes from", "POSITION")
DRY_RUN = Option("--dry-run", "only say what would happen")
PROMPT = Option("--prompt", "run it headless with this prompt", "TEXT", short="-p")
OPENING = Option("--opening", "what a new conversation is asked first, also on a terminal", "TEXT")
ARGUMENT = Option("--argument", "one more argument for the agent's program", "WORD", many=True)
HEADLESS_TEAM = Option("--headless", "without tmux: output goes to log files")
HEADLESS = Option("--headless", "run it headless; the prompt is read from standard input")
WAIT = Option("--wait", "when a limit stops it, park the session until the limit ends and go on by itself")
WHOSE = Option("--agent", "which agent (else the only one that has a conversation)", "AGENT")

START, RECORD, READ, LIFE, AGENTS, PROVE, KEEP, TOOL = (
    "Start and find", "Put on record", "Read", "Lifecycle", "Coding agents", "Prove", "Keep and move",
    "The command itself",
)  # fmt: skip
STATUSES = ("open", "active", "paused", "resumed", "closed", "archived", "erased")
LABELS = ("verified", "rejected", "open", "blocked")
METRIC = Option("--metric", "a number it brought", "NAME=NUMBER", many=True)
FIX = Option("--fix", "what was changed against the failure", "TEXT")
STRICT = Option("--strict", "refuse what is known to fail on this code")
TIMEOUT = Option("--timeout", "end it after so many seconds", "SECONDS")
PROOF = Option("--evidence", "the id of an evidence it rests on", "EVIDENCE", many=True, short="-e")
FORMATS = ("bundle", "jsonl", "messages", "markdown")
DIALECTS = ("neutral", "openai", "anthropic")
SHELLS = ("bash", "zsh", "fish")
NOTE_FORMS = ("markdown", "pr", "issue", "json", "terminal")

_LIST = (
    Option("--status", "only those in this state", "STATUS", choices=STATUSES, many=True), ALL_PROJECTS, LIMIT,
)  # fmt: skip

_PROXY = (
    Option("--upstream", "serve: the inference engine", "URL"),
    Option("--tokenizer", "serve: a directory with tokenizer.json and tokenizer_config.json", "DIR"),
    Option("--dialect", "serve: what the engine speaks (sglang)", "DIALECT",
           choices=("sglang", "vllm", "vllm-completions")),
    Option("--abort-policy", "serve: what becomes of an aborted turn (retry)", "POLICY",
           choices=("retry", "continue", "pass", "503")),
    Option("--retries", "serve: how often an aborted turn is asked again (8)", "N"),
    Option("--host", "serve: where to listen (127.0.0.1); elsewhere a token is needed", "HOST"),
    Option("--port", "serve: the port (8700); 0 takes a free one", "PORT"),
    Option("--token-file", "serve: a file with the token clients must send (or ONRECORD_ROLLOUT_TOKEN)", "FILE"),
    Option("--allow-host", "serve: another name clients may call this host by", "NAME", many=True),
    Option("--matcher", "serve: how messages are compared with those on record (strict)", "MATCHER",
           choices=("strict", "loose_tool_call", "role_content_only")),
    Option("--max-rollback", "serve: how many generated turns a request may discard (1)", "N"),
    Option("--max-trim-tokens", "serve: how many trailing ids an engine may render anew (0)", "N"),
    Option("--turns-limit", "serve: how many turns may be under way", "N"),
    Option("--lease-seconds", "serve: after how long of silence another machine may go on", "SECONDS"),
    Option("--timeout", "serve: how long a generation may take", "SECONDS"),
)  # fmt: skip

VERBS: tuple[Verb, ...] = (
    Verb("", "", "", "Show the sessions of this project, those that need a person first", _OVERVIEW,
         ALL_PROJECTS, LIMIT, function="overview"),
    Verb(START, "demo", "", "See the point in a few seconds: a worker is killed, its session is not", _DEMO,
         Option("--keep", "put the demo's store into this directory", "DIR"),
         Option("--fast", "do not slow down for people"), example="onrecord demo"),
    Verb(START, "open", "NAME", "Start a session, or find the one of this name", _SESSIONS,
         Option("--objective", "what it is for", "TEXT", short="-o"),
         Option("--budget", "a limit of steps, tokens, seconds, spend or repeats", "LIMIT=NUMBER", many=True),
         Option("--meta", "a value to keep with it", "KEY=VALUE", many=True),
         Option("--profile", "the kind of work: research, bugfix, build, or a TOML file", "PROFILE", short="-p"),
         Option("--fresh", "put a STATE.md that is there away under a number"),
         Option("--stealth", "keep STATE.md and NOTE.md out of the repository"), AGENT, function="open_session",
         takes=("NEW",),
         example='onrecord open fix-invite-403 --objective "Fix intermittent 403 after invite acceptance"'),
    Verb(START, "list", "", "List sessions, newest first (also: ls)", _SESSIONS, *_LIST, SESSION,
         function="list_sessions", example="onrecord list --status paused --all"),
    Verb(START, "search", "WORDS...", "Find words in transcripts and facts", _SESSIONS, SESSION, ALL_PROJECTS,
         LIMIT, example="onrecord search membership row"),

    Verb(RECORD, "record", "", "Record a whole turn: items in order, or JSON items on stdin", _RECORD,
         Option("--user", "what the user said", "TEXT", many=True),
         Option("--assistant", "what the assistant said", "TEXT", many=True),
         Option("--tool", "a tool the assistant called, and what came back", "CALL=RESULT", many=True),
         Option("--model", "which model was called", "MODEL"), Option("--input-tokens", "tokens it read", "N"),
         Option("--output-tokens", "tokens it wrote", "N"), Option("--cost", "what it cost", "AMOUNT"),
         Option("--takeover", "take the lane from whoever holds it"), ID, SESSION, LANE,
         example='onrecord record --user "Why the 403?" --assistant "Looking." --tool "pytest=3 failed"'),
    Verb(RECORD, "decide", "TEXT", "Record a decision", _FACTS,
         Option("--why", "the reason", "TEXT"), BECAUSE, ID, SESSION, AGENT,
         example='onrecord decide "Reproduce before touching the middleware" --why "two fixes failed"'),
    Verb(RECORD, "objective", "TEXT", "Say what the session is for", _FACTS, SESSION, AGENT,
         example='onrecord objective "Fix intermittent 403 after invite acceptance"'),
    Verb(RECORD, "next", "TEXT", "Say the one thing to do next", _FACTS,
         Option("--command", "the command that does it", "COMMAND"), SESSION, AGENT, function="next_action",
         example='onrecord next "Run the suite ten times" --command "pytest -k invite"'),
    Verb(RECORD, "state", "[CLAIM]", "State a finding, or give one another label", _FACTS,
         Option("--label", "how sure it is", "LABEL", choices=LABELS, short="-l"),
         Option("--evidence", "something inspectable that it rests on", "EVIDENCE", many=True, short="-e"),
         Option("--finding", "the finding to relabel (f1, f2, ...)", "FINDING"),
         Option("--why", "why it has another label now", "TEXT"), BECAUSE, SESSION, AGENT,
         example='onrecord state "The middleware is not the cause" --label rejected --evidence run-7.log'),
    Verb(RECORD, "run", "-- COMMAND...", "Run a command as an attempt: on record before it starts and when it ends",
         _RUN, METRIC, Option("--metrics-file", "a JSON file with numbers that the run writes", "FILE"),
         Option("--metric-pattern", "a number to be found in the output", "NAME=REGEX", many=True),
         Option("--expect-file", "a file the run must leave behind", "FILE", many=True), TIMEOUT, STRICT,
         Option("--fix", "what was changed against the previous failure", "TEXT"),
         Option("--allow-traceback", "a traceback alone does not make it fail"), SESSION, AGENT,
         takes=("COMMAND...",), example="onrecord run --expect-file model.pt --timeout 600 -- python train.py"),
    Verb(RECORD, "attempt", "start|succeed|fail|abandon|correct|list|show [N] [-- COMMAND...]",
         "Record a run that onrecord does not launch; list and show all of them", _ATTEMPTS, METRIC,
         Option("--output", "a file it produced", "FILE", many=True), Option("--error", "its exact error", "TEXT"), FIX,
         Option("--exit-code", "how it ended", "N"), Option("--remark", "something to add to a settled one", "TEXT"),
         STRICT, REASON, SESSION, AGENT, takes=("WORDS...",),
         example='onrecord attempt fail 3 --error "CUDA out of memory" --fix "batch size 16"'),
    Verb(RECORD, "finding", "state|relabel|challenge|uphold|pursue|list|show|recheck [FINDING] [TEXT]",
         "State and judge claims, and look again at what they rest on", _FINDINGS,
         Option("--label", "how sure it is", "LABEL", choices=(*LABELS, "stale"), short="-l"), PROOF,
         Option("--on", "code it rests on: path, path:10-20 or path::Class.method", "PLACE", many=True),
         Option("--why", "why it is judged so", "TEXT"), Option("--hypothesis", "work on it from here on"),
         Option("--apply", "recheck: set the label that follows"), TIMEOUT, BECAUSE, SESSION, AGENT,
         takes=("WORDS...",),
         example='onrecord finding state "The cache is stale" --label verified -e run-2026-05-18-a --on src/cache.py'),
    Verb(RECORD, "evidence", "run|file|add|list|show [REFERENCE] [-- COMMAND...]",
         "Capture a command's output or a piece of a file; or assert something else", _EVIDENCE,
         Option("--kind", "what is asserted", "KIND",
                choices=("log", "trace", "test", "commit", "branch", "url", "position", "tracker")),
         Option("--id", "its id (else one like run-2026-05-18-a is made)", "ID"), TIMEOUT,
         Option("--text", "what it says", "TEXT"), Option("--full", "show all that was kept"), SESSION, AGENT,
         takes=("WORDS...",), example="onrecord evidence run -- pytest -k invite"),
    Verb(RECORD, "reached", "root-cause|fix", "Say that the root cause is verified, or that the fix is implemented",
         _FINDINGS, Option("--finding", "the verified finding that is it", "FINDING"), PROOF, SESSION, AGENT,
         takes=("WHAT",), example="onrecord reached root-cause --finding f2"),
    Verb(RECORD, "survey", "", "Compare the code that findings rest on with the worktree", _FINDINGS, SESSION, AGENT,
         example="onrecord survey"),

    Verb(RECORD, "profile", "[ACTION] [PROFILE]", "Choose the kind of work; list, show or check profiles", _PHASES,
         SESSION, AGENT, example="onrecord profile choose research"),
    Verb(RECORD, "phase", "[ACTION] [PHASE]", "Enter or finish a phase, or list them", _PHASES,
         Option("--retroactive", "finish one that was worked on and never entered; this is recorded"),
         Option("--why", "why it is repaired", "TEXT"), SESSION, AGENT, example="onrecord phase finish Planning"),
    Verb(RECORD, "section", "SECTION", "Write a section of STATE.md: --text, --file or standard input", _PHASES,
         Option("--text", "what it says", "TEXT", short="-t"), Option("--file", "a file that has it", "FILE"),
         Option("--append", "add to what it says"), SESSION, AGENT,
         example='onrecord section Learnings --append --text "Seeds matter more than depth"'),
    Verb(RECORD, "worklog", "TEXT", "Write one line of the work log", _PHASES, SESSION, AGENT,
         example='onrecord worklog "Downloaded the data"'),
    Verb(RECORD, "feature", "[ACTION] [FEATURE] [TEXT]", "Add a feature; pass, fail or reverify it with evidence; list",
         _PHASES, Option("--evidence", "what it rests on", "EVIDENCE", many=True, short="-e"), SESSION, AGENT,
         example="onrecord feature pass login-works --evidence run-2026-05-18-a"),
    Verb(RECORD, "reproduction", "STEPS", "Say how the problem is seen", _NOTES,
         Option("--rate", "how often, like 3/10", "RATE"), Option("--scenario", "under which conditions", "TEXT"),
         SESSION, AGENT, example='onrecord reproduction "pytest -k invite" --rate 3/10'),
    Verb(RECORD, "state-file", "[ACTION]", "Take in what was written in STATE.md and render it; show; path",
         _STATE_FILE, Option("--fresh", "put a file that is there away under a number"), SESSION, AGENT,
         example="onrecord state-file sync"),

    Verb(READ, "note", "[check|none] [NAME]", "Print or write the note; check grades it; none says a field is empty",
         _NOTES, Option("--format", "its form", "FORMAT", choices=NOTE_FORMS, short="-f"),
         Option("--write", "write .onrecord/NOTE.md"), Option("--out", "write this file", "FILE", short="-o"),
         Option("--stealth", "keep the files out of the repository from here on"),
         Option("--force", "replace the file"), Option("--why", "why a field is empty", "TEXT"), SESSION, AGENT,
         takes=("[WHAT]", "[NAME]"), example="onrecord note check"),
    Verb(READ, "continue", "[NAME]", "Go on: what is reused, rejected, new and unresolved, and what is saved", _NOTES,
         DRY_RUN, SESSION, AGENT, function="continue_work", example="onrecord continue fix-invite-403"),
    Verb(READ, "instructions", "", "Print the short block an agent needs", _NOTES,
         Option("--profile", "for this kind of work", "PROFILE", short="-p"), SESSION,
         example="onrecord instructions --profile research"),
    Verb(READ, "show", "[NAME]", "Show the note as the next agent reads it, and where everything stands", _SHOW,
         Option("--note", "the note alone"), Option("--brief", "the note's first 2 KB alone"), SESSION,
         example="onrecord show fix-invite-403"),
    Verb(READ, "log", "[NAME]", "Print the events", _EVENTS,
         Option("--after", "events after this position", "POSITION"),
         Option("--upto", "events up to this position", "POSITION"),
         Option("--kind", "only this kind; item. is every kind of item", "KIND", many=True, short="-k"),
         Option("--limit", "how many at the most: the last ones, or the first after --after (100; 0 is all)", "N",
                short="-n"),
         Option("--follow", "go on with what is appended, until Ctrl-C", short="-f"),
         Option("--jsonl", "one JSON object per line, as they come"), SESSION,
         example="onrecord log --kind decision.made"),
    Verb(READ, "at", "[NAME] POSITION", "Show the session as it was after an event", _SHOW, SESSION,
         example="onrecord at fix-invite-403 41"),
    Verb(READ, "diff", "[NAME] FROM [TO]", "Show what changed in meaning between two positions", _SHOW, SESSION,
         takes=("WORDS...",), example="onrecord diff fix-invite-403 12 41"),

    Verb(LIFE, "pause", "[NAME]", "Stop for now; no process is held", _LIFECYCLE, REASON, SESSION, AGENT,
         example='onrecord pause --reason "rate limit until 14:00"'),
    Verb(LIFE, "resume", "[NAME]", "Go on after a pause, with its agent's conversation; --reopen: after a close",
         _LIFECYCLE, Option("--reopen", "go on with a session that was closed or archived"), PROMPT,
         OPENING, ARGUMENT,
         Option("--policy", "allow (else): begin anew from the note if it cannot be restored; must; never", "POLICY",
                choices=("must", "allow", "never")),
         Option("--print", "print the command that resumes the agent, and do nothing"), WAIT, YES, REASON, SESSION,
         AGENT, example="onrecord resume fix-invite-403"),
    Verb(LIFE, "close", "[NAME]", "End a session and keep its record", _LIFECYCLE,
         Option("--anyway", "close it although its note is incomplete, and record why", "REASON"), REASON, SESSION,
         AGENT, example="onrecord close fix-invite-403 --reason fixed"),
    Verb(LIFE, "archive", "[NAME]", "Put a closed session away", _LIFECYCLE, REASON, SESSION, AGENT,
         example="onrecord archive fix-invite-403"),
    Verb(LIFE, "rename", "[NAME] NEW", "Give a session another name", _LIFECYCLE, SESSION, AGENT,
         example="onrecord rename fix-invite-403 invite-403"),
    Verb(LIFE, "fork", "[NAME] NEW", "Start a session that shares this one's history", _LIFECYCLE,
         Option("--at", "up to this position (else all of it)", "POSITION"), SESSION, AGENT,
         example="onrecord fork fix-invite-403 try-b --at 41"),

    Verb(AGENTS, "start", "VENDOR [-- ARGUMENTS...]",
         "Start a coding agent under a session's name: claude, codex, gemini, copilot, cursor, opencode or qwen",
         _AGENTS_START, Option("--name", "the session (else one is made from directory and time)", "NEW"), PROMPT,
         OPENING, ARGUMENT, HEADLESS, Option("--objective", "what a new session is for", "TEXT", short="-o"), WAIT,
         SESSION, Option("--agent", "its name in the session (else the vendor's)", "AGENT"), takes=("WORDS...",),
         function="start_agent", example="onrecord start claude --name fix-invite-403"),
    Verb(AGENTS, "adopt", "VENDOR", "Attach an agent that is running already; without --pid or --id, list them",
         _AGENTS_START, Option("--pid", "its process", "PID"), Option("--id", "its conversation's id", "ID"),
         Option("--name", "the session (else one is made from the id)", "NEW"), SESSION,
         Option("--agent", "its name in the session (else the vendor's)", "AGENT"), takes=("WORDS...",),
         example="onrecord adopt claude --pid 4242 --name fix-invite-403"),
    Verb(AGENTS, "handoff", "[NAME]", "Let another vendor's agent go on from the note and a cited extract",
         _AGENTS_START, Option("--to", "who goes on", "VENDOR"), PROMPT, HEADLESS, WAIT, SESSION,
         Option("--agent", "its name in the session (else the vendor's)", "AGENT"),
         example="onrecord handoff fix-invite-403 --to codex"),
    Verb(AGENTS, "team", "up|resume|status|attach|logs|restart|scale|stop [WORDS...]",
         "Keep a team of agents running in one session: up FILE, resume NAME, logs AGENT, scale GROUP N, stop", _TEAM,
         HEADLESS_TEAM, Option("--detach", "leave the supervising to a process of its own", short="-d"),
         Option("--fresh", "resume: this agent begins anew", "AGENT", many=True),
         Option("--objective", "what a new session is for", "TEXT", short="-o"), YES, SESSION, takes=("WORDS...",),
         example="onrecord team up team.toml --session invite-403"),
    Verb(AGENTS, "mirror", "[NAME]", "Take in what agents' conversations have more than the record", _AGENTS_IMPORT,
         Option("--follow", "go on until the agent has ended, or Ctrl-C", short="-f"), SESSION, WHOSE,
         example="onrecord mirror fix-invite-403"),
    Verb(AGENTS, "restore", "[NAME]", "Put a mirrored conversation back where the agent's program can resume it",
         _AGENTS_IMPORT, Option("--cwd", "the directory to resume it in (else the one it was in)", "DIR"), DRY_RUN, YES,
         SESSION, WHOSE, example="onrecord restore fix-invite-403 --cwd ~/src/invites"),

    Verb(PROVE, "gate", "[override RULE]", "Say whether a tool call may go on; override lets a refusal pass", _GATE,
         Option("--tool", "the tool, in the agent's own words", "TOOL"),
         Option("--path", "a file it is about to change", "PATH", many=True),
         Option("--lines", "which lines of it", "FROM-TO"),
         Option("--command", "the command line it is about to run", "COMMAND"),
         Option("--act", "what it does, where the tool's name does not say", "ACT",
                choices=("edit", "run", "read", "other")),
         Option("--call", "the call's id: the same call again records nothing twice", "ID"),
         Option("--strict-gate", "deny when the gate itself fails (or ONRECORD_STRICT_GATE)"), REASON, SESSION, AGENT,
         takes=("[OVERRIDE]", "[RULE]"), example="onrecord gate --tool Edit --path src/auth.py --json"),
    Verb(PROVE, "hook", "VENDOR [EVENT]", "Answer a coding agent's hook: its payload comes on standard input", _HOOK,
         example="onrecord hook claude PreToolUse < payload.json"),
    Verb(PROVE, "verify", "[NAME]", "Re-derive the chain and say where it breaks, if it does", _PROVE,
         Option("--checkpoint", "also against a checkpoint kept outside the store", "FILE"),
         Option("--all", "every session of the store", short="-a"), SESSION, example="onrecord verify --all"),
    Verb(PROVE, "checkpoint", "[NAME]", "Print position and hash, to be kept outside the store", _PROVE,
         Option("--out", "write it to a file", "FILE", short="-o"), Option("--force", "replace the file"),
         Option("--all", "of every session of the store", short="-a"), SESSION,
         example="onrecord checkpoint --all --out checkpoints.json"),
    Verb(PROVE, "doctor", "", "Look at the store's health; --fix does what is safe", _DOCTOR,
         Option("--fix", "narrow permissions, empty the write-ahead log, drop snapshots"),
         example="onrecord doctor --fix"),

    Verb(KEEP, "export", "[NAME]", "Write a session to one file", _MOVING,
         Option("--format", "bundle (to import again), jsonl (events), messages, markdown", "FORMAT", choices=FORMATS,
                short="-f"),
         Option("--out", "the file (else standard output)", "FILE", short="-o"),
         Option("--dialect", "of --format messages", "DIALECT", choices=DIALECTS),
         Option("--force", "replace the file"), SESSION, function="export_session",
         example="onrecord export fix-invite-403 --out fix-invite-403.onrecord"),
    Verb(KEEP, "import", "FILE | VENDOR [PATH|ID]",
         "Take in a bundle, verified before anything is written; or a vendor's conversations (none named: list them)",
         _MOVING, Option("--as", "under another name", "NEW"),
         Option("--update", "add what is new to a session that is here"),
         Option("--all", "every conversation of the vendor that began in this directory", short="-a"),
         Option("--session", "the session a conversation goes into (else one is opened for each)", "NAME", short="-s"),
         Option("--agent", "the agent whose conversation it is (else the vendor's name)", "AGENT"),
         takes=("FILE", "[WHAT]"), function="import_session", example="onrecord import fix-invite-403.onrecord"),
    Verb(KEEP, "rollout", "serve|export [NAME...]",
         "Serve the proxy that records rollouts; write their training samples to one file", _ROLLOUT, *_PROXY,
         Option("--to", "the file: .parquet, .safetensors or .npz", "FILE"),
         Option("--turns", "a sample per turn (else one per session)"),
         Option("--max-seq-len", "leave out turns from the end until a sample has at most so many tokens", "N"),
         Option("--all", "every session of the store that has turns with token ids", short="-a"),
         Option("--force", "replace the file"),
         Option("--agent", "whose lane it is (or ONRECORD_AGENT; else policy)", "AGENT"), takes=("WORDS...",),
         example="onrecord rollout export task-17 task-18 --to samples.parquet"),
    Verb(KEEP, "copy", "FROM TO", "Copy sessions to another store, or add what is new to the copies there", _COPIES,
         Option("--session", "only this one, and those it was forked from (else every session)", "NAME", many=True,
                short="-s"),
         Option("--as", "under another name", "NEW"),
         Option("--into", "keep them in this project there (else in the one they have)", "PROJECT"),
         example="onrecord copy onrecord.db sqlite:////srv/team/onrecord.db --session fix-invite-403"),
    Verb(KEEP, "backup", "[FILE]", "Copy the whole store while it is in use; --restore: put a copy in its place",
         _BACKUPS, Option("--restore", "verify this copy and put it in the store's place", "FILE"),
         Option("--force", "replace the file"), YES, example="onrecord backup onrecord-monday.db"),
    Verb(KEEP, "store", "init|migrate|status [URL]", "Make a store in PostgreSQL, upgrade it, or look at it", _STORES,
         Option("--owner", "init: the role that owns the tables (onrecord_owner)", "ROLE"),
         Option("--app", "init: the role that stores connect as (onrecord_app)", "ROLE"), takes=("WORDS...",),
         example="onrecord store init postgresql://admin@db.example/agents"),
    Verb(KEEP, "sweep", "", "Apply the retention policy: archive, and erase old transcripts", _RETAIN, DRY_RUN,
         YES, example="onrecord sweep --dry-run"),
    Verb(KEEP, "hold", "[NAME]", "Protect a session against erasure; --release lifts it", _RETAIN,
         Option("--release", "lift the hold"), REASON, SESSION, AGENT,
         example='onrecord hold fix-invite-403 --reason "incident 7 is not understood"'),
    Verb(KEEP, "erase", "[NAME]", "Erase content for good; the chain still verifies", _RETAIN,
         Option("--position", "erase what this event says", "N", many=True),
         Option("--all", "erase everything the session says"), REASON, YES, SESSION, AGENT,
         example='onrecord erase fix-invite-403 --position 7 --reason "a password"'),

    Verb(TOOL, "setup", "[VENDOR...]", "Put hooks and instructions into the files of coding agents, or out of them",
         _SETUP, Option("--project", "into this project's files (the default)"),
         Option("--user", "into the user's files, for every project"),
         Option("--check", "run the hooks that are set up and say whether they answer"),
         Option("--remove", "take our part out again; the rest stays as it is"), DRY_RUN,
         Option("--print", "show what would be put where, and touch nothing"),
         Option("--force", "also where somebody changed our part"), takes=("[WORDS...]",),
         example="onrecord setup claude codex --project"),
    Verb(TOOL, "version", "", "Show the version", _GUIDE, example="onrecord version"),
    Verb(TOOL, "completion", "SHELL", "Print the completion script of bash, zsh or fish", _COMPLETION,
         example='eval "$(onrecord completion bash)"'),
    Verb(TOOL, "help", "[VERB]", "Show all verbs, or one", _GUIDE, function="show_help",
         example="onrecord help export"),

    Verb("", "__complete", "", "", _COMPLETION, function="complete", raw=True),
    Verb("", "__team-member", "", "", _TEAM_MEMBER, function="run_member", raw=True),
    Verb("", "__demo-worker", "", "", _DEMO_WORKER, function="work", raw=True),
    Verb("", "__demo-resume", "", "", _DEMO_WORKER, function="resume", raw=True),
)  # fmt: skip

ALIASES = {
    "ls": "list", "new": "open", "status": "show", "events": "log", "find": "search",
    "grep": "search", "unarchive": "resume", "release": "hold", "rm": "erase", "delete": "erase",
    "mv": "rename", "check": "verify", "exec": "run", "attempts": "attempt", "findings": "finding",
    "turn": "record", "cp": "copy", "sync": "copy",
}  # fmt: skip
"""Words people try. `ls` simply works; the others are told what the verb is called here."""


def find(name: str) -> Verb:
    """The verb of this name, or an error that names the nearest one."""
    wanted = "list" if name == "ls" else name
    for verb in VERBS:
        if verb.name == wanted:
            return verb
    guess = ALIASES.get(name) or nearest(name, [verb.name for verb in shown()])
    raise UsageError(
        f"there is no verb {name!r}", hint=f"did you mean `onrecord {guess}`?" if guess else "onrecord help lists them"
    )


def shown() -> Iterator[Verb]:
    """The verbs people are told about."""
    return (verb for verb in VERBS if verb.group)


def nearest(word: str, known: list[str]) -> str:
    """The known word that is most like this one, if any is."""
    from difflib import get_close_matches

    found = get_close_matches(word, known, n=1, cutoff=0.6) or [one for one in known if word and one.startswith(word)]
    return found[0] if found else ""
