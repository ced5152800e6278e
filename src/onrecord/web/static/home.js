// The first page: filter as you type, search, keys, and lists that keep up with the record.
// @ts-check
import { about, base, copy, follow, isTyping, need, put, say, showKeys, text } from "./page.js";

const words = /** @type {HTMLInputElement} */ (need("words"));
const list = need("list");
const hits = need("hits");
/** @type {[string, string][]} */
const KEYS = [
  ["j k", "move down and up"], ["enter", "open the session"], ["r", "copy the command that resumes it"],
  ["/", "search"], ["a", "all projects, or only this one"], ["g", "go to the first page"], ["esc", "leave the search"],
  ["?", "show these keys"],
];
let chosen = "";
let asked = 0;
let later = 0;

const rows = () => [.../** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("li.row, li.hit"))];
const query = () => ({ words: words.value, all: about.all });

function mark() {
  const all = rows();
  all.forEach((row) => row.classList.toggle("focus", Boolean(chosen) && key(row) === chosen));
}

/** @param {HTMLElement} row */
const key = (row) => row.dataset.session || row.querySelector("a")?.getAttribute("href") || "";

/** @param {number} step */
function move(step) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => key(row) === chosen);
  const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + step))];
  chosen = key(next);
  mark();
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

const title = document.title;

/** How many sessions need a person, for a tab in the background. */
function count() {
  if (words.value) return; // the list is only a part
  const many = /[\d,]+/.exec(document.getElementById("needs")?.textContent || "");
  document.title = many ? `(${many[0]}) ${title}` : title;
}

async function refresh() {
  const mine = ++asked;
  try {
    const html = await text("/list", query());
    if (mine !== asked) return;
    const held = list.contains(document.activeElement);
    put(list, html);
    mark();
    count();
    if (held) rows().find((row) => key(row) === chosen)?.querySelector("a")?.focus({ preventScroll: true });
  } catch (problem) {
    say(String(problem));
  }
}

async function search() {
  const wanted = words.value.trim();
  if (wanted.length < 2) {
    hits.replaceChildren();
    return;
  }
  try {
    const html = await text("/search", query());
    if (wanted === words.value.trim()) put(hits, html);
  } catch (problem) {
    say(String(problem));
  }
}

words.addEventListener("input", () => {
  window.clearTimeout(later);
  later = window.setTimeout(() => {
    refresh();
    search();
  }, 120);
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog")) return;
  if (event.key === "Escape" && document.activeElement === words) {
    words.value = "";
    words.blur();
    refresh();
    search();
    return;
  }
  if (isTyping(event.target)) {
    if (event.key === "Enter" || event.key === "ArrowDown") {
      event.preventDefault();
      words.blur();
      move(0);
    }
    return;
  }
  const row = rows().find((one) => key(one) === chosen);
  switch (event.key) {
    case "j": case "ArrowDown": move(1); break;
    case "k": case "ArrowUp": move(-1); break;
    case "/": words.focus(); words.select(); break;
    case "r": if (row?.dataset.command) copy(row.dataset.command); break;
    case "a": /** @type {HTMLAnchorElement} */ (need("scope")).click(); break;
    case "g": location.href = base + "/"; break;
    case "?": showKeys(KEYS); break;
    case "Enter":
      if (row && document.activeElement === document.body) row.querySelector("a")?.click();
      return;
    default: return;
  }
  event.preventDefault();
});
document.querySelector("[data-help]")?.addEventListener("click", () => showKeys(KEYS));
document.addEventListener("focusin", (event) => {
  const row = event.target instanceof Element ? /** @type {HTMLElement | null} */ (event.target.closest("li.row")) : null;
  if (row) {
    chosen = key(row);
    mark();
  }
});

count();
let waiting = false;
follow([], () => {
  if (waiting) return;
  waiting = true; // many sessions may move at once: one refresh shows them all
  window.setTimeout(() => {
    waiting = false;
    refresh();
  }, 300);
});
