// A session: the timeline, any event, the past by a slider, and what a person may do.
// @ts-check
import { about, base, copy, dialog, follow, isTyping, json, need, put, say, showKeys, text } from "./page.js";
import { act } from "./acting.js";
import { Timeline } from "./timeline.js";

const session = about.session || "";
const size = Number(about.stretch);
const slider = /** @type {HTMLInputElement} */ (need("position"));
const fresh = () => document.getElementById("fresh");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
let now = Number(about.now);
/** @type {number | null} null is now */
let at = about.at ? Number(about.at) : null;
let tab = about.tab || "timeline";
let inspected = 0;
let unread = 0;
let playing = 0;
/** @type {Timeline | null} */
let timeline = null;
/** @type {[string, string][]} */
const KEYS = [
  ["j k", "next and previous row"], ["← →", "previous and next event"], ["enter", "open the folded parts of a row"],
  ["c", "copy a link to this event"], ["f", "copy the command that forks the session here"], ["p", "play from here"],
  ["n", "back to now"], ["+ -", "zoom the lanes"], ["1 … 9", "tabs"], ["/", "search in this session"], ["g", "go to all sessions"],
  ["?", "show these keys"],
];

// The timeline and the tabs

function startTimeline() {
  const box = document.getElementById("timeline");
  timeline?.stop();
  timeline = box ? new Timeline(box, session, size, at ?? now, at) : null;
  fresh()?.addEventListener("click", toEnd);
}

function toEnd() {
  if (!timeline) return;
  unread = 0;
  tellUnread();
  timeline.toEnd();
}

function tellUnread() {
  const button = fresh();
  if (!button) return;
  button.hidden = !unread;
  button.textContent = `${unread} new ${unread === 1 ? "event" : "events"} ↓`;
}

/** @param {string} name @param {string} [upto] */
async function show(name, upto) {
  tab = name;
  put(need("view"), await text(`/s/${session}/view/${name}`, { at, upto }));
  for (const link of document.querySelectorAll("#tabs a")) {
    const mine = /** @type {HTMLElement} */ (link).dataset.tab === name;
    if (mine) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (name === "timeline") {
    startTimeline();
    await timeline?.start(true);
  } else {
    timeline?.stop();
    timeline = null;
  }
  remember();
}

function remember() {
  const query = new URLSearchParams();
  if (tab !== "timeline") query.set("tab", tab);
  if (at !== null) query.set("at", String(at));
  history.replaceState(null, "", `${base}/s/${session}${query.size ? "?" + query : ""}${location.hash}`);
}

// One event

/** @param {number} position @param {boolean} [quietly] */
async function inspect(position, quietly = false) {
  inspected = position;
  timeline?.select(position);
  const place = need("inspector");
  try {
    const html = await text(`/s/${session}/event/${position}`);
    if (inspected !== position) return;
    put(place, html);
  } catch (problem) {
    place.textContent = String(problem);
    return;
  }
  const bar = document.createElement("p");
  bar.className = "keys";
  for (const [label, what] of /** @type {[string, () => void][]} */ ([
    ["copy link", copyLink], ["fork here", copyFork], ["as it was", () => go(position)], ["←", () => step(-1)], ["→", () => step(1)],
  ])) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    const words = { "←": "previous event", "→": "next event" }[label];
    if (words) {
      button.title = words;
      button.setAttribute("aria-label", words);
    }
    button.addEventListener("click", what);
    bar.append(button);
  }
  place.append(bar);
  if (!quietly) history.replaceState(null, "", `#e${position}`);
}

const copyLink = () => copy(`${location.origin}${base}/s/${session}#e${inspected || now}`);
const copyFork = () => copy(`onrecord fork ${about.name} ${about.name}-2 --at ${inspected || now}`);

/** @param {number} move */
function step(move) {
  const position = Math.max(1, Math.min(at ?? now, (inspected || at || now) + move));
  reach(position);
}

/** Select the next row, or the one before. @param {number} by */
async function move(by) {
  if (timeline) await reach(await timeline.neighbour(by));
}

