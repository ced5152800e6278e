// Written by `onrecord setup`. Every event goes to `onrecord hook opencode EVENT`, which answers in JSON:
// {"context": text for the model, "decision": "deny" refuses a tool, "reason": why, "systemMessage": a line for the
// person}. A failure changes nothing.
import { spawn } from "node:child_process"

const COMMAND = ["onrecord", "hook", "opencode"]
const DEADLINE = 10000

function ask(event, payload) {
  return new Promise((resolve) => {
    let child
    let output = ""
    try {
      child = spawn(COMMAND[0], [...COMMAND.slice(1), event], { stdio: ["pipe", "pipe", "ignore"] })
    } catch {
      return resolve({})
    }
    const timer = setTimeout(() => {
      child.kill("SIGKILL")
      resolve({})
    }, DEADLINE)
    child.on("error", () => {
      clearTimeout(timer)
      resolve({})
    })
    child.on("close", () => {
      clearTimeout(timer)
      try {
        resolve(JSON.parse(output) || {})
      } catch {
        resolve({})
      }
    })
    child.stdin.on("error", () => {})
    child.stdout.on("data", (piece) => (output += piece))
    child.stdin.end(JSON.stringify({ hook_event_name: event, pid: process.pid, ...payload }))
  })
}

export const Onrecord = async ({ directory, client }) => {
  // Only the terminal program can show a line; a run without a terminal ignores it.
  const show = (message) => {
    if (!message) return
    try {
      client?.tui?.showToast({ body: { message, variant: "info" } })?.catch?.(() => {})
    } catch {}
  }
  const created = new Set()
  const parents = new Map()
  const begun = new Map()
  const brief = new Map()
  const advice = new Map()
  const settled = new Set()

  // A subagent works in its own opencode session, on behalf of the one that a person sees.
  const top = (id) => {
    const seen = new Set()
    while (parents.has(id) && !seen.has(id)) {
      seen.add(id)
      id = parents.get(id)
    }
    return id
  }

  const begin = (id) => {
    if (!begun.has(id)) {
      const source = created.has(id) ? "startup" : "resume"
      begun.set(
        id,
        ask("session.start", { session_id: id, cwd: directory, source }).then((answer) => {
          if (answer.context) brief.set(id, answer.context)
          show(answer.systemMessage)
        }),
      )
    }
    return begun.get(id)
  }

  const after = async (sessionID, callID, tool, args, output) => {
    if (settled.has(callID)) return
    settled.add(callID)
    const answer = await ask("tool.execute.after", {
      session_id: top(sessionID), cwd: directory, tool_name: tool, tool_input: args || {}, tool_use_id: callID,
      tool_response: output,
    })
    if (answer.context) advice.set(top(sessionID), answer.context)
  }

  return {
    event: async ({ event }) => {
      const about = event.properties || {}
      if (event.type === "session.created" && about.info) {
        if (about.info.parentID) parents.set(about.info.id, about.info.parentID)
        else created.add(about.info.id)
      } else if (event.type === "session.idle" && !parents.has(about.sessionID)) {
        await ask("session.idle", { session_id: about.sessionID, cwd: directory })
      } else if (event.type === "session.status" && about.status?.type === "retry" && !parents.has(about.sessionID)) {
        // It tries again without end and writes nothing meanwhile: one that lasts is a limit.
        const { attempt, message, next } = about.status
        const seconds = Math.max(0, Math.ceil((next - Date.now()) / 1000))
        if (attempt > 2 || seconds > 20) {
          const said = `${message}; retry after ${seconds} seconds`
          await ask("session.retry", { session_id: about.sessionID, cwd: directory, message: said })
        }
      } else if (event.type === "session.compacted") {
        await ask("session.compacted", { session_id: top(about.sessionID), cwd: directory })
      } else if (event.type === "message.part.updated" && about.part && about.part.type === "tool") {
        const { sessionID, callID, tool, state } = about.part
        if (state.status === "completed" || state.status === "error") {
          const output = { output: state.output || "", error: state.error, metadata: { exitCode: state.metadata?.exit } }
          await after(sessionID, callID, tool, state.input, output)
        }
      }
    },
    "chat.message": async (input, output) => {
      if (parents.has(input.sessionID)) return
      await begin(input.sessionID)
      const prompt = (output.parts || []).filter((part) => part.type === "text").map((part) => part.text).join("\n")
      const answer = await ask("chat.message", { session_id: input.sessionID, cwd: directory, prompt })
      // A conversation that is recorded from its first prompt gets its brief here.
      if (answer.context) (brief.has(input.sessionID) ? advice : brief).set(input.sessionID, answer.context)
    },
    "experimental.chat.system.transform": async (input, output) => {
      // opencode builds the system prompt for every request and keeps it nowhere, so we add the brief each time.
      if (!input.sessionID || parents.has(input.sessionID)) return
      await begin(input.sessionID)
      for (const text of [brief.get(input.sessionID), advice.get(input.sessionID)]) if (text) output.system.push(text)
      advice.delete(input.sessionID)
    },
    "tool.execute.before": async (input, output) => {
      const answer = await ask("tool.execute.before", {
        session_id: top(input.sessionID), cwd: directory, tool_name: input.tool, tool_input: output.args || {},
        tool_use_id: input.callID,
      })
      if (answer.context) advice.set(top(input.sessionID), answer.context)
      if (answer.decision) throw new Error(answer.reason || "refused by onrecord")
    },
  }
}
