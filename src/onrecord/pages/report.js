// The script of a report: tabs, search, the slider over positions, zoom, comparing, the inspector. A report is complete without it.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const one = (selector, within = document) => within.querySelector(selector);
  const timeline = one("#timeline");
  const parts = all("#timeline > .part");
  const entries = all("#timeline > .part > [data-p]");
  const positions = entries.map((entry) => Number(entry.dataset.p));
  const sections = all(".middle > section");
  const tabs = all(".tabs a");
  for (const part of all(".js")) part.hidden = false;

  // Tabs: one section at a time.
  function open(id) {
    for (const section of sections) section.hidden = section.id !== id;
    for (const tab of tabs) {
      if (tab.hash === "#" + id) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  // Links: an event that has no element of its own is part of the entry before it.
  function target(hash) {
    const found = document.getElementById(hash.slice(1));
    if (found || !/^#e\d+$/.test(hash)) return found;
    const wanted = Number(hash.slice(2));
    let last = null;
    for (const entry of entries) {
      if (Number(entry.dataset.p) > wanted) break;
      last = entry;
    }
    return last;
  }
  function follow() {
    const found = location.hash ? target(location.hash) : null;
    if (!found) return open("timeline");
    const section = found.closest(".middle > section");
    if (section) open(section.id);
    if (found === section || !section) return undefined;
    if (found.hidden) travel(last);
    for (let fold = found.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    select(found);
    return undefined;
  }
  addEventListener("hashchange", follow);

  // The inspector shows the header and payload of the selected entry.
  const inspector = one("#inspector");
  const help = [...inspector.childNodes];
  let selected = null;
  function row(list, name, value) {
    if (!value) return;
    const term = document.createElement("dt");
    const text = document.createElement("dd");
    term.textContent = name;
    text.append(value);
    list.append(term, text);
  }
  function inspect(entry) {
    const position = entry.dataset.p;
    const listed = document.getElementById("r" + position) || (entry.tagName === "TR" ? entry : null);
    const title = document.createElement("h2");
    title.textContent = "Event " + position;
    const list = document.createElement("dl");
    const [kind, run, hash, at, ...by] = (entry.dataset.e || "").split(" ");
    row(list, "kind", listed ? listed.cells[3].textContent : kind);
    row(list, "by", (listed ? listed.cells[2].textContent : by.join(" ")) + " · run " + (listed ? listed.dataset.run : run));
    row(list, "at", listed ? listed.cells[1].title + " " + listed.cells[1].textContent + " UTC" : at);
    if (listed && listed.dataset.because) {
      const because = document.createElement("a");
      because.href = "#e" + listed.dataset.because;
      because.textContent = listed.dataset.because;
      row(list, "because", because);
    }
    row(list, "hash", listed ? listed.cells[5].textContent : hash);
    const parts = [title, list];
    const payload = listed && one("pre", listed);
    if (payload) {
      const heading = document.createElement("h2");
      heading.textContent = "Payload";
      parts.push(heading, payload.cloneNode(true));
    }
    const link = document.createElement("p");
    const anchor = document.createElement("a");
    anchor.href = "#" + entry.id;
    anchor.textContent = "link to this event";
    link.append(anchor);
    inspector.replaceChildren(...parts, link);
  }
  function unselect() {
    if (selected) selected.classList.remove("sel");
    selected = null;
    inspector.replaceChildren(...help);
  }
  function select(entry) {
    if (selected) selected.classList.remove("sel");
    selected = entry;
    entry.classList.add("sel");
    inspect(entry);
    entry.scrollIntoView({ block: "center" });
  }
  timeline.addEventListener("click", (event) => {
    const entry = event.target.closest("#timeline > .part > [id]");
    if (!entry || event.target.closest("a, summary, pre") || String(getSelection())) return;
    if (selected) selected.classList.remove("sel");
    selected = entry;
    entry.classList.add("sel");
    inspect(entry);
  });

  // The slider: what came later is hidden, and what held then is shown.
  const slider = one(".slider input");
  const told = one(".slider output");
  const first = Number(slider.min);
  const last = Number(slider.max);
  const spans = all("[data-from]").map((element) => ({
    element, from: Number(element.dataset.from), to: Number(element.dataset.to || Infinity),
  }));
  const groups = new Set(spans.map((span) => span.element.parentElement));
  const marks = all(".lanes [data-p]").map((mark) => ({ mark, at: Number(mark.dataset.p) }));
  let shown = entries.length;
  function count(position) {
    let low = 0;
    let high = positions.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (positions[middle] <= position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
  function travel(position) {
    const upto = count(position);
    for (let index = Math.min(upto, shown); index < Math.max(upto, shown); index++) entries[index].hidden = index >= upto;
    shown = upto;
    for (const part of parts) part.hidden = Number(part.firstElementChild.dataset.p) > position;
    for (const span of spans) span.element.hidden = !(span.from <= position && position < span.to);
    for (const group of groups) {
      const empty = all(":scope > [data-from]", group).every((line) => line.hidden);
      const around = group.closest(".sect, .col");
      if (around) around.hidden = empty;
    }
    for (const { mark, at } of marks) mark.classList.toggle("later", at > position);
    slider.value = String(position);
    const entry = entries[upto - 1];
    const when = entry && one("time, .t", entry);
    const clock = when ? when.firstChild.textContent.trim() : "";
    told.textContent = `position ${position} of ${last}` + (clock ? ` · ${clock}` : "");
    document.body.classList.toggle("past", position < last);
    if (selected && selected.hidden) unselect();
  }
  slider.addEventListener("input", () => {
    stop();
    travel(Number(slider.value));
    const entry = entries[shown - 1];
    if (entry && !timeline.hidden) entry.scrollIntoView({ block: "end" });
  });
  const play = one("[data-play]");
  let timer = 0;
  function stop() {
    clearInterval(timer);
    timer = 0;
    say("▶", "Play");
  }
  function say(sign, words) {
    play.textContent = sign;
    play.title = words;
    play.setAttribute("aria-label", words);
  }
  play.addEventListener("click", () => {
    if (timer) return stop();
    if (Number(slider.value) >= last) travel(first);
    say("❚❚", "Pause");
    const step = Math.max(1, Math.round((last - first) / 200));
    timer = setInterval(() => {
      const next = Math.min(last, Number(slider.value) + step);
      travel(next);
      const entry = entries[shown - 1];
      if (entry) entry.scrollIntoView({ block: "end" });
      if (next >= last) stop();
    }, 120);
    return undefined;
  });

  // Zoom, and wide windows: the picture becomes wider, its letters do not; what is in the middle stays there.
  const box = one(".lanes-in");
  const picture = one("svg", box);
  const tallest = 1.06;
  let zoom = 1;
  function magnify(factor) {
    if (!picture) return;
    const middle = (box.scrollLeft + box.clientWidth / 2) / box.scrollWidth;
    zoom = Math.max(1, Math.min(64, zoom * factor));
    fit();
    box.scrollLeft = middle * box.scrollWidth - box.clientWidth / 2;
    write();
  }
  function scales() {
    const across = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
    return { across, down: Math.min(across / zoom, tallest) };
  }
  function fit() {
    if (!picture) return;
    picture.style.width = `${zoom * 100}%`;
    picture.setAttribute("preserveAspectRatio", "none");
    picture.style.height = `${scales().down * picture.viewBox.baseVal.height}px`;
    write();
  }
  function write() {
    if (!picture) return;
    const { across, down } = scales();
    for (const text of all("text", picture)) {
      const x = Number(text.getAttribute("x"));
      const moved = text.classList.contains("name") ? box.scrollLeft / across : x - (x * down) / across;
      text.setAttribute("transform", `translate(${moved} 0) scale(${down / across} 1)`);
    }
  }
  fit();
  window.addEventListener("resize", fit);
  window.addEventListener("beforeprint", () => {
    if (!picture) return;
    picture.removeAttribute("style"); // on paper it has the proportions in which it was drawn
    picture.removeAttribute("preserveAspectRatio");
    for (const text of all("text", picture)) text.removeAttribute("transform");
  });
  window.addEventListener("afterprint", fit);
  box.addEventListener("scroll", () => requestAnimationFrame(write), { passive: true });
  for (const button of all("[data-zoom]")) button.addEventListener("click", () => magnify(Number(button.dataset.zoom)));

  // Compare: the lines that began to hold between two positions, and those that ceased to.
  function number(form, label, value) {
    const name = document.createElement("label");
    const field = document.createElement("input");
    Object.assign(field, { type: "number", min: String(first), max: String(last), value: String(value) });
    name.append(label, field);
    form.append(name);
    return field;
  }
  function lines(title, found) {
    if (!found.length) return [];
    const heading = document.createElement("h2");
    heading.textContent = title;
    const parts = new Map();
    for (const span of found) {
      const words = span.element.matches("tr") ? [...span.element.cells].slice(0, 3).map((cell) => cell.textContent).join(" ") : "";
      const name = span.element.closest(".sect")?.querySelector("h2")?.textContent || (words ? "Attempts" : "Objective");
      const line = words ? document.createElement("div") : span.element.cloneNode(true);
      if (words) line.textContent = words;
      line.hidden = false;
      const item = document.createElement("li");
      item.append(line);
      parts.set(name, [...(parts.get(name) || []), item]);
    }
    const made = [...parts].flatMap(([name, items]) => {
      const title = document.createElement("h3");
      title.textContent = name;
      const list = document.createElement("ul");
      list.className = "plain";
      list.append(...items);
      return [title, list];
    });
    return [heading, ...made];
  }
  function compare() {
    const dialog = document.createElement("dialog");
    const title = document.createElement("h2");
    title.textContent = "What changed between two positions";
    title.id = "compared";
    dialog.setAttribute("aria-labelledby", "compared");
    const form = document.createElement("form");
    form.className = "fields";
    const now = Number(slider.value);
    const from = number(form, "from position", now === last ? first : now);
    const to = number(form, "to position", last);
    const result = document.createElement("div");
    const send = document.createElement("button");
    send.textContent = "compare";
    form.append(send);
    const close = document.createElement("button");
    close.textContent = "close";
    close.className = "close";
    close.type = "button";
    close.addEventListener("click", () => dialog.close());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const [before, after] = [Number(from.value), Number(to.value)].sort((a, b) => a - b);
      const facts = spans.filter((span) => span.element.closest("#note, #attempts"));
      const holds = (span, at) => span.from <= at && at < span.to;
      const made = lines("New", facts.filter((span) => holds(span, after) && !holds(span, before)));
      const gone = lines("No longer so", facts.filter((span) => holds(span, before) && !holds(span, after)));
      const grown = document.createElement("p");
      const turns = count(after) - count(before);
      grown.textContent = `From ${before} to ${after}: ${turns} more ${turns === 1 ? "entry" : "entries"} on the timeline.`;
      result.replaceChildren(grown, ...made, ...gone);
    });
    result.addEventListener("click", (event) => event.target.closest("a") && dialog.close());
    dialog.append(title, form, result, close);
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    form.requestSubmit();
  }
  one(".compare").addEventListener("click", compare);

  // Search: entries that contain the words; enter leads to the next one.
  const form = one(".find");
  const field = one("input", form);
  const status = one("[role=status]", form);
  const canMark = typeof CSS !== "undefined" && "highlights" in CSS;
  let hits = [];
  let current = -1;
  let wanted = "";
  function search() {
    wanted = field.value.trim().toLowerCase();
    hits = [];
    current = -1;
    if (canMark) CSS.highlights.clear();
    if (!wanted) {
      status.textContent = "";
      return;
    }
    for (const entry of entries) {
      if (!entry.hidden && entry.textContent.toLowerCase().includes(wanted)) hits.push(entry);
    }
    status.textContent = hits.length === 1 ? "1 entry" : `${hits.length.toLocaleString("en")} entries`;
  }
  function mark(entry) {
    const walker = document.createTreeWalker(entry, NodeFilter.SHOW_TEXT);
    const ranges = [];
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const text = node.data.toLowerCase();
      for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
        if (!ranges.length) {
          for (let fold = node.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
        }
        const range = document.createRange();
        range.setStart(node, at);
        range.setEnd(node, at + wanted.length);
        ranges.push(range);
      }
    }
    if (canMark) CSS.highlights.set("found", new Highlight(...ranges));
    if (ranges.length) {
      const box = ranges[0].getBoundingClientRect();
      scrollBy(0, box.top - innerHeight / 3);
    }
  }
  function step(by) {
    if (!hits.length) return;
    current = (current + by + hits.length) % hits.length;
    open("timeline");
    select(hits[current]);
    mark(hits[current]);
    status.textContent = `${(current + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
  }
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 150);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(waiting);
    if (field.value.trim().toLowerCase() !== wanted) search();
    step(1);
  });

  // Keys: / searches, j and k move, escape leaves the search.
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (one("dialog")) return;
    if (event.key === "/") {
      event.preventDefault();
      field.focus();
    } else if (event.key === "+" || event.key === "-") {
      magnify(event.key === "+" ? 2 : 0.5);
    } else if (event.key === "j" || event.key === "k") {
      const named = entries.filter((entry) => entry.id && !entry.hidden);
      const at = named.indexOf(selected) + (event.key === "j" ? 1 : -1);
      if (named[at]) select(named[at]);
    }
  });
  follow();
})();