/** Show an event in the timeline and in the inspector. @param {number} position */
async function reach(position) {
  if (!position || position > now) return;
  if (at !== null && position > at) await go(null);
  if (tab !== "timeline") await show("timeline");
  await timeline?.jump(position);
  await inspect(position);
}

// The past

let moving = false;
/** @type {number | null | undefined} */
let wanted;

/** Look at the session as it was; null is now. @param {number | null} position */
async function go(position) {
  wanted = position === null || position >= now ? null : Math.max(1, position);
  if (moving) return;
  moving = true;
  try {
    while (wanted !== undefined) {
      const target = wanted;
      wanted = undefined;
      at = target;
      slider.value = String(at ?? now);
      await lookAgain();
      if (tab === "timeline") {
        startTimeline();
        await timeline?.start();
      } else await show(tab);
      dim();
      remember();
    }
  } catch (problem) {
    say(String(problem));
  } finally {
    moving = false;
  }
}

async function lookAgain() {
  const parts = await json(`/s/${session}/look`, { at });
  now = parts.now;
  slider.max = String(now);
  if (at === null) slider.value = String(now);
  document.documentElement.classList.toggle("as-it-was", at !== null);
  put(need("chips"), parts.chips);
  put(need("left"), parts.left);
  put(need("where"), parts.where);
  slider.setAttribute("aria-valuetext", need("where").textContent || "");
  need("used").textContent = parts.used;
  for (const [name, count] of Object.entries(parts.tabs)) {
    const place = document.querySelector(`#tabs a[data-tab="${name}"] .count`);
    if (place) place.textContent = count === null ? "" : String(count);
  }
}

function dim() {
  const limit = at ?? now;
  for (const one of document.querySelectorAll("#lanes [data-p]")) {
    one.classList.toggle("later", Number(/** @type {HTMLElement} */ (one).dataset.p) > limit);
  }
}

async function drawLanes() {
  try {
    const place = need("lanes");
    const first = !place.firstChild;
    put(place, await text(`/s/${session}/lanes`));
    if (first) place.scrollLeft = place.scrollWidth; // a narrow window shows the newest part
    stretchLanes();
    dim();
  } catch (problem) {
    say(String(problem));
  }
}

let zoom = 1;
const TALLEST = 1.06; // as high as the room that is kept for the lanes

/** Draw the lanes wider; what is in the middle stays there. @param {number} factor */
function magnify(factor) {
  const place = need("lanes");
  const middle = (place.scrollLeft + place.clientWidth / 2) / place.scrollWidth;
  zoom = Math.max(1, Math.min(64, zoom * factor));
  stretchLanes();
  place.scrollLeft = middle * place.scrollWidth - place.clientWidth / 2;
  writeLanes();
}

/** How much wider and higher than drawn the picture is: a wide window or a zoom stretches its time, not its letters.
 * @param {SVGSVGElement} picture */
function scales(picture) {
  const across = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
  return { across, down: Math.min(across / zoom, TALLEST) };
}

function stretchLanes() {
  const picture = /** @type {SVGSVGElement | null} */ (document.querySelector("#lanes svg"));
  if (!picture) return;
  picture.style.width = `${zoom * 100}%`;
  picture.setAttribute("preserveAspectRatio", "none");
  picture.style.height = `${scales(picture).down * picture.viewBox.baseVal.height}px`;
  writeLanes();
}

/** On paper the picture has the proportions in which it was drawn. */
function paperLanes() {
  const picture = document.querySelector("#lanes svg");
  picture?.removeAttribute("style");
  picture?.removeAttribute("preserveAspectRatio");
  picture?.querySelectorAll("text").forEach((letters) => letters.removeAttribute("transform"));
}

