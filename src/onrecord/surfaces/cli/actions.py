"""What verbs with several actions do: arguments, help and an example of each action. The catalogue lists them."""

from __future__ import annotations

from onrecord.surfaces.cli.verbs import Action

ATTEMPT = (
    Action("list", "", "List the attempts with their outcomes and metrics (the default)", "onrecord attempt list"),
    Action("show", "N", "Show one attempt: command, revision, error, files, output", "onrecord attempt show 3"),
    Action("compare", "N...", "Show attempts side by side, with the change of each metric",
           "onrecord attempt compare 3 7"),
    Action("start", "-- COMMAND...", "Record that a command starts which onrecord does not run",
           "onrecord attempt start -- make train"),
    Action("succeed", "[N]", "Record that it succeeded, with its metrics and files",
           "onrecord attempt succeed 3 --metric loss=0.1 --output model.pt"),
    Action("fail", "[N]", "Record that it failed, with the exact error",
           'onrecord attempt fail 3 --error "out of memory" --fix "batch size 16"'),
    Action("interrupt", "[N]", "Record that it was stopped from outside",
           'onrecord attempt interrupt 3 --reason "the machine was rebooted"'),
    Action("abandon", "[N]", "Record that its outcome will never be known",
           'onrecord attempt abandon 3 --reason "superseded by another idea"'),
    Action("correct", "N", "Add a fix or a remark to an attempt that has its outcome",
           'onrecord attempt correct 3 --fix "batch size 16"'),
)  # fmt: skip
FINDING = (
    Action("state", "CLAIM", "State a finding: a claim with a label and evidence",
           'onrecord finding state "The cache is stale" -l verified -e last'),
    Action("list", "", "List the findings, their labels and their evidence (the default)",
           "onrecord finding list --label stale"),
    Action("show", "FINDING", "Show a finding and every step of its history", "onrecord finding show f1"),
    Action("relabel", "FINDING LABEL", "Give a finding another label, with new evidence",
           "onrecord finding relabel f1 rejected -e last"),
    Action("challenge", "FINDING ARGUMENT", "Contradict a finding, with evidence",
           'onrecord finding challenge f1 "It fails without the cache" -e last'),
    Action("uphold", "FINDING", "Keep the label of a challenged finding",
           'onrecord finding uphold f1 --why "that run had old data"'),
    Action("pursue", "FINDING", "Make a finding the active hypothesis", "onrecord finding pursue f2"),
    Action("recheck", "FINDING", "Run the command of its evidence again, and propose a label",
           "onrecord finding recheck f1 --apply"),
)  # fmt: skip
EVIDENCE = (
    Action("run", "-- COMMAND...", "Run a command and keep its output as evidence",
           "onrecord evidence run -- pytest -k invite"),
    Action("file", "PATH[:LINES]", "Keep part of a file as evidence", "onrecord evidence file src/auth.py:10-20"),
    Action("add", "REFERENCE", "Name evidence that is elsewhere: an issue, a log, a URL",
           "onrecord evidence add INV-17 --kind issue"),
    Action("list", "", "List the evidence and the findings that cite it (the default)", "onrecord evidence list"),
    Action("show", "ID", "Show one piece of evidence", "onrecord evidence show run-2026-05-18-a --full"),
)  # fmt: skip
PROFILE = (
    Action("list", "", "List the profiles (the default)", "onrecord profile list"),
    Action("show", "PROFILE", "Show the phases and sections of a profile", "onrecord profile show bugfix"),
    Action("check", "FILE", "Check a profile of your own", "onrecord profile check my-profile.toml"),
    Action("choose", "PROFILE", "Choose the profile of the session", "onrecord profile choose research"),
)  # fmt: skip
PHASE = (
    Action("list", "", "List the phases and what each still needs (the default)", "onrecord phase list"),
    Action("enter", "[PHASE]", "Enter a phase (default: the next one)", "onrecord phase enter Planning"),
    Action("finish", "[PHASE]", "Finish a phase (default: the current one) and enter the next",
           "onrecord phase finish Planning"),
)  # fmt: skip
FEATURE = (
    Action("list", "", "List the features and whether they pass (the default)", "onrecord feature list"),
    Action("add", "NAME TEXT", "Add a feature", 'onrecord feature add login-works "Users can log in"'),
    Action("pass", "NAME", "Record that a feature passes, with evidence",
           "onrecord feature pass login-works --evidence last"),
    Action("fail", "NAME", "Record that a feature does not pass, with evidence",
           "onrecord feature fail login-works --evidence last"),
    Action("reverify", "[NAME]", "Record that features still pass after work was resumed",
           "onrecord feature reverify --evidence last"),
)  # fmt: skip
STATE_FILE = (
    Action("sync", "", "Read edits of STATE.md into the log and write it again (the default)",
           "onrecord state-file sync"),
    Action("show", "", "Print STATE.md as the log has it", "onrecord state-file show"),
    Action("path", "", "Print where STATE.md is", "onrecord state-file path"),
)  # fmt: skip
PROJECT = (
    Action("show", "", "Show which project this is, and its other names (the default)", "onrecord project show"),
    Action("link", "PROJECT", "Make this directory part of another project",
           "onrecord project link github.com/ada/engine"),
    Action("move", "SESSION", "Move one session into this project", "onrecord project move fix-invite-403"),
    Action("merge", "[PROJECT]", "Move all sessions of another project into this one",
           "onrecord project merge /home/ada/old-place"),
)  # fmt: skip
WORKTREE = (
    Action("list", "[NAME]", "List the worktrees of a session, or of all live ones (the default)",
           "onrecord worktree list fix-login"),
    Action("diff", "[NAME]", "Show what changed in a worktree", "onrecord worktree diff fix-login"),
    Action("remove", "[NAME]", "Remove a worktree; its branch stays", "onrecord worktree remove fix-login"),
)  # fmt: skip
TEAM = (
    Action("up", "[FILE]", "Start the agents of a team file and supervise them",
           "onrecord team up team.toml --session invite-403"),
    Action("resume", "[NAME]", "Resume every agent of a team with its conversation", "onrecord team resume invite-403"),
    Action("status", "[NAME]", "Show what each agent of a team is doing (the default)",
           "onrecord team status invite-403"),
    Action("attach", "[AGENT]", "Open the terminal of an agent (tmux)", "onrecord team attach lead"),
    Action("logs", "AGENT", "Print the output of an agent", "onrecord team logs lead"),
    Action("restart", "AGENT", "Start an agent again, with a new conversation", "onrecord team restart lead"),
    Action("scale", "GROUP N", "Change the number of agents in a group", "onrecord team scale workers 3"),
    Action("stop", "[NAME]", "End every agent of a team", "onrecord team stop invite-403"),
)  # fmt: skip
