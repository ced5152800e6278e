"""Command lines: what a shell makes of one, and whether it edits files. Pure: nothing is run."""

CERTAIN, LIKELY, UNSEEN = "certain", "likely", ""
"""How certain it is that a command line edits files of the worktree."""


def is_below(path: str, root: str, home: str = "") -> bool:
    """Whether an absolute path is in a worktree, and not in the worktree `home` that may be inside of it."""
    inside = f"{path}/".startswith(f"{root}/")
    return inside and not (home.startswith(f"{root}/") and f"{path}/".startswith(f"{home}/"))
