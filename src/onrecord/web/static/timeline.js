// The timeline as a virtual list: rows come in stretches of positions, only those in sight are in the document.
// Heights differ and are measured when a row is drawn. One row, the anchor, stays where it is while others are loaded and
// measured: the row that was jumped to, until a person scrolls; without one, the first row in sight.
// @ts-check
import { element, json, say } from "./page.js";

/** @typedef {{key: string, position: number, html: string, height: number}} Row */
/** @typedef {{rows: Row[], settled: boolean}} Stretch */
/** @typedef {{key: string, offset: number}} Anchor a row, and how far below the top of the box it is */

const GUESS = 72; // the height of a row that was never drawn
const ROWS_GUESS = 20; // how many rows a stretch has that was never read
const KEPT = 80; // how many stretches stay in memory
const AROUND = 0.6; // how much is drawn above and below, in heights of the window
const FAR = 40; // how many stretches without a row are passed: they are inside of a long turn
const NEAR_END = 48; // so near to the end, new rows scroll in by themselves

export class Timeline {
  /** @param {HTMLElement} box @param {string} session @param {number} size @param {number} upto @param {number | null} at */
  constructor(box, session, size, upto, at) {
    this.box = box;
    this.session = session;
    this.size = size;
    this.upto = upto;
    this.at = at;
    /** @type {Map<number, Stretch>} */
    this.stretches = new Map();
    /** @type {Map<number, number>} the heights of stretches that are no longer in memory */
    this.heights = new Map();
    /** @type {Map<number, Promise<void>>} */
    this.loading = new Map();
    /** @type {Map<string, HTMLElement>} */
    this.drawn = new Map();
    this.selected = 0;
    this.pinned = true;
    /** @type {Anchor | null} the row that was jumped to */
    this.target = null;
    this.scrolled = 0; // where we put the box: any other value is where a person scrolled to
    this.frame = 0;
    this.place = document.createElement("div");
    this.place.id = "rows";
    this.above = document.createElement("div");
    this.below = document.createElement("div");
    this.started = false;
    this.scrolling = () => this.later();
    box.addEventListener("scroll", this.scrolling, { passive: true });
    this.resized = new ResizeObserver(() => this.later());
    this.resized.observe(box);
  }

  get count() {
    return Math.floor((this.upto - 1) / this.size) + 1;
  }

  /** Show the end. @param {boolean} adopt whether the rows in the box are those that the server rendered for it */
  async start(adopt = false) {
    if (adopt) this.scroll(this.box.scrollHeight);
    await Promise.all([this.load(this.count - 1), this.count > 1 ? this.load(this.count - 2) : null]);
    if (adopt) this.adopt();
    this.begin();
    this.toEnd();
  }

  /** Keep the rows that the server rendered: they are already where they belong, and nothing moves. */
  adopt() {
    const place = /** @type {HTMLElement | null} */ (this.box.querySelector("#rows"));
    const rows = [this.count - 2, this.count - 1].flatMap((number) => this.stretches.get(number)?.rows || []);
    const made = /** @type {HTMLElement[]} */ (place ? [...place.children] : []);
    if (!place || !rows.length || made.length !== rows.length) return;
    rows.forEach((row, index) => {
      made[index].dataset.position = String(row.position);
      made[index].dataset.key = row.key;
      this.drawn.set(row.key, made[index]);
    });
    this.place = place;
    this.measure(rows);
  }

  begin() {
    if (this.started) return;
    this.started = true;
    this.box.replaceChildren(this.above, this.place, this.below);
    this.scrolled = this.box.scrollTop;
  }

  stop() {
    this.box.removeEventListener("scroll", this.scrolling);
    this.resized.disconnect();
  }

  toEnd() {
    this.pinned = true;
    this.target = null;
    this.scrolled = this.box.scrollTop;
    this.draw();
    this.draw();
  }

  /** Whether a person scrolled: then the row that was jumped to is no longer held. */
  notice() {
    const top = this.box.scrollTop;
    if (Math.abs(top - this.scrolled) <= 1) return;
    this.scrolled = top;
    this.target = null;
    this.pinned = this.box.scrollHeight - top - this.box.clientHeight < NEAR_END;
  }

  /** @param {number} top */
  scroll(top) {
    this.box.scrollTop = top;
    this.scrolled = this.box.scrollTop;
  }

