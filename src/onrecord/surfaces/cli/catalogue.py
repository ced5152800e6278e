"""The catalogue of verbs: arguments, options, help and an example of each. Parser, help and completion read it.

It is plain data and cheap to load, because every command loads it.
"""

from __future__ import annotations

from onrecord.surfaces.cli import actions
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.verbs import KEYS, PROXY, SEALING, STORE_ACTIONS, TENANTS, UNSEALING, Action, Option, Verb
from onrecord.surfaces.cli.words import ALIASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_AGENTS_IMPORT = "onrecord.surfaces.cli.agents.importing"
_AGENTS_START = "onrecord.surfaces.cli.agents.start"
_ATTEMPTS = "onrecord.surfaces.cli.work.attempts"
_BACKUPS = "onrecord.surfaces.cli.upkeep.backups"
_COMPACT = "onrecord.surfaces.cli.work.compact"
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
_MCP = "onrecord.surfaces.mcp.verb"
_MOVING = "onrecord.surfaces.cli.sessions.bundles"
_NOTES = "onrecord.surfaces.cli.work.notes"
_NOTIFY = "onrecord.surfaces.notifying"
_OVERVIEW = "onrecord.surfaces.cli.sessions.overview"
_PHASES = "onrecord.surfaces.cli.work.phases"
_PROJECT = "onrecord.surfaces.cli.sessions.project"
_PROVE = "onrecord.surfaces.cli.upkeep.prove"
_RECORD = "onrecord.surfaces.cli.sessions.record"
_REDACT = "onrecord.surfaces.cli.upkeep.redact"
_RETAIN = "onrecord.surfaces.cli.upkeep.retain"
_ROLLOUT = "onrecord.surfaces.cli.rollout.verb"
_RUN = "onrecord.surfaces.cli.work.run"
_SESSIONS = "onrecord.surfaces.cli.sessions.sessions"
_SETUP = "onrecord.surfaces.cli.agents.setup"
_SHOW = "onrecord.surfaces.cli.sessions.show"
_STATE_FILE = "onrecord.surfaces.cli.work.state_file"
_TEAM = "onrecord.surfaces.cli.agents.team"
_TEAM_MEMBER = "onrecord.surfaces.cli.agents.team_member"
_USAGE = "onrecord.surfaces.cli.sessions.usage"
_USE = "onrecord.surfaces.cli.sessions.use"
_WEB = "onrecord.surfaces.cli.sessions.web"
_WORKTREE = "onrecord.surfaces.cli.agents.worktree"
_STORES = "onrecord.surfaces.cli.upkeep.stores"

SESSION = Option(
    "--session", "the session (default: ONRECORD_SESSION, `onrecord use`, or the only live one)", "NAME", short="-s"
)
WITHIN = Option("--session", "only this session", "NAME", short="-s")
AGENT = Option("--agent", "who records it (default: ONRECORD_AGENT, or your own name)", "AGENT")
LANE = Option("--agent", "the agent whose lane it is (default: ONRECORD_AGENT, or main)", "AGENT")
REASON = Option("--reason", "the reason, for the record", "TEXT", short="-m")
LIMIT = Option("--limit", "show at most this many", "N", short="-n")
ALL_PROJECTS = Option("--all", "include all projects", short="-a")
YES = Option("--yes", "do not ask for confirmation", short="-y")
ID = Option("--id", "an idempotency key: repeating the command records nothing twice", "ID")
BECAUSE = Option("--because", "the position of the event that led to it", "POSITION")
DRY_RUN = Option("--dry-run", "only print what would happen")
PROMPT = Option("--prompt", "run the agent without a terminal, with this prompt", "TEXT", short="-p")
OPENING = Option("--opening", "the first message of a new conversation, also on a terminal", "TEXT")
STREAM = Option("--jsonl", "print the agent's own JSON stream instead of its text")
SAY = Option("--say", "what to tell the agent on the terminal", "TEXT")
ARGUMENT = Option("--argument", "an extra argument for the agent's program", "WORD", many=True)
HEADLESS_TEAM = Option("--headless", "run without tmux; output goes to log files")
HEADLESS = Option("--headless", "run the agent without a terminal; read the prompt from standard input")
WAIT = Option("--wait", "when a usage limit stops the agent, wait until it ends and resume")
WHOSE = Option("--agent", "the agent (default: the only one that has a conversation)", "AGENT")
OVERWRITE = Option("--force", "replace an existing file")

