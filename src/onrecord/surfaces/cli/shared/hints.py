"""What to type next: the command line's own advice for every error, by the error's `step`, else by its code.

The library's hints name no commands, because its errors also reach Python programs. Here the same advice is a command
in backquotes that works as written; the words in braces are the error's details.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.errors import OnrecordError
    from onrecord.surfaces.cli.verbs import Verb

BY_STEP = {
    "act_as": "act as that agent: add `--agent {agent}`",
    "another_fix": "try another fix, or run it without `--strict`",
    "allow_fix": "add `--yes` to allow this change",
    "allow_fresh": "`--policy allow` starts a new conversation from the note",
    "append_section": "add `--append`",
    "await_attempt": "wait until it ends, or press Ctrl-C where it runs; `onrecord attempt list` shows its outcome",
    "capture_evidence": "capture a command with `onrecord evidence run -- pytest`, then pass its id with `--evidence`",
    "check_store": "`onrecord doctor` checks the store",
    "check_target": "copy it again; the copy continues where it stopped",
    "choose_agent": "choose one: `--agent {agent}`",
    "choose_profile": "choose one: `onrecord profile choose bugfix` (or research, or build)",
    "complete_note": "`onrecord note check {name}` lists what is missing; `--anyway REASON` closes it as it is",
    "copy_as": "nothing was changed; copy it with `--session {name} --as {name}-2`, or rename one of the two",
    "correct_attempt": 'add to it: `onrecord attempt correct {number} --remark "..."`',
    "drop_snapshots": "`onrecord doctor --fix` deletes the snapshots; they only save time",
    "enter_phase": "`onrecord phase enter {phase}`; or add `--retroactive` if the work is already done",
    "evidence_id": "give one with `--id ID`",
    "fail_attempt": 'record it as failed: `onrecord attempt fail {number} --error "..."`',
    "feature_evidence": "capture a command with `onrecord run -- pytest`, then pass its id with `--evidence`",
    "finish_phase": "finish it first: `onrecord phase finish {phase}` (with `--retroactive` if it was never entered)",
    "first_session": "`onrecord setup` records your coding agents; `onrecord open my-task` opens a session without one",
    "force_remove": "`--force` removes it",
    "force_setup": "`--force` replaces it",
    "foreign_file": "set ONRECORD_STORE to another path; or, if it was a store: `onrecord backup --restore FILE`",
    "form_team": "`onrecord team up team.toml` forms one",
    "fresh_state_file": "`onrecord state-file sync --fresh` renames it to STATE.1.md and starts a new one",
    "give_evidence": "add `--evidence ID`; `onrecord evidence list` lists the ids",
    "grant_writer": "the owner of the store can run `onrecord store grant {login} --tenant {tenant}`",
    "hand_off": "`onrecord handoff --to claude` starts another agent from the note",
    "import_as": "import it with `--as {name}-2`",
    "install_tmux_library": '`pip install "onrecord[team]"`, or add `--headless`',
    "leave_out_fix": "leave `--fix` out",
    "list_attempts": "`onrecord attempt list` lists the attempts",
    "list_conversations": "`onrecord import {vendor}` lists them",
    "list_evidence": "`onrecord evidence list` lists the evidence; "
    "`onrecord evidence run -- pytest` captures a command, `onrecord evidence file README.md` part of a file",
    "list_features": "`onrecord feature list` lists the features",
    "list_findings": "`onrecord finding list` lists the findings",
    "listen": "another program may use it; `--port 0` picks a free one",
    "lost_key": "restore it from a copy; `onrecord store new-key` makes another, which opens only what is new",
    "migrate_store": "`onrecord store migrate` upgrades it",
    "mirror_it": "`onrecord mirror {name}` copies it",
    "name_cause": "`onrecord reached root-cause --finding {finding}`; `onrecord finding list` lists the findings",
    "name_conversation": "add `--id ID` (the vendor shows the id), or install the hook with `onrecord setup`",
    "name_key": "`onrecord store new-key` makes one and says where to name it; or set ONRECORD_KEY",
    "name_session_key": '`onrecord store new-key` makes one; write file = "PATH" under [session_keys] in the settings, '
    "or set ONRECORD_KEY",
    "need_token": "add `--token-file FILE`",
    "name_store": "name the file or the URL of a store; `onrecord doctor` shows where yours is",
    "new_key": "`onrecord store new-key` makes one",
    "note_out": "write another file with `--out FILE`",
    "print_setup": "`onrecord setup --print` shows what to add by hand",
    "raise_budget": "`onrecord open {name} --budget {limit}={amount}` raises it; it replaces the whole budget, "
    "so name the limits to keep, too",
    "recapture": "capture a command with `onrecord evidence run -- pytest`, then "
    "`onrecord finding relabel {finding} verified --evidence ID`",
    "recheck_finding": "`onrecord finding recheck {finding}` runs its command again",
    "restore_copy": "`onrecord restore` restores the mirrored copy",
    "resume_agent": "nothing was replaced; `onrecord resume {name} --agent {agent}` resumes it",
    "resume_session": "`onrecord resume {name}` resumes the vendor's own copy, or starts a new conversation",
    "resume_team": "`onrecord team resume {name}` shows what it runs, and asks",
    "reverify": "test them again first: `onrecord feature reverify --evidence ID`",
    "same_finding": "`onrecord finding relabel {finding} verified --evidence ID`, or "
    '`onrecord finding challenge {finding} "..."`',
    "settle_attempt": "record its outcome first: `onrecord attempt succeed {number}`, "
    '`onrecord attempt fail {number} --error "..."` or `onrecord attempt abandon {number} --reason "..."`',
    "start_agent": "start one: `onrecord start claude`",
    "strict_run": "change the code, say what you fixed with `--fix TEXT`, or run it without `--strict`",
    "team_status": "see `onrecord team status {name}`; it carries out `onrecord team` restart, scale and stop",
    "update_import": "`--update` adds what is new; `onrecord fork {name} {name}-2` starts a second session from it",
    "verify_cause": "`onrecord finding relabel {finding} verified --evidence ID`, then "
    "`onrecord reached root-cause --finding {finding}`",
    "wait_for_lease": "wait until that process ends, or until its lease expires at {expires}",
    "web_token_file": "choose the token yourself, in a file that only you can read: add `--token-file FILE`",
    "write_section": "`onrecord section {section} --text TEXT`; the work log does not replace it",
}
"""The advice for one cause among many of the same code."""

BY_CODE = {
    "tmux_missing": "install tmux, or add `--headless`",
    "session_not_found": "`onrecord list --all` lists every session of this store",
    "event_not_found": "`onrecord log {name}` lists the events",
    "session_closed": "`onrecord resume {name} --reopen` reopens it; "
    "`onrecord fork {name} {name}-2` starts a new session from it",
    "session_paused": "`onrecord resume {name}` resumes it",
    "session_held": 'lift the hold first: `onrecord hold {name} --release --reason "..."`',
    "lease_lost": "run the command again; events without an acknowledgement were not recorded",
    "effect_unknown": "check whether it happened, then record its result from Python",
    "tool_timed_out": "check whether it happened, then record its result from Python",
    "budget_exhausted": "`onrecord show {name}` shows the budget; set a higher one with "
    "`onrecord open {name} --budget {limit}=NUMBER`, then `onrecord resume {name}`",
    "budget_exceeded": "`onrecord show {name}` shows the budget; set a higher one with "
    "`onrecord open {name} --budget {limit}=NUMBER`, then `onrecord resume {name}`",
    "damaged_log": "`onrecord verify --all` reports position and cause; "
    "`onrecord backup --restore FILE` restores a backup",
    "not_initialised": "`onrecord store init` creates it, as a role that may create roles",
    "tenant_refused": "name a tenant of this login in the URL; or the owner of the store runs "
    "`onrecord store grant {login} --tenant {tenant}`",
    "store_busy": "try again; `onrecord doctor` shows what uses the store",
    "store_corrupt": "`onrecord doctor` checks the store; `onrecord backup --restore FILE` restores a backup",
    "bad_reply": "check `--dialect`, and that the engine returns token ids and logprobs",
    "upstream_failed": "check `--upstream`, then try again",
}
"""The advice for every error of one code that has no step of its own."""

_TAKEOVER = "; `--takeover` takes the lease now"
_BESIDE = "; `--agent second` starts another agent in the same session"


def hint_of(problem: OnrecordError, verb: Verb | None) -> str:
    """The advice for an error of this verb; the verb's help if there is no better advice."""
    given = str(vars(problem).get("hint", ""))  # where it was raised; a class's own hint speaks to Python programs
    found = _filled(BY_STEP.get(problem.step, ""), problem) or given or _filled(BY_CODE.get(problem.code, ""), problem)
    if not found and problem.code not in BY_CODE:
        found = problem.hint
    if problem.step == "wait_for_lease" and verb and any(option.flag == "--takeover" for option in verb.options):
        found += _TAKEOVER
    if problem.step == "wait_for_lease" and verb and verb.name == "start":
        found += _BESIDE
    return found or f"see `{f'onrecord help {verb.name}' if verb else 'onrecord help'}`"


def _filled(template: str, problem: OnrecordError) -> str:
    """The template with the error's details, quoted for a shell; nothing where a detail is not known."""
    from shlex import quote

    try:
        return template.format_map({name: quote(str(value)) for name, value in problem.details.items()})
    except KeyError:
        return ""