/** The letters keep their shape; the names of the lanes stay in sight. */
function writeLanes() {
  const picture = /** @type {SVGSVGElement | null} */ (document.querySelector("#lanes svg"));
  if (!picture) return;
  const { across, down } = scales(picture);
  const left = need("lanes").scrollLeft / across;
  for (const letters of picture.querySelectorAll("text")) {
    const x = Number(letters.getAttribute("x"));
    const moved = letters.classList.contains("name") ? left : x - (x * down) / across;
    letters.setAttribute("transform", `translate(${moved} 0) scale(${down / across} 1)`);
  }
}

function play() {
  const button = need("play");
  if (playing) {
    window.clearInterval(playing);
    playing = 0;
  } else {
    if (at === null) go(1);
    const stride = Math.max(1, Math.round(now / 150));
    playing = window.setInterval(() => {
      if (moving) return;
      if (at === null || at + stride >= now) {
        play();
        go(null);
      } else go(at + stride);
    }, still.matches ? 1_500 : 350);
  }
  button.setAttribute("aria-pressed", String(Boolean(playing)));
  button.textContent = playing ? "■ stop" : "▶ play";
}

function compare() {
  const form = document.createElement("form");
  form.className = "fields";
  const result = document.createElement("div");
  const first = number("from position", Math.max(1, (at ?? now) - 50));
  const second = number("to position", at ?? now);
  const send = document.createElement("button");
  send.textContent = "compare";
  form.append(first.label, second.label, send);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      put(result, await text(`/s/${session}/compare`, { from: first.field.value, to: second.field.value }));
    } catch (problem) {
      result.textContent = String(problem);
    }
  });
  dialog("What changed between two positions", [form, result]);
  form.requestSubmit();
}

/** @param {string} title @param {number} value */
function number(title, value) {
  const label = document.createElement("label");
  const field = document.createElement("input");
  field.type = "number";
  field.min = "1";
  field.max = String(now);
  field.value = String(value);
  label.append(title, field);
  return { label, field };
}

// Search in this session

function search() {
  const field = document.createElement("input");
  field.type = "search";
  field.setAttribute("aria-label", "Words to find in this session");
  const found = document.createElement("div");
  found.className = "found";
  let timer = 0;
  field.addEventListener("input", () => {
    window.clearTimeout(timer);
    timer = window.setTimeout(async () => {
      const words = field.value.trim();
      if (words.length < 2) return found.replaceChildren();
      const html = await text("/search", { words, session });
      if (html) put(found, html);
      else found.textContent = "No event has these words.";
    }, 150);
  });
  const box = dialog("Search this session", [field, found]);
  found.addEventListener("click", (event) => {
    if (event.target instanceof Element && event.target.closest("a")) box.close();
  });
  field.focus();
}

// The chain

async function verify() {
  const chip = need("chain");
  chip.textContent = "verifying…";
  try {
    const report = await json(`/s/${session}/verify`);
    chip.textContent = report.ok ? "chain verified" : "chain broken";
    chip.className = report.ok ? "chip ok" : "chip bad";
    chip.title = report.ok ? "The hash of every event was recomputed" : report.problems.join("; ");
    if (inspected) inspect(inspected, true);
  } catch (problem) {
    chip.textContent = "verify chain";
    say(String(problem));
  }
}

// What people do

document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  if (!target) return;
  const link = /** @type {HTMLAnchorElement | null} */ (target.closest("a[href]"));
  if (link?.dataset.tab) {
    event.preventDefault();
    show(link.dataset.tab, link.dataset.upto).catch((problem) => say(String(problem)));
    return;
  }
  const hash = link && new URL(link.href, location.href).pathname === location.pathname ? link.hash : link?.getAttribute("href");
  const event_ = hash?.match(/^#e(\d+)/);
  if (event_) {
    event.preventDefault();
    stopPlaying();
    reach(Number(event_[1]));
    return;
  }
  if (link || target.closest("summary, button, input")) return;
  const row = /** @type {HTMLElement | null} */ (target.closest("#rows > [data-position], tr[data-position]"));
  if (row && !String(getSelection())) inspect(Number(row.dataset.position));
});

function stopPlaying() {
  if (playing) play();
}