START, RECORD, READ, LIFE, AGENTS, PROVE, KEEP, TOOL = (
    "Sessions", "Record work", "Read", "Change a session's status", "Coding agents", "Verify and control",
    "Store, copy and erase", "Setup and help",
)  # fmt: skip
STATUSES = ("open", "active", "paused", "resumed", "closed", "archived", "erased")
LABELS = ("verified", "rejected", "open", "blocked")
METRIC = Option("--metric", "a metric of the attempt", "NAME=NUMBER", many=True)
STRICT = Option("--strict", "refuse a command that already failed on this code")
TIMEOUT = Option("--timeout", "stop the command after this many seconds", "SECONDS")
PROOF = Option(
    "--evidence", "evidence for it: an id, `last`, or the letter of a new one", "EVIDENCE", many=True, short="-e"
)
FORMATS = ("bundle", "jsonl", "messages", "markdown", "html")
DIALECTS = ("neutral", "openai", "openai-responses", "anthropic", "gemini")
SHELLS = ("bash", "zsh", "fish")
NOTE_FORMS = ("markdown", "brief", "pr", "issue", "json", "terminal")

_LIST = (
    Option("--status", "only sessions with this status", "STATUS", choices=STATUSES, many=True), ALL_PROJECTS, LIMIT,
)  # fmt: skip

