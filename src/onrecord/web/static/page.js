// What every page does: keep up with the record, copy commands, show the keys. Text from agents is only ever put on a
// page as HTML that the server rendered and escaped.
// @ts-check

export const about = document.documentElement.dataset;
export const base = about.base || "";

const worker = about.worker || "";
const rules = {
  /** @param {string} html rendered by this server */
  createHTML: (html) => html,
  /** @param {string} url */
  createScriptURL: (url) => {
    if (url !== worker) throw new TypeError("only our own worker");
    return url;
  },
};
// @ts-ignore: not every browser has trusted types
const policy = window.trustedTypes ? window.trustedTypes.createPolicy("onrecord", rules) : rules;

/** @param {string} id @returns {HTMLElement} */
export function need(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error("the page has no " + id);
  return found;
}

/** @param {Element} element @param {string} html rendered by this server */
export function put(element, html) {
  element.innerHTML = policy.createHTML(html);
  showLocalTimes(element instanceof HTMLTemplateElement ? element.content : element);
}

const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });

/** The server writes times in UTC; a person reads them on the clock of this browser. @param {ParentNode} root */
function showLocalTimes(root) {
  for (const one of root.querySelectorAll("time[datetime], text[data-at]")) {
    const at = new Date(one.getAttribute("datetime") || Number(one.getAttribute("data-at")));
    if (Number.isNaN(at.getTime())) continue; // a moment that no calendar has
    /** @param {number} number */
    const two = (number) => String(number).padStart(2, "0");
    const day = `${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const seconds = `:${two(at.getSeconds())}`;
    const name = zone.formatToParts(at).find((part) => part.type === "timeZoneName");
    one.textContent = (one.textContent || "")
      .replace(/(\d{4}-)?\d\d-\d\d/, (_all, year) => (year ? `${at.getFullYear()}-` : "") + day)
      .replace(/\d\d:\d\d(:\d\d)?/, (_all, more) => `${two(at.getHours())}:${two(at.getMinutes())}${more ? seconds : ""}`)
      .replace("UTC", name ? name.value : "UTC");
  }
}

showLocalTimes(document);

/** @param {string} html one element, rendered by this server @returns {HTMLElement} */
export function element(html) {
  const template = document.createElement("template");
  put(template, html);
  return /** @type {HTMLElement} */ (template.content.firstElementChild);
}

/** Ask the server. @param {string} path @param {Record<string, string | number | null | undefined>} [query] */
export async function get(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") words.set(name, String(value));
  }
  const answer = await fetch(base + path + (words.size ? "?" + words : ""), { headers: { accept: "*/*" } });
  if (!answer.ok) throw new Error(answer.status === 401 ? "this page needs a new token" : `the server says ${answer.status}`);
  return answer;
}

/** @param {string} path @param {Record<string, any>} [query] */
export const text = async (path, query) => (await get(path, query)).text();
/** @param {string} path @param {Record<string, any>} [query] */
export const json = async (path, query) => (await get(path, query)).json();

/** Say something for a moment. @param {string} sentence */
export function say(sentence) {
  let place = document.getElementById("said");
  if (!place) {
    place = document.createElement("div");
    place.id = "said";
    place.setAttribute("role", "status");
    document.body.append(place);
  }
  place.textContent = sentence;
  place.classList.add("on");
  window.clearTimeout(Number(place.dataset.timer));
  place.dataset.timer = String(window.setTimeout(() => place.classList.remove("on"), 2_500));
}

/** @param {string} words */
export async function copy(words) {
  try {
    await navigator.clipboard.writeText(words);
    say("copied: " + words);
  } catch {
    // Without permission, for instance over plain HTTP on another host: select it, so that the person can copy it.
    window.prompt("Copy this:", words);
  }
}

/** Hear of sessions that moved. @param {string[]} watched
 * @param {(moved: Record<string, number>, again: boolean) => void} moved */
export function follow(watched, moved) {
  const chip = document.getElementById("live");
  /** @param {{state?: string, moved?: Record<string, number>, again?: boolean}} message */
  const hear = (message) => {
    if (message.state && chip) {
      chip.textContent = message.state;
      chip.classList.toggle("ok", message.state === "live");
      chip.classList.toggle("bad", message.state !== "live" && message.state !== "connecting");
    }
    if (message.moved) moved(message.moved, Boolean(message.again));
  };
  if (!("SharedWorker" in window)) {
    followAlone(watched, hear);
    return;
  }
  const shared = new SharedWorker(policy.createScriptURL(worker), { name: "onrecord" + base });
  const join = () => shared.port.postMessage({ base, watch: watched, beat: 1_000 * Number(about.beat) });
  shared.port.onmessage = (event) => hear(event.data);
  join();
  window.addEventListener("pagehide", () => shared.port.postMessage({ bye: true }));
  window.addEventListener("pageshow", (event) => event.persisted && join());
}

/** A browser without shared workers: one connection of its own. @param {string[]} watched @param {(message: any) => void} hear */
function followAlone(watched, hear) {
  const source = new EventSource(base + "/live?" + watched.map((one) => "watch=" + one).join("&"));
  source.addEventListener("hello", (event) => hear({ state: "live", moved: JSON.parse(event.data).positions, again: true }));
  source.addEventListener("moved", (event) => hear({ moved: JSON.parse(event.data) }));
  source.onerror = () => hear({ state: "disconnected" });
}

/** @param {EventTarget | null} target */
export function isTyping(target) {
  return target instanceof HTMLElement && Boolean(target.closest("input:not([type=range]), textarea, select"));
}

/** A dialog with this content. @param {string} title @param {Node[]} content */
export function dialog(title, content) {
  const box = document.createElement("dialog");
  const heading = document.createElement("h2");
  heading.textContent = title;
  heading.id = "dialog-title";
  box.setAttribute("aria-labelledby", "dialog-title");
  const close = document.createElement("button");
  close.type = "button";
  close.className = "close";
  close.textContent = "close";
  close.addEventListener("click", () => box.close());
  box.append(heading, ...content, close);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** @param {[string, string][]} keys */
export function showKeys(keys) {
  const list = document.createElement("dl");
  list.className = "keylist";
  for (const [key, what] of keys) {
    const name = document.createElement("dt");
    for (const one of key.split(" ")) {
      const mark = document.createElement("kbd");
      mark.textContent = one;
      name.append(mark, " ");
    }
    const meaning = document.createElement("dd");
    meaning.textContent = what;
    list.append(name, meaning);
  }
  const legend = document.getElementById("legend");
  dialog("Keys", legend instanceof HTMLTemplateElement ? [list, legend.content.cloneNode(true)] : [list]);
}

document.addEventListener("click", (event) => {
  const button = event.target instanceof Element ? event.target.closest("[data-copy]") : null;
  if (button instanceof HTMLElement && button.dataset.copy) copy(button.dataset.copy);
});
