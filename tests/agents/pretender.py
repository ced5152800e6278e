"""A program that behaves like Claude Code where onrecord can see it: files, pid files, streams, exits.

It is copied under the name `claude`. Each run does what the next line of the file in PRETENDER_PLAN says (the last line
serves all further runs); without a plan it answers. It appends every prompt it gets to its transcript, as Claude Code does.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

HOME = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path(os.environ["HOME"]) / ".claude")


def main(words: list[str]) -> int:
    headless, resumed, chosen, prompt = "-p" in words, None, None, None
    for index, word in enumerate(words):
        if word == "--resume":
            resumed = words[index + 1]
        elif word == "--session-id":
            chosen = words[index + 1]
        elif word == "--":
            prompt = words[index + 1]
    if os.environ.get("PRETENDER_WORDS"):
        with Path(os.environ["PRETENDER_WORDS"]).open("a") as file:
            file.write(json.dumps(words) + "\n")
    plan = next_step()
    if plan == "silently-fresh" and resumed:
        resumed, chosen = None, str(uuid.uuid4())
    id_ = resumed or chosen or str(uuid.uuid4())
    found = list((HOME / "projects").glob(f"*/{id_}.jsonl"))
    if resumed and not found:
        sys.stderr.write(f"No conversation found with session ID: {id_}\n")
        return 1
    if chosen and found:
        sys.stderr.write(f"Error: Session ID {id_} is already in use.\n")
        return 1
    folder = re.sub("[^A-Za-z0-9]", "-", os.path.realpath(os.curdir))
    transcript = found[0] if found else HOME / "projects" / folder / f"{id_}.jsonl"
    hook("SessionStart", id_, transcript, source="resume" if resumed else "startup")
    own = HOME / "sessions" / f"{os.getpid()}.json"
    own.parent.mkdir(parents=True, exist_ok=True)
    note_process(own, id_)
    try:
        if headless:
            return answer(transcript, id_, sys.stdin.read(), plan)
        return talk(transcript, id_, prompt)
    finally:
        own.unlink(missing_ok=True)


def next_step() -> str:
    place = os.environ.get("PRETENDER_PLAN")
    if not place:
        return "answer"
    steps = Path(place).read_text().split("\n")
    if len(steps) > 1:
        Path(place).write_text("\n".join(steps[1:]))
    return steps[0]


def note_process(own: Path, id_: str) -> None:
    """The file that says which conversation this process has, unless the plan asks for a program without one."""
    if not os.environ.get("PRETENDER_SECRETIVE"):
        own.write_text(json.dumps({"pid": os.getpid(), "sessionId": id_, "cwd": str(Path.cwd()), "procStart": began()}))


def hook(event: str, id_: str, transcript: Path, **about: str) -> None:
    """Call onrecord's hook, if it is set up, as Claude Code does."""
    command = os.environ.get("PRETENDER_HOOK")
    if command:
        payload = {"hook_event_name": event, "session_id": id_, "transcript_path": str(transcript),
                   "cwd": str(Path.cwd()), **about}  # fmt: skip
        subprocess.run(
            [command, "hook", "claude", event], input=json.dumps(payload).encode(), stdout=subprocess.DEVNULL,
            env=os.environ | {"CLAUDE_PID": str(os.getpid())}, check=True,
        )  # fmt: skip


def began() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def append(transcript: Path, id_: str, kind: str, content: object, **about: object) -> None:
    transcript.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "type": kind, "uuid": str(uuid.uuid4()), "parentUuid": None, "sessionId": id_, "cwd": str(Path.cwd()),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "version": "2.1.325",
        "message": {"role": kind, "content": content, **about}, "isApiErrorMessage": about.get("model") == "<synthetic>",
    }  # fmt: skip
    with transcript.open("a") as file:
        file.write(json.dumps(record) + "\n")


def say(**record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def answer(transcript: Path, id_: str, prompt: str, plan: str) -> int:
    if plan == "refuse":
        sys.stderr.write("Invalid API key · Please run /login\n")
        return 1
    say(type="system", subtype="init", session_id=id_, cwd=str(Path.cwd()))
    if plan == "truncate":
        transcript.write_text("")
    append(transcript, id_, "user", prompt)
    what, _, value = plan.partition(" ")
    if what == "limit":
        text = f"Claude AI usage limit reached|{int(time.time() + float(value))}"
        say(type="result", subtype="success", is_error=True, result=text, session_id=id_)
        return 1
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "tool-then-die":
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        Path(value).write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "tool-then-hang":
        # The tool has its own session, and its parent is gone: only its environment shows which agent it belongs to.
        script = f"setsid sleep 600 & echo $! > {value}"
        subprocess.run(["sh", "-c", script], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(600)
    if what == "hang":
        if value:
            Path(value).write_text(str(os.getpid()))
        time.sleep(600)
    if what == "use":
        used = {"input_tokens": int(value), "output_tokens": 0}
        for number in range(1_000):
            append(transcript, id_, "assistant", "...", id=f"{id_}/{number}", model="claude-opus-5-5", usage=used)
            time.sleep(0.2)
    if what == "flood":
        for _number in range(int(value)):
            say(type="stream_event", session_id=id_, text="x" * 200)
    if what == "no-end":
        return 0
    append(transcript, id_, "assistant", [{"type": "text", "text": f"did: {prompt[-40:]}"}])
    say(type="result", subtype="success", is_error=False, result="done", session_id=id_)
    return 0


def talk(transcript: Path, id_: str, prompt: str | None) -> int:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b"INTERRUPTED\n"))
    sys.stdout.write(f"ready {id_}\n")
    sys.stdout.flush()
    if prompt:
        append(transcript, id_, "user", prompt)
    while True:
        line = os.read(0, 4096).decode()
        if not line or line.strip() == "exit":
            return 0
        if line.strip() == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            continue
        if line.strip() == "/clear":
            id_ = str(uuid.uuid4())
            transcript = transcript.with_name(f"{id_}.jsonl")
            note_process(HOME / "sessions" / f"{os.getpid()}.json", id_)
            hook("SessionStart", id_, transcript, source="clear")
            sys.stdout.write("CLEARED\n")
            sys.stdout.flush()
            continue
        if line.strip() == "raw":
            import tty

            tty.setraw(0)
            sys.stdout.write("RAW\r\n")
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        append(transcript, id_, "user", line.strip())
        if line.startswith("limit "):
            text = f"Claude AI usage limit reached|{int(time.time() + float(line.split()[1]))}"
            append(transcript, id_, "assistant", [{"type": "text", "text": text}], model="<synthetic>")
            sys.stdout.write("LIMITED\n")
            sys.stdout.flush()
            continue
        append(transcript, id_, "assistant", [{"type": "text", "text": "heard"}])
        sys.stdout.write("HEARD\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