VERBS: tuple[Verb, ...] = (
    Verb("", "", "", "Show what needs you, then the other sessions; resume one", _OVERVIEW,
         ALL_PROJECTS, LIMIT, function="overview"),
    Verb(START, "demo", "", "Watch a worker being killed, and its session survive", _DEMO,
         Option("--keep", "keep the demo's store in this directory", "DIR"),
         Option("--fast", "run without pauses"), example="onrecord demo"),
    Verb(START, "open", "NAME", "Start a session, or open the one with this name", _SESSIONS,
         Option("--objective", "what the session should achieve", "TEXT", short="-o"),
         Option("--budget", "limit steps, tokens, seconds, spend or repeats", "LIMIT=NUMBER", many=True),
         Option("--meta", "a value to store with the session", "KEY=VALUE", many=True),
         Option("--profile", "the kind of work: research, bugfix, build, or a TOML file", "PROFILE", short="-p"),
         Option("--fresh", "rename an existing STATE.md and start a new one"),
         Option("--stealth", "keep STATE.md and NOTE.md out of the repository"), AGENT, function="open_session",
         takes=("NEW",),
         example='onrecord open fix-invite-403 --objective "Fix the 403 after an invite"'),
    Verb(START, "list", "", "List sessions, newest first (also: ls)", _SESSIONS, *_LIST, WITHIN,
         function="list_sessions", example="onrecord list --status paused --all"),
    Verb(START, "use", "[NAME]", "Choose the session for the commands of this terminal", _USE,
         Option("--clear", "forget the chosen session"), example="onrecord use fix-invite-403"),
    Verb(START, "search", "WORDS...", "Search for words in what agents said and recorded", _SESSIONS, WITHIN,
         ALL_PROJECTS, LIMIT, example="onrecord search membership row"),
    Verb(START, "usage", "", "Show the tokens and the cost of model calls", _USAGE,
         Option("--by", "one row for each of these (default: day)", "WHAT",
                choices=("day", "week", "model", "session", "agent", "project")),
         Option("--since", "from this day on: a date, today, 7d or 4w", "DAY"), ALL_PROJECTS, WITHIN,
         Option("--csv", "print comma-separated values"), example="onrecord usage --by model --since 7d"),

    Verb(RECORD, "record", "", "Record a turn: items in order, or JSON items on standard input", _RECORD,
         Option("--user", "what the user said", "TEXT", many=True),
         Option("--assistant", "what the assistant said", "TEXT", many=True),
         Option("--tool", "a tool call of the assistant and its result", "CALL=RESULT", many=True),
         Option("--model", "the model that was called", "MODEL"), Option("--input-tokens", "tokens it read", "N"),
         Option("--output-tokens", "tokens it wrote", "N"), Option("--cost", "what it cost", "AMOUNT"),
         Option("--takeover", "take the lease from the process that has it"), ID, SESSION, LANE,
         example='onrecord record --user "Why the 403?" --assistant "Looking."'),
    Verb(RECORD, "decide", "TEXT", "Record a decision", _FACTS,
         Option("--why", "the reason", "TEXT"), BECAUSE, ID, SESSION, AGENT,
         example='onrecord decide "Reproduce it first" --why "two fixes failed"'),
    Verb(RECORD, "objective", "TEXT", "Set the objective of the session", _FACTS, SESSION, AGENT,
         example='onrecord objective "Fix intermittent 403 after invite acceptance"'),
    Verb(RECORD, "title", "TEXT", "Set the title that lists and STATE.md show", _FACTS, SESSION, AGENT,
         example='onrecord title "403 after invite acceptance"'),
    Verb(RECORD, "next", "TEXT", "Set the next action", _FACTS,
         Option("--command", "the command that does it", "COMMAND"), SESSION, AGENT, function="next_action",
         example='onrecord next "Run the suite ten times" --command "pytest -k invite"'),
    Verb(RECORD, "run", "-- COMMAND...", "Run a command as an attempt, and record how it ends",
         _RUN, METRIC, Option("--metrics-file", "a JSON file of metrics that the command writes", "FILE"),
         Option("--metric-pattern", "a metric to find in the output", "NAME=REGEX", many=True),
         Option("--expect-file", "a file that the command must write", "FILE", many=True), TIMEOUT, STRICT,
         Option("--fix", "what was changed to fix the previous failure", "TEXT"),
         Option("--allow-traceback", "do not count a traceback in the output as a failure"),
         Option("--allow-nan", "do not count a metric that prints NaN or infinity as a failure"),
         Option("--open", "run it in the session of this name, which is made if needed", "NAME"), SESSION, AGENT,
         takes=("COMMAND...",), example="onrecord run --expect-file model.pt --timeout 600 -- python train.py"),
    Verb(RECORD, "attempt", "[ACTION] [N...] [-- COMMAND...]",
         "List attempts, and record those that onrecord did not run", _ATTEMPTS, METRIC.of("succeed, fail"),
         Option("--output", "succeed: a file that it created", "FILE", many=True),
         Option("--error", "fail: the exact error message", "TEXT"),
         Option("--fix", "fail, correct: what was changed to fix the failure", "TEXT"),
         Option("--exit-code", "fail: its exit code", "N"),
         Option("--remark", "correct: a remark to add", "TEXT"),
         Option("--code-change-needed", "fail, correct: it will fail again until the code changes"),
         Option("--csv", "list, compare: print comma-separated values"), STRICT.of("start"),
         REASON.of("interrupt, abandon"), SESSION, AGENT, takes=("[WORDS...]",), actions=actions.ATTEMPT,
         example='onrecord attempt fail 3 --error "out of memory" --fix "batch size 16"'),
    Verb(RECORD, "finding", "[ACTION] [FINDING] [TEXT]",
         "State findings with evidence; judge and list them", _FINDINGS,
         Option("--label", "state, list: the label (default: open for a new finding, every label for a list)", "LABEL",
                choices=(*LABELS, "stale"), short="-l"), PROOF.of("state, relabel, challenge, uphold"),
         Option("--on", "state, relabel: code it depends on, as path, path:10-20 or path::Class.method", "CODE",
                many=True),
         Option("--why", "relabel, uphold: the reason", "TEXT"),
         Option("--contradicts", "state, relabel: a finding that it excludes", "FINDING", many=True),
         Option("--hypothesis", "state: make it the active hypothesis"),
         Option("--apply", "recheck: set the label that follows from the result"), TIMEOUT.of("recheck"),
         YES.of("recheck"), BECAUSE.of("state, relabel, challenge"), SESSION, AGENT, takes=("[WORDS...]",),
         actions=actions.FINDING,
         example='onrecord finding state "The cache is stale" -l verified -e last'),
    Verb(RECORD, "evidence", "[ACTION] [REFERENCE] [-- COMMAND...]",
         "Capture a command's output or part of a file as evidence", _EVIDENCE,
         Option("--kind", "add: the kind of evidence", "KIND",
                choices=("log", "trace", "test", "commit", "branch", "url", "issue", "pull-request", "row", "note",
                         "dashboard", "position", "tracker")),
         Option("--id", "run, file, add: its id (default: a new one like run-2026-05-18-a)", "ID"), TIMEOUT.of("run"),
         Option("--text", "add: what it says", "TEXT"), Option("--full", "show: print the full output"), SESSION, AGENT,
         takes=("[WORDS...]",), actions=actions.EVIDENCE, example="onrecord evidence run -- pytest -k invite"),
    Verb(RECORD, "reached", "root-cause|fix", "Record that the root cause is verified, or the fix is done",
         _FINDINGS, Option("--finding", "the verified finding that is the root cause", "FINDING"), PROOF, SESSION,
         AGENT, takes=("WHAT",), example="onrecord reached fix --finding f2 --evidence last"),
    Verb(RECORD, "survey", "", "Check whether the code that findings depend on has changed", _FINDINGS, SESSION, AGENT,
         example="onrecord survey"),

    Verb(RECORD, "profile", "[ACTION] [PROFILE]", "Choose the session's profile; list, show or check profiles", _PHASES,
         SESSION, AGENT, example="onrecord profile choose research", actions=actions.PROFILE),
    Verb(RECORD, "phase", "[ACTION] [PHASE]", "List the phases; enter or finish one", _PHASES,
         Option("--retroactive", "finish: even if it was never entered; this is recorded"),
         Option("--why", "finish: the reason for --retroactive", "TEXT"), SESSION, AGENT, actions=actions.PHASE,
         example="onrecord phase finish Planning"),
    Verb(RECORD, "section", "SECTION", "Write a section of STATE.md", _PHASES,
         Option("--text", "its text (default: standard input)", "TEXT", short="-t"),
         Option("--file", "read its text from a file", "FILE"),
         Option("--append", "add to the section instead of replacing it"), SESSION, AGENT,
         example='onrecord section Learnings --append --text "Seeds matter most"'),
    Verb(RECORD, "worklog", "TEXT", "Add a line to the work log", _PHASES, SESSION, AGENT,
         example='onrecord worklog "Downloaded the data"'),
    Verb(RECORD, "feature", "[ACTION] [FEATURE] [TEXT]", "List features; add one, pass, fail or reverify it",
         _PHASES, PROOF.of("pass, fail, reverify"), SESSION, AGENT, actions=actions.FEATURE,
         example="onrecord feature pass login-works --evidence run-2026-05-18-a"),
    Verb(RECORD, "reproduction", "STEPS", "Record how to reproduce the problem", _NOTES,
         Option("--rate", "how often it happens, like 3/10", "RATE"),
         Option("--scenario", "the conditions it needs", "TEXT"), SESSION, AGENT,
         example='onrecord reproduction "pytest -k invite" --rate 3/10'),
    Verb(RECORD, "state-file", "[ACTION]", "Read edits of STATE.md into the log and write it again",
         _STATE_FILE, Option("--fresh", "sync: rename an existing file and start a new one"), SESSION, AGENT,
         actions=actions.STATE_FILE, example="onrecord state-file sync"),

    Verb(RECORD, "compact", "[accept|list] [N...]",
         "Summarize the transcript so far; accept facts that were proposed", _COMPACT,
         Option("--with", "the command that makes the summary; it reads the transcript from standard input", "COMMAND"),
         Option("--text", "the summary itself", "TEXT"),
         Option("--propose", "let the same command propose facts; nothing is recorded until you accept it"),
         Option("--upto", "cover turns up to this position", "POSITION"),
         Option("--afresh", "summarize from the beginning, not from the last summary"), SESSION, LANE,
         takes=("[WORDS...]",), example="onrecord compact --with 'claude -p' --propose"),

    Verb(READ, "note", "[check|none] [NAME]", "Print, write or check the note for the next agent",
         _NOTES, Option("--format", "the format; brief is the first 2 KB", "FORMAT", choices=NOTE_FORMS, short="-f"),
         Option("--write", "write .onrecord/NOTE.md"), Option("--out", "write this file", "FILE", short="-o"),
         Option("--stealth", "from now on, keep the files out of the repository"), OVERWRITE,
         Option("--why", "none: why there is nothing to write", "TEXT"), SESSION, AGENT,
         takes=("[WHAT]", "[NAME]"), example="onrecord note check"),
    Verb(READ, "continue", "[NAME]", "Continue work: see what is done, rejected, new and unresolved", _NOTES,
         DRY_RUN, SESSION, AGENT, function="continue_work", example="onrecord continue fix-invite-403"),
    Verb(READ, "instructions", "", "Print the instructions that an agent needs", _NOTES,
         Option("--profile", "for this kind of work", "PROFILE", short="-p"), SESSION,
         example="onrecord instructions --profile research"),
    Verb(READ, "show", "[NAME]", "Show a session: its status, what needs you, and its note", _SHOW, SESSION,
         example="onrecord show fix-invite-403"),
    Verb(READ, "web", "[NAME]", "Open a live page of every session in the browser", _WEB,
         Option("--port", "the port (default: 8711); 0 takes a free one", "PORT"),
         Option("--host", "the address to listen on (default: 127.0.0.1); others need --token-file", "HOST"),
         Option("--token-file", "a file with the token of the page (default: a new one each time)", "FILE"),
         Option("--allow-host", "another name under which browsers reach it, such as a proxy's", "NAME", many=True),
         Option("--prefix", "the path below which a reverse proxy serves it", "PATH"),
         Option("--tenant-header", "the header in which the proxy names the tenant (PostgreSQL); needs --token-file",
                "HEADER"),
         Option("--allow-writes", "let the page settle attempts, decide, pause and close, under your name"),
         Option("--no-browser", "only print the address"), example="onrecord web"),
    Verb(READ, "log", "[NAME]", "Print the events of a session", _EVENTS,
         Option("--after", "events after this position", "POSITION"),
         Option("--upto", "events up to this position", "POSITION"),
         Option("--kind", "only this kind; `item.` means every kind of item", "KIND", many=True, short="-k"),
         Option("--limit", "at most this many: the newest, or the first after --after (default: 100; 0: all)", "N",
                short="-n"),
         Option("--follow", "keep printing new events, until Ctrl-C", short="-f"),
         Option("--jsonl", "print one JSON object per line"), SESSION,
         example="onrecord log --kind decision.made"),
    Verb(READ, "at", "[NAME] POSITION", "Show a session as it was at a position", _SHOW, SESSION,
         example="onrecord at fix-invite-403 41"),
    Verb(READ, "diff", "[NAME] FROM [TO]", "Show what changed between two positions", _SHOW, SESSION,
         takes=("WORDS...",), example="onrecord diff fix-invite-403 12 41"),

    Verb(LIFE, "pause", "[NAME]", "Pause a session", _LIFECYCLE, REASON, SESSION, AGENT,
         example='onrecord pause --reason "rate limit until 14:00"'),
    Verb(LIFE, "resume", "[NAME] [-- ARGUMENTS...]", "Resume a session and its agent's conversation, or choose one",
         _LIFECYCLE, Option("--reopen", "reopen a closed or archived session"), PROMPT,
         OPENING, ARGUMENT, SAY, STREAM,
         Option("--fresh-arguments", "use only the arguments given now, not those on record"),
         Option("--policy", "if the conversation cannot be resumed: allow a new one from the note (default on a "
                "terminal); must: fail (default without one); never: always start a new one", "POLICY",
                choices=("must", "allow", "never")),
         Option("--print", "only print the command that resumes the agent"), WAIT, YES, REASON, SESSION,
         AGENT, example="onrecord resume fix-invite-403"),
    Verb(LIFE, "close", "[NAME]", "Close a session; its record is kept", _LIFECYCLE,
         Option("--anyway", "close it although its note is incomplete, and record why", "REASON"), REASON, SESSION,
         AGENT, example="onrecord close fix-invite-403 --reason fixed"),
    Verb(LIFE, "archive", "[NAME]", "Archive a closed session", _LIFECYCLE, REASON, SESSION, AGENT,
         example="onrecord archive fix-invite-403"),
    Verb(LIFE, "rename", "[NAME] NEW", "Rename a session", _LIFECYCLE, SESSION, AGENT,
         example="onrecord rename fix-invite-403 invite-403"),
    Verb(LIFE, "project", "[ACTION] [WORDS...]", "Show which project this is; link it, or move sessions into it",
         _PROJECT, YES, SESSION, AGENT, takes=("[WORDS...]",), function="project_verb", actions=actions.PROJECT,
         example="onrecord project merge /home/ada/old-place"),
    Verb(LIFE, "fork", "[NAME] NEW", "Start a new session from the history of another", _LIFECYCLE,
         Option("--at", "up to this position (default: all of it)", "POSITION"), SESSION, AGENT,
         example="onrecord fork fix-invite-403 try-b --at 41"),

    Verb(AGENTS, "start", "VENDOR [-- ARGUMENTS...]",
         "Start a coding agent (claude, codex, gemini, ...) in a session",
         _AGENTS_START, Option("--name", "the session (default: a new one, named after directory and time)", "NEW"),
         PROMPT, OPENING, ARGUMENT, HEADLESS, STREAM,
         Option("--worktree", "work on this branch, in a git worktree of its own beside the repository", "BRANCH"),
         Option("--objective", "the objective of a new session", "TEXT", short="-o"), WAIT, YES,
         SESSION, Option("--agent", "its name in the session (default: the vendor's)", "AGENT"), takes=("WORDS...",),
         function="start_agent", example="onrecord start claude --name fix-invite-403"),
    Verb(AGENTS, "adopt", "VENDOR", "Attach a running coding agent to a session, or list running ones",
         _AGENTS_START, Option("--pid", "its process", "PID"), Option("--id", "its conversation's id", "ID"),
         Option("--name", "the session (default: a new one, named after the id)", "NEW"), SESSION,
         Option("--agent", "its name in the session (default: the vendor's)", "AGENT"), takes=("WORDS...",),
         example="onrecord adopt claude --pid 4242 --name fix-invite-403"),
    Verb(AGENTS, "handoff", "[NAME] [-- ARGUMENTS...]", "Continue with another vendor's agent, from the note",
         _AGENTS_START, Option("--to", "the vendor that continues", "VENDOR"), PROMPT, HEADLESS, STREAM, WAIT, YES,
         SESSION,
         Option("--agent", "its name in the session (default: the vendor's)", "AGENT"),
         example="onrecord handoff fix-invite-403 --to codex"),
    Verb(AGENTS, "worktree", "[ACTION] [NAME]", "Show and remove the git worktrees of a session's agents",
         _WORKTREE, Option("--files", "diff: only the names of the changed files"),
         Option("--force", "remove: even if changes that are not committed are lost"), YES.of("remove"), SESSION, WHOSE,
         takes=("[WORDS...]",), actions=actions.WORKTREE, example="onrecord worktree diff fix-login"),
    Verb(AGENTS, "team", "[ACTION] [WORDS...]",
         "Run a team of agents in one session, from a team file", _TEAM,
         HEADLESS_TEAM.of("up, resume"),
         Option("--detach", "up, resume: run the supervisor in the background", short="-d"),
         Option("--fresh", "resume: this agent starts a new conversation", "AGENT", many=True),
         Option("--objective", "up: the objective of a new session", "TEXT", short="-o"), YES.of("up, resume"), SESSION,
         takes=("[WORDS...]",), actions=actions.TEAM,
         example="onrecord team up team.toml --session invite-403"),
    Verb(AGENTS, "mcp", "", "Serve the record to agents: an MCP server with six tools", _MCP,
         Option("--http", "listen on 127.0.0.1 for several clients (default: serve the one that started it)"),
         Option("--port", "http: the port (default: 8765); 0 takes a free one", "PORT"),
         Option("--token-file", "http: a file with the clients' token (or ONRECORD_MCP_TOKEN; default: a new one)",
                "FILE"), example="onrecord mcp --http --port 8765"),
    Verb(AGENTS, "mirror", "[NAME]", "Copy new messages from agents' conversations", _AGENTS_IMPORT,
         Option("--follow", "continue until the agent ends, or Ctrl-C", short="-f"), SESSION, WHOSE,
         example="onrecord mirror fix-invite-403"),
    Verb(AGENTS, "restore", "[NAME]", "Restore a mirrored conversation so that its agent can resume it",
         _AGENTS_IMPORT, Option("--cwd", "the directory to resume it in (default: where it was)", "DIR"),
         Option("--generation", "an older copy of it, by its number (default: the most complete one)", "N"), DRY_RUN,
         YES, SESSION, WHOSE, example="onrecord restore fix-invite-403 --cwd ~/src/invites"),

    Verb(PROVE, "gate", "[override RULE]", "Decide whether a tool call may run; override a refusal", _GATE,
         Option("--tool", "the tool's name, as the agent calls it", "TOOL"),
         Option("--path", "a file that it will change", "PATH", many=True),
         Option("--lines", "the lines that it will change", "FROM-TO"),
         Option("--command", "the command line that it will run", "COMMAND"),
         Option("--act", "what it does, if the tool's name does not say", "ACT",
                choices=("edit", "run", "read", "other")),
         Option("--call", "the call's id: repeating the command records nothing twice", "ID"),
         Option("--strict-gate", "deny if the gate itself fails (or ONRECORD_STRICT_GATE)"), REASON, SESSION, AGENT,
         takes=("[OVERRIDE]", "[RULE]"), example="onrecord gate --tool Edit --path src/auth.py --json"),
    Verb(PROVE, "hook", "VENDOR [EVENT]", "Answer a coding agent's hook; its payload is read from stdin", _HOOK,
         example="onrecord hook claude PreToolUse < payload.json"),
    Verb(PROVE, "verify", "[NAME]", "Verify the hash chain of a session", _PROVE,
         Option("--checkpoint", "compare with checkpoints from this file, too", "FILE"),
         Option("--all", "verify every session of the store", short="-a"), SESSION, example="onrecord verify --all"),
    Verb(PROVE, "checkpoint", "[NAME]", "Print position and hash, to keep outside the store", _PROVE,
         Option("--out", "write it to a file", "FILE", short="-o"), OVERWRITE,
         Option("--all", "include every session of the store", short="-a"), SESSION,
         example="onrecord checkpoint --all --out checkpoints.json"),
    Verb(PROVE, "doctor", "", "Check the store, the settings and the coding agents", _DOCTOR,
         Option("--fix", "restrict permissions, empty the write-ahead log, delete snapshots"),
         example="onrecord doctor --fix"),

    Verb(KEEP, "export", "[NAME]", "Write a session to a file", _MOVING,
         Option("--format", "bundle (can be imported), jsonl (events), messages, markdown, html (a report in one file)",
                "FORMAT", choices=FORMATS, short="-f"),
         Option("--out", "the file (default: standard output)", "FILE", short="-o"),
         Option("--dialect", "for --format messages", "DIALECT", choices=DIALECTS),
         Option("--from", "for html and markdown: begin the timeline at this position", "POSITION"),
         Option("--to", "for html and markdown: the session as it was after this position", "POSITION"),
         Option("--no-tool-output", "for html and markdown: leave out what tools returned"), OVERWRITE,
         *SEALING, SESSION, function="export_session",
         example="onrecord export fix-invite-403 --out fix-invite-403.onrecord"),
    Verb(KEEP, "import", "FILE | VENDOR [PATH|ID] | FRAMEWORK FILE",
         "Import a bundle, conversations, or an agent framework's own file",
         _MOVING, Option("--as", "import it under another name", "NEW"),
         Option("--update", "add new events to a session that is already here"), *UNSEALING,
         Option("--all", "import every conversation that the vendor started in this directory", short="-a"),
         Option("--session", "import the conversation into this session (default: a new one)", "NAME", short="-s"),
         Option("--agent", "the agent of the conversation (default: the vendor's name)", "AGENT"),
         takes=("FILE", "[WHAT]"), function="import_session", example="onrecord import fix-invite-403.onrecord"),
    Verb(KEEP, "rollout", "serve|export [NAME...]",
         "Serve the recording proxy, or export training samples", _ROLLOUT, *PROXY,
         Option("--to", "export: the file (.parquet, .safetensors or .npz)", "FILE"),
         Option("--for", "export: JSON Lines (.jsonl) in the form of this trainer", "TRAINER",
                choices=("slime", "miles", "verl", "prime-rl", "areal", "skyrl", "openrlhf", "trl", "agent-lightning")),
         Option("--turns", "export: one sample per turn (default: one per session)"),
         Option("--past-length", "export: also merge turns after one that ran out of tokens"),
         Option("--max-seq-len", "export: drop the last turns to fit this many tokens", "N"),
         Option("--all", "export: every rollout but those handed over, deleted or continued by a branch", short="-a"),
         Option("--force", "export: replace an existing file"),
         Option("--agent", "export: whose lane it is (default: ONRECORD_AGENT, or policy)", "AGENT"),
         takes=("WORDS...",), example="onrecord rollout export task-17 task-18 --to samples.parquet",
         actions=(
             Action("serve", "--upstream URL --tokenizer DIR", "Record the token ids of agents under training",
                    "onrecord rollout serve --upstream http://gpu1:30000 --tokenizer policy"),
             Action("export", "[NAME...] --to FILE", "Write training samples to a file",
                    "onrecord rollout export task-17 task-18 --to samples.parquet"),
         )),
    Verb(KEEP, "copy", "FROM TO", "Copy sessions to another store, or update the copies there", _COPIES,
         Option("--session", "only this one, and those it was forked from (default: all)", "NAME", many=True,
                short="-s"),
         Option("--as", "copy it under another name", "NEW"),
         Option("--into", "put the copies into this project (default: the same as here)", "PROJECT"),
         example="onrecord copy onrecord.db /srv/team/onrecord.db --session fix-login"),
    Verb(KEEP, "backup", "[FILE]", "Back up the whole store while it is in use, or restore a backup",
         _BACKUPS, Option("--restore", "verify this backup and replace the store with it", "FILE"),
         OVERWRITE, YES, example="onrecord backup onrecord-monday.db"),
    Verb(KEEP, "store", "ACTION [WORDS...]",
         "Encrypt a store in a file; manage one in PostgreSQL", _STORES,
         *TENANTS, *KEYS, REASON, DRY_RUN, YES, takes=("WORDS...",),
         example="onrecord store grant acme_agents --tenant acme", actions=STORE_ACTIONS),
    Verb(KEEP, "sweep", "", "Apply the retention policy: archive sessions, erase transcripts", _RETAIN, DRY_RUN,
         YES, example="onrecord sweep --dry-run"),
    Verb(KEEP, "hold", "[NAME]", "Protect a session against erasure, or lift the hold", _RETAIN,
         Option("--release", "lift the hold"), REASON, SESSION, AGENT,
         example='onrecord hold fix-invite-403 --reason "incident 7 is not understood"'),
    Verb(KEEP, "erase", "[NAME]", "Erase content for good; the hash chain stays valid", _RETAIN,
         Option("--position", "erase the content of this event", "N", many=True),
         Option("--all", "erase all content of the session; also its key, if it has its own"),
         Option("--certify", "write a statement of the erasure to this file; for sessions with a key of their own",
                "FILE"),
         Option("--check", "check such a statement against this store, or a copy of it", "FILE"),
         Option("--sign", "sign the statement with this SSH key", "FILE"),
         Option("--signers", "the signers you know, in OpenSSH's format of allowed signers", "FILE"),
         OVERWRITE, REASON, YES, SESSION, AGENT,
         example='onrecord erase fix-invite-403 --position 7 --reason "a password"'),
    Verb(KEEP, "redact", "[NAME]", "Find secrets in a log and erase the events that contain them", _REDACT, DRY_RUN,
         YES, SESSION, AGENT, example="onrecord redact fix-invite-403 --dry-run"),

    Verb(TOOL, "setup", "[VENDOR...]", "Install or remove the hooks that record your coding agents",
         _SETUP, Option("--project", "for this project (default)"),
         Option("--user", "for this user, in every project"),
         Option("--check", "run the installed hooks and report whether they answer"),
         Option("--remove", "remove our part; the rest of each file stays"), DRY_RUN,
         Option("--print", "only print the text for each file"),
         Option("--force", "even if our part was changed by hand"),
         Option("--yes", "do not ask: record every conversation from now on, and import earlier ones", short="-y"),
         Option("--no-tools", "do not register the MCP server that gives agents tools"),
         Option("--no-auto", "record only what `onrecord start` starts; also switches automatic recording off"),
         Option("--history", "import the conversations of the last DAYS days (default: 30; 0: none)", "DAYS"),
         takes=("[WORDS...]",),
         example="onrecord setup claude codex --project"),
    Verb(TOOL, "version", "", "Show the version", _GUIDE, example="onrecord version"),
    Verb(TOOL, "completion", "SHELL", "Print the completion script for bash, zsh or fish", _COMPLETION,
         example='eval "$(onrecord completion bash)"'),
    Verb(TOOL, "help", "[VERB] [ACTION]", "Show help for everyday verbs, one verb, or all", _GUIDE,
         Option("--all", "list every verb", short="-a"), function="show_help", example="onrecord help export"),

    Verb("", "__complete", "", "", _COMPLETION, function="complete", raw=True),
    Verb("", "__notify", "", "", _NOTIFY, function="run_programs", raw=True),
    Verb("", "__team-member", "", "", _TEAM_MEMBER, function="run_member", raw=True),
    Verb("", "__demo-worker", "", "", _DEMO_WORKER, function="work", raw=True),
    Verb("", "__demo-resume", "", "", _DEMO_WORKER, function="resume", raw=True),
)  # fmt: skip

