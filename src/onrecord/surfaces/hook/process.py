"""The process of one hook: a payload on standard input, an answer in the vendor's words, and never a broken agent.

It runs before every tool call of every agent, so it loads the vendor's dialect and what the moment needs, and nothing
else. Any failure is noted and becomes an empty answer with exit status 0. When its time is up it answers with what it
knows by then: a refusal that cannot be recorded because the store is busy is still a refusal.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

from onrecord.environment import PROJECT_VARIABLE, STORE_VARIABLE, STRICT_VARIABLE
from onrecord.vendors.hooks import AFTER_TOOL, BEFORE_TOOL, DEADLINE_SECONDS, HookAnswer, HookCall, Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from onrecord.vendors.port import Vendor

PAYLOAD_BYTES = 32 * 1024 * 1024
"""The largest payload that is read; a larger one is reported to the doctor and allowed."""
WRITING_SECONDS = 1.0
"""How long an answer that is being written may take once the time is up."""
_VARIABLES = {"--store": STORE_VARIABLE, "--project": PROJECT_VARIABLE}
_STANDARD_INPUT, _STANDARD_OUTPUT, _STANDARD_ERROR = 0, 1, 2


class Pending:
    """The answer, as far as it is known."""

    __slots__ = ("call", "reply", "vendor", "writing")

    def __init__(self) -> None:
        self.reply = Reply()
        self.writing = False
        self.vendor: Vendor | None = None
        self.call: HookCall | None = None

    def say(self, answer: HookAnswer) -> None:
        """Use this answer if nothing better is known when the time is up."""
        if self.vendor is not None and self.call is not None:
            self.reply = self.vendor.reply(self.call, answer)

    def write(self) -> int:
        """Give the answer; the result is the exit status."""
        self.writing = True
        for number, text in ((_STANDARD_OUTPUT, self.reply.stdout), (_STANDARD_ERROR, self.reply.stderr)):
            rest = memoryview(text.encode(errors="replace"))
            while rest:
                try:
                    rest = rest[os.write(number, rest) :]
                except OSError:
                    break  # the agent does not read any more
        return self.reply.status


def main(words: list[str], options: dict[str, str] | None = None) -> int:
    """Answer one hook: `VENDOR [EVENT]`, the payload on standard input. The options name a store and a project."""
    for option, value in (options or {}).items():
        os.environ[_VARIABLES[option]] = value
    pending = Pending()
    _thread.start_new_thread(_keep_time, (pending,))
    answer(words, pending)
    return pending.write()


def _keep_time(pending: Pending) -> None:
    """A thread, because no signal is handled while a database waits for a lock."""
    time.sleep(DEADLINE_SECONDS)
    if pending.writing:
        time.sleep(WRITING_SECONDS)
        os._exit(pending.reply.status)
    from onrecord.surfaces.trouble import note

    status = pending.write()
    note("time ran out", pending.call)
    os._exit(status)


def answer(words: list[str], pending: Pending) -> None:
    """Work out the answer. No error leaves this function."""
    try:
        payload = _read(words)
        if payload is None:
            return
        vendor = pending.vendor = _vendor(words[0])
        pending.call = vendor.parse_hook(payload, os.environ)
        if pending.call.cwd and os.path.isdir(pending.call.cwd):
            os.chdir(pending.call.cwd)  # paths and the project are relative to the agent's directory
        pending.say(_act(pending, vendor, pending.call))
    except Exception as problem:  # noqa: BLE001 - a hook never breaks its agent
        _failed(pending, words, problem)


def _read(words: list[str]) -> dict[str, Any] | None:
    """The payload; if it lacks the event, the command line names it."""
    from onrecord import lean_json as json
    from onrecord.errors import InvalidInput

    if not words:
        raise InvalidInput("the vendor is missing", hint="for example: `onrecord hook claude PreToolUse`")
    found, size = [], 0
    while part := os.read(_STANDARD_INPUT, 1024 * 1024):
        found.append(part)
        size += len(part)
        if size > PAYLOAD_BYTES:
            raise InvalidInput(f"the hook's payload has more than {PAYLOAD_BYTES:,} bytes")
    text = b"".join(found)
    payload = json.loads(text) if text.strip() else {}
    if not isinstance(payload, dict):
        raise InvalidInput("the hook's payload is not a JSON object")
    if len(words) > 1:
        payload.setdefault("hook_event_name", words[1])
    return payload


def _vendor(name: str) -> Vendor:
    """The vendor by its name; `vendors.port` does this with a better error, and costs a quarter of a hook."""
    if not name.isidentifier():
        from onrecord.errors import InvalidInput

        raise InvalidInput(f"unknown vendor {name!r:.80}")
    module = f"onrecord.vendors.{name}"
    __import__(module)
    found: Vendor = sys.modules[module].VENDOR
    return found


def _act(pending: Pending, vendor: Vendor, call: HookCall) -> HookAnswer:
    if not vendor.is_id(call.vendor_id):
        return HookAnswer()  # a hook that does not name its conversation, or names what no conversation is called
    if call.moment == BEFORE_TOOL:
        from onrecord.surfaces.hook.tools import before_tool

        return before_tool(pending, vendor, call)
    if call.moment == AFTER_TOOL:
        from onrecord.surfaces.hook.tools import after_tool

        return after_tool(vendor, call)
    from onrecord.surfaces.hook.moments import MOMENTS

    act = MOMENTS.get(call.moment)
    return act(vendor, call) if act is not None else HookAnswer()


def _failed(pending: Pending, words: list[str], problem: Exception) -> None:
    try:
        from onrecord.surfaces.trouble import note

        said = f"{type(problem).__name__}: {problem}"
        pending.reply = Reply()
        if pending.call is not None and pending.call.moment == BEFORE_TOOL and os.environ.get(STRICT_VARIABLE):
            reason = f"the gate itself failed: {said}. To clear it: onrecord doctor"
            pending.say(HookAnswer(decision="deny", reason=reason))
        note(said, pending.call, words)
    except Exception:  # noqa: BLE001 - what cannot even be noted must not break the agent either
        return
