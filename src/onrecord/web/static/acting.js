// What a person can do on a page that was started with --allow-writes. Each act asks first.
// @ts-check
import { base, dialog, say } from "./page.js";

/** @typedef {{name: string, label: string, title: string, kind?: string, options?: string[], needed?: boolean}} Field */
/** @type {Record<string, {title: string, fields: Field[], asks: string}>} */
const ACTS = {
  next: {
    title: "Set the next action", asks: "The next agent reads this first.",
    fields: [{ name: "text", label: "what to do next", title: "", needed: true }, { name: "command", label: "command (optional)", title: "" }],
  },
  decide: {
    title: "Record a decision", asks: "The decision stays on record under your name.",
    fields: [{ name: "text", label: "decision", title: "", needed: true }, { name: "why", label: "why (optional)", title: "" },
      { name: "because", label: "because of position (optional)", title: "", kind: "number" }],
  },
  settle: {
    title: "Settle an attempt", asks: "An outcome is final.",
    fields: [{ name: "number", label: "number of the attempt", title: "", kind: "number", needed: true },
      { name: "outcome", label: "outcome", title: "", options: ["succeeded", "failed", "interrupted", "abandoned"], needed: true },
      { name: "text", label: "error, or reason", title: "" }],
  },
  pause: { title: "Pause the session", asks: "Agents can add no turn until it is resumed.", fields: [{ name: "text", label: "reason (optional)", title: "" }] },
  resume: { title: "Resume the session", asks: "A paused session accepts turns again; no agent is started.", fields: [{ name: "text", label: "reason (optional)", title: "" }] },
  close: { title: "Close the session", asks: "The work has ended; the record is kept.", fields: [{ name: "text", label: "reason (optional)", title: "" }] },
  hold: { title: "Hold against erasure", asks: "Nothing of the session can be erased until it is released.", fields: [{ name: "text", label: "reason", title: "", needed: true }] },
  release: { title: "Lift the hold", asks: "Retention may erase content again.", fields: [{ name: "text", label: "reason", title: "", needed: true }] },
};

/** @param {string} session @param {number} now @param {number} inspected */
export function act(session, now, inspected) {
  const form = document.createElement("form");
  form.className = "fields";
  const choice = document.createElement("select");
  choice.name = "action";
  for (const [name, one] of Object.entries(ACTS)) choice.append(new Option(one.title, name));
  const label = document.createElement("label");
  label.append("what to do", choice);
  const rest = document.createElement("div");
  rest.className = "fields";
  const problem = document.createElement("p");
  problem.className = "tone-bad";
  problem.setAttribute("role", "alert");
  const waiting = document.querySelector(".needs [data-attempt]")?.getAttribute("data-attempt") || "";
  if (waiting) choice.value = "settle"; // what the session needs most
  const draw = () => fill(rest, ACTS[choice.value], { because: inspected ? String(inspected) : "", number: waiting });
  choice.addEventListener("change", draw);
  draw();
  form.append(label, rest, problem);
  const box = dialog("Act on this session", [form]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    problem.textContent = "";
    const answer = await send(session, choice.value, new FormData(form));
    if (answer.ok) {
      box.close();
      say(`recorded: ${answer.kind} at position ${answer.position}`);
    } else problem.textContent = [answer.message, answer.hint].filter(Boolean).join(". ");
  });
}

/** @param {HTMLElement} place @param {{title: string, fields: Field[], asks: string}} one @param {Record<string, string>} known */
function fill(place, one, known) {
  place.replaceChildren();
  for (const field of one.fields) {
    const label = document.createElement("label");
    /** @type {HTMLInputElement | HTMLSelectElement} */
    let input;
    if (field.options) {
      input = document.createElement("select");
      if (field.needed) input.append(new Option("choose…", ""));
      for (const option of field.options) input.append(new Option(option, option));
    } else {
      input = document.createElement("input");
      input.type = field.kind || "text";
      if (field.kind === "number") input.min = "1";
      input.value = known[field.name] || "";
    }
    input.name = field.name;
    input.required = Boolean(field.needed);
    label.append(field.label, input);
    place.append(label);
  }
  const asks = document.createElement("p");
  asks.className = "ev";
  asks.textContent = `${one.asks} It is recorded with the name ${document.documentElement.dataset.person}.`;
  const go = document.createElement("button");
  go.className = "act";
  go.textContent = one.title;
  place.append(asks, go);
}

/** @param {string} session @param {string} action @param {FormData} form */
async function send(session, action, form) {
  /** @type {Record<string, string | number>} */
  const body = { action };
  for (const [name, value] of form.entries()) {
    const text = String(value).trim();
    if (name === "action" || !text) continue;
    body[name] = name === "number" || name === "because" ? Number(text) : text;
  }
  try {
    const answer = await fetch(`${base}/s/${session}/act`, {
      method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", "x-onrecord": "act" },
    });
    return { ok: answer.ok, ...(await answer.json()) };
  } catch (problem) {
    return { ok: false, message: String(problem) };
  }
}