EVERYDAY = (
    "demo", "setup", "start", "resume", "list", "show", "search", "usage", "web", "open", "continue", "run", "decide",
    "finding", "next", "note", "doctor",
)  # fmt: skip
"""The verbs of a bare `--help`, in the order of a day's work."""

CHOOSING = ("show", "note", "log", "continue", "export", "verify")
"""Verbs that let a person on a terminal choose, where several sessions are live: they only read."""


def find(name: str) -> Verb:
    """The verb of this name, or an error that names the nearest one."""
    wanted = "list" if name == "ls" else name
    for verb in VERBS:
        if verb.name == wanted:
            return verb
    from onrecord.vendors.known import VENDORS

    hint = "`onrecord help --all` lists every verb"
    if name in VENDORS:
        hint = (
            f"`onrecord start {name}` starts it in a session; after `onrecord setup`, plain `{name}` is recorded, too"
        )
    elif guess := ALIASES.get(name) or nearest(name, [*(verb.name for verb in shown()), *ALIASES]):
        hint = f"did you mean `onrecord {ALIASES.get(guess, guess)}`?"
    raise UsageError(f"there is no verb {name!r}", hint=hint)


def shown() -> Iterator[Verb]:
    """The verbs that people use; the others are for onrecord itself."""
    return (verb for verb in VERBS if verb.group)


def nearest(word: str, known: list[str]) -> str:
    """The known word that is most similar to this one, if any is similar."""
    from difflib import get_close_matches

    found = get_close_matches(word, known, n=1, cutoff=0.65) or [one for one in known if word and one.startswith(word)]
    return found[0] if found else ""
