// One connection for all tabs: a browser allows six per host, and the seventh tab would never load.
// @ts-check
/** @type {Map<MessagePort, Set<string>>} the tabs, and the sessions that each one shows */
const tabs = new Map();
/** @type {EventSource | null} */
let source = null;
let address = "";
let base = "";
let heard = Date.now();
let state = "connecting";
let beat = 15_000; // how often the server says something, in milliseconds; it says how often
let watching = 0;
const BEATS = 2.7; // after so many beats without a word the connection is dead, whatever the browser says: the machine slept

/** @param {object} message */
function tell(message) {
  for (const port of tabs.keys()) port.postMessage(message);
}

/** @param {string} now */
function become(now) {
  state = now;
  tell({ state });
}

function connect() {
  const wanted = [...new Set([...tabs.values()].flatMap((sessions) => [...sessions]))].sort();
  const next = base + "/live?" + wanted.map((one) => "watch=" + encodeURIComponent(one)).join("&");
  if (source && source.readyState !== EventSource.CLOSED && next === address) return;
  if (source) source.close();
  address = next;
  heard = Date.now();
  const opened = (source = new EventSource(next));
  const listen = (/** @type {string} */ name, /** @type {(data: any) => void} */ then) =>
    opened.addEventListener(name, (event) => {
      heard = Date.now();
      then(JSON.parse(/** @type {MessageEvent} */ (event).data));
    });
  listen("hello", (data) => {
    become("live");
    tell({ moved: data.positions, again: true });
  });
  listen("moved", (moved) => tell({ moved }));
  listen("beat", () => state !== "live" && become("live"));
  listen("failing", () => become("the store does not answer"));
  opened.onerror = () => become("disconnected");
}

/** @param {MessagePort} port */
function join(port) {
  tabs.set(port, new Set());
  port.onmessage = (event) => {
    if (event.data.bye) {
      tabs.delete(port);
      if (!tabs.size && source) {
        source.close();
        source = null;
      }
      return;
    }
    base = event.data.base;
    beat = event.data.beat || beat;
    watching ||= setInterval(watch, Math.min(3_000, beat));
    tabs.set(port, new Set(event.data.watch));
    connect();
    port.postMessage({ state });
  };
}

function watch() {
  const closed = source && source.readyState === EventSource.CLOSED;
  if (tabs.size && source && (closed || Date.now() - heard > BEATS * beat)) {
    if (!closed) become("disconnected");
    address = "";
    connect();
  }
}

// @ts-ignore: this file is a shared worker
self.onconnect = (event) => join(event.ports[0]);