slider.addEventListener("input", () => {
  stopPlaying();
  go(Number(slider.value));
});
need("play").addEventListener("click", play);
need("now").addEventListener("click", () => go(null));
need("compare").addEventListener("click", compare);
need("chain").addEventListener("click", verify);
window.addEventListener("resize", stretchLanes);
window.addEventListener("beforeprint", paperLanes);
window.addEventListener("afterprint", stretchLanes);
need("lanes").addEventListener("scroll", () => requestAnimationFrame(writeLanes), { passive: true });
need("wider").addEventListener("click", () => magnify(2));
need("narrower").addEventListener("click", () => magnify(0.5));
need("back").addEventListener("click", () => go((at ?? now) - 1));
need("forth").addEventListener("click", () => go((at ?? now) + 1));
document.getElementById("act")?.addEventListener("click", () => act(session, now, inspected));
document.querySelector("[data-help]")?.addEventListener("click", () => showKeys(KEYS));
window.addEventListener("hashchange", () => {
  const position = Number(location.hash.match(/^#e(\d+)/)?.[1]);
  if (position) reach(position);
});
document.addEventListener("toggle", () => timeline?.later(), true);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog")) return;
  if (event.target === slider && event.key.startsWith("Arrow")) return;
  const names = [...document.querySelectorAll("#tabs a")].map((one) => /** @type {HTMLElement} */ (one).dataset.tab || "");
  switch (event.key) {
    case "j": move(1); break;
    case "k": move(-1); break;
    case "ArrowLeft": step(-1); break;
    case "ArrowRight": step(1); break;
    case "c": copyLink(); break;
    case "f": copyFork(); break;
    case "p": play(); break;
    case "n": stopPlaying(); go(null); break;
    case "+": magnify(2); break;
    case "-": magnify(0.5); break;
    case "/": search(); break;
    case "g": location.href = base + "/"; break;
    case "?": showKeys(KEYS); break;
    case "Enter": {
      if (event.target !== document.body && event.target !== document.getElementById("timeline")) return;
      const parts = document.querySelectorAll("#rows > .sel details");
      const closed = [...parts].some((one) => !one.hasAttribute("open"));
      parts.forEach((one) => one.toggleAttribute("open", closed));
      break;
    }
    default:
      if (/^[1-9]$/.test(event.key) && names[Number(event.key) - 1]) show(names[Number(event.key) - 1]);
      else return;
  }
  event.preventDefault();
});

// The record grows

let growing = false;
let again = false;

async function grow() {
  if (growing) {
    again = true;
    return;
  }
  growing = true;
  try {
    do {
      again = false;
      const before = now;
      if (at !== null) {
        slider.max = String(now); // the past is shown: only its end moved
        break;
      }
      const [, pinned] = await Promise.all([lookAgain(), timeline ? timeline.grow(newest) : true]);
      if (timeline && !pinned) unread += Math.max(0, now - before);
      else unread = 0;
      tellUnread();
      if (tab !== "timeline" && tab !== "log") put(need("view"), await text(`/s/${session}/view/${tab}`));
    } while (again);
  } catch (problem) {
    say(String(problem));
  } finally {
    growing = false;
  }
  window.clearTimeout(drawing);
  drawing = window.setTimeout(drawLanes, 400);
}

let newest = now;
let drawing = 0;
follow([session], (moved) => {
  const position = moved[session];
  if (position && position > newest) {
    newest = position;
    if (at !== null) now = position;
    grow();
  }
});

async function begin() {
  if (tab === "timeline") startTimeline();
  const position = Number(location.hash.match(/^#e(\d+)/)?.[1]);
  if (position) await reach(position);
  else {
    await timeline?.start(true);
    if (window.matchMedia("(min-width: 1101px)").matches) await inspect(at ?? now, true);
  }
  document.documentElement.classList.toggle("as-it-was", at !== null);
  drawLanes();
  if (now <= 2_000) verify();
}
begin().catch((problem) => say(String(problem)));