  later() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.draw());
  }

  /** @param {number} number @param {boolean} [again] @returns {Promise<void>} */
  load(number, again = false) {
    const known = this.loading.get(number);
    if (known) return known;
    if (this.stretches.has(number) && !again) return Promise.resolve();
    const asked = json(`/s/${this.session}/rows/${number}`, { at: this.at })
      .then((data) => this.keep(number, data))
      .catch((problem) => say(String(problem)))
      .finally(() => this.loading.delete(number));
    this.loading.set(number, asked);
    return asked;
  }

  /** @param {number} number @param {{rows: [number, string][], settled: boolean}} data */
  keep(number, data) {
    const before = new Map((this.stretches.get(number)?.rows || []).map((row) => [row.key, row]));
    const seen = new Map();
    const rows = data.rows.map(([position, html]) => {
      const nth = (seen.get(position) || 0) + 1;
      seen.set(position, nth);
      const key = `${position}/${nth}`;
      const known = before.get(key);
      if (known && known.html !== html) this.drop(key);
      return { key, position, html, height: known && known.html === html ? known.height : known?.height || GUESS };
    });
    for (const key of before.keys()) if (!rows.some((row) => row.key === key)) this.drop(key);
    this.stretches.delete(number);
    this.stretches.set(number, { rows, settled: data.settled });
    for (const oldest of this.stretches.keys()) {
      if (this.stretches.size <= KEPT) break;
      this.heights.set(oldest, this.height(oldest));
      this.stretches.delete(oldest);
    }
    this.later();
  }

  /** @param {string} key */
  drop(key) {
    this.drawn.get(key)?.remove();
    this.drawn.delete(key);
  }

  /** @param {number} number */
  height(number) {
    const known = this.stretches.get(number);
    if (!known) return this.heights.get(number) ?? this.usual;
    return known.rows.reduce((sum, row) => sum + row.height, 0);
  }

  /** The height of a stretch that was never read: that of the others. */
  get usual() {
    const known = [...this.stretches.values()];
    const rows = known.flatMap((one) => one.rows);
    if (!rows.length) return GUESS * ROWS_GUESS;
    return Math.max(GUESS, rows.reduce((sum, row) => sum + row.height, 0) / known.length);
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (!this.started) return;
    this.notice();
    const high = this.box.clientHeight;
    const usual = this.usual;
    const total = this.count;
    const held = this.pinned ? null : this.target || this.anchor();
    const place = held && this.placeOf(held.key, usual);
    const whole = this.sum(total, usual);
    const from = this.pinned ? whole - high : held && place !== null ? place - held.offset : this.box.scrollTop;
    const top = Math.max(0, from) - AROUND * high;
    const bottom = (this.pinned ? whole : from + high) + AROUND * high;
    /** @type {Row[]} */
    const wanted = [];
    let y = 0;
    let above = 0;
    let last = 0;
    for (let number = 0; number < total; number++) {
      const known = this.stretches.get(number);
      const height = known ? this.height(number) : (this.heights.get(number) ?? usual);
      if (y + height >= top && y <= bottom) {
        if (!known) this.load(number);
        else {
          let place = y;
          for (const row of known.rows) {
            if (place + row.height >= top && place <= bottom) {
              if (!wanted.length) above = place;
              wanted.push(row);
              last = place + row.height;
            }
            place += row.height;
          }
        }
      }
      y += height;
    }
    if (!wanted.length) {
      above = Math.min(y, Math.max(0, from));
      last = above;
    }
    this.fill(wanted);
    this.above.style.height = `${above}px`;
    this.below.style.height = `${Math.max(0, y - last)}px`;
    this.measure(wanted);
    if (this.pinned) this.scroll(this.box.scrollHeight);
    else if (held) this.restore(held);
    this.scrolled = this.box.scrollTop;
  }

  /** How far down a row is, as far as heights are known. @param {string} key @param {number} usual */
  placeOf(key, usual) {
    const number = Math.floor((Number.parseInt(key, 10) - 1) / this.size);
    let y = this.sum(number, usual);
    for (const row of this.stretches.get(number)?.rows || []) {
      if (row.key === key) return y;
      y += row.height;
    }
    return null;
  }

  /** @param {number} upto @param {number} usual */
  sum(upto, usual) {
    let y = 0;
    for (let number = 0; number < upto; number++) {
      y += this.stretches.has(number) ? this.height(number) : (this.heights.get(number) ?? usual);
    }
    return y;
  }

  /** @param {Row[]} wanted */
  fill(wanted) {
    const keys = new Set(wanted.map((row) => row.key));
    for (const key of [...this.drawn.keys()]) if (!keys.has(key)) this.drop(key);
    /** @type {Element | null} */
    let next = this.place.firstElementChild;
    for (const row of wanted) {
      let made = this.drawn.get(row.key);
      if (!made) {
        made = element(row.html);
        made.dataset.position = String(row.position);
        made.dataset.key = row.key;
        made.classList.toggle("sel", row.position === this.selected);
        this.drawn.set(row.key, made);
      }
      if (made === next) next = next.nextElementSibling;
      else this.place.insertBefore(made, next);
    }
  }

  /** @param {Row[]} wanted */
  measure(wanted) {
    let changed = false;
    wanted.forEach((row, index) => {
      const made = this.drawn.get(row.key);
      if (!made) return;
      const after = wanted[index + 1] && this.drawn.get(wanted[index + 1].key);
      const height = after ? after.offsetTop - made.offsetTop : made.offsetHeight;
      if (height && Math.abs(height - row.height) > 0.5) {
        row.height = height;
        changed = true;
      }
    });
    if (changed) this.later();
  }

  /** The first row in sight. @returns {Anchor | null} */
  anchor() {
    const top = this.box.getBoundingClientRect().top;
    for (const made of /** @type {HTMLCollectionOf<HTMLElement>} */ (this.place.children)) {
      const place = made.getBoundingClientRect();
      if (place.bottom > top) return place.top < top + this.box.clientHeight ? { key: made.dataset.key || "", offset: place.top - top } : null;
    }
    return null;
  }

  /** Put the anchor back where it was. @param {Anchor} held */
  restore(held) {
    const made = this.drawn.get(held.key);
    if (!made) return;
    const moved = made.getBoundingClientRect().top - this.box.getBoundingClientRect().top - held.offset;
    if (Math.abs(moved) > 0.5) this.scroll(this.box.scrollTop + moved);
  }

  /** Go to a position, and mark it. @param {number} position */
  async jump(position) {
    const number = Math.max(0, Math.min(this.count - 1, Math.floor((position - 1) / this.size)));
    await this.load(number);
    let where = number;
    while (where > 0 && !this.stretches.get(where)?.rows.some((row) => row.position <= position)) {
      where -= 1; // the position is inside of a long turn that began earlier
      await this.load(where);
      if (number - where > FAR) break;
    }
    this.begin();
    const rows = this.stretches.get(where)?.rows || [];
    const found = rows.filter((row) => row.position <= position).pop() || rows[0];
    this.pinned = false;
    this.scrolled = this.box.scrollTop;
    this.target = found ? { key: found.key, offset: this.box.clientHeight / 4 } : null;
    this.select(position);
    this.draw();
    this.draw(); // what the first one measured
  }

  /** @param {number} position */
  select(position) {
    this.selected = position && this.rowOf(position);
    for (const made of this.drawn.values()) made.classList.toggle("sel", Number(made.dataset.position) === this.selected);
  }

  /** The position of the row that shows an event. @param {number} position */
  rowOf(position) {
    let best = 0;
    for (const known of this.stretches.values()) {
      for (const row of known.rows) if (row.position <= position && row.position > best) best = row.position;
    }
    return best || position;
  }

  /** The position of the next row, or of the one before. @param {number} step @returns {Promise<number>} */
  async neighbour(step) {
    const now = this.selected || Number.parseInt(this.anchor()?.key || "", 10) || this.upto;
    let number = Math.floor((now - 1) / this.size);
    for (let looked = 0; looked <= FAR && number >= 0 && number < this.count; looked++, number += step) {
      await this.load(number); // one that is known is there at once
      const places = (this.stretches.get(number)?.rows || []).map((row) => row.position);
      const found = step > 0 ? places.find((place) => place > now) : places.findLast((place) => place < now);
      if (found) return found;
    }
    return now;
  }

  /** The log grew: read again what may have changed. @param {number} upto */
  async grow(upto) {
    const before = this.count;
    this.upto = Math.max(this.upto, upto);
    const pinned = this.pinned;
    const stale = [...this.stretches.entries()].filter(([, one]) => !one.settled).map(([number]) => number);
    const wanted = new Set(stale.slice(-6));
    if (pinned) for (let number = Math.max(before - 1, this.count - 3); number < this.count; number++) wanted.add(number);
    await Promise.all([...wanted].map((number) => this.load(number, true)));
    if (pinned) this.pinned = true;
    this.draw();
    return pinned;
  }
}
