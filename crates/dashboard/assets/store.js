// What the server has told: the fleet as it is now, and the stream of differences that keeps it so.
// What it is not: how it is shown.

// All times in milliseconds.
/** How long an answer may take: a little longer than the server waits for the API server. */
const PATIENCE = 90000;
/** When the page asks again after a failure. */
const AGAIN = 2000;
/** The server sends something every 15 seconds. A stream that is silent for this long is dead, whatever the browser thinks. */
const SILENT = 40000;
const LOOK = 5000;
/** The server asks browsers to come back after one second. */
const MOMENT = 3000;

/** Asks the server; a text is sent as it is. An answer that is no success is an error with the server's sentence. */
export async function ask(path, body, method = body === undefined ? "GET" : "POST") {
  const [type, sent] = typeof body === "string" ? ["text/plain", body] : ["application/json", JSON.stringify(body)];
  const action = method === "GET" ? {} : { method, headers: { "x-mco-dashboard": "1", "content-type": type }, body: sent };
  const signal = AbortSignal.timeout(PATIENCE);
  let answer;
  let text;
  try {
    answer = await fetch(path, { credentials: "same-origin", signal, ...action });
    text = await answer.text();
  } catch (error) {
    // Browsers say no more than that it failed, each in words of its own.
    throw new Error(signal.aborted ? `no answer within ${PATIENCE / 1000} seconds` : "the dashboard does not answer: does it run, and is the network there?", { cause: error });
  }
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = { error: `the answer cannot be read (status ${answer.status})` };
  }
  if (!answer.ok) throw Object.assign(new Error(value.error ?? `status ${answer.status}`), { status: answer.status });
  return value;
}

/** Tells `change` with the names of the nodes that differ (`null`: all), once for each frame that is drawn, and `connection`. */
export class Store extends EventTarget {
  cluster = "";
  version = "";
  trouble = "";
  /** What is not known because it may not be read: kinds, with sentences. */
  unread = [];
  pools = new Map();
  nodes = new Map();
  unmanaged = [];
  findings = [];
  connection = "connecting";
  /** Why the server gives nothing now, in its words; empty: it does not answer. */
  why = "";
  /** Why the server refuses this person, in its words. */
  refusal = "";
  #changed = new Set();
  #all = false;
  #planned = false;
  #source = null;
  #heard = 0;
  #again = 0;
  #turn = 0;
  #said = "connecting ";

  constructor() {
    super();
    // A browser has six connections to one host. A page that nobody sees must not hold one of them.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.#say("connecting");
      this.connect();
    });
    setInterval(() => {
      if (!this.#source || Date.now() - this.#heard < SILENT) return;
      this.#say("away");
      this.connect();
    }, LOOK);
  }

  /** Begins, and begins again whenever it has to. A page that is hidden only ends what it had. */
  async connect() {
    this.#turn += 1;
    const turn = this.#turn;
    clearTimeout(this.#again);
    this.#source?.close();
    this.#source = null;
    if (document.hidden) return;
    try {
      const whole = await ask("api/snapshot");
      if (turn !== this.#turn) return;
      // The dashboard was replaced by another version: its page is another one, too.
      if (this.version && this.version !== whole.version) return location.reload();
      this.cluster = whole.cluster;
      this.version = whole.version;
      this.trouble = whole.trouble;
      this.unread = whole.unread;
      this.pools = new Map(whole.pools.map((p) => [p.name, p]));
      this.nodes = new Map(whole.nodes.map((n) => [n.name, n]));
      this.unmanaged = whole.unmanaged;
      this.findings = whole.findings;
      this.#tell(null);
      this.#follow(whole.id);
    } catch (error) {
      if (turn !== this.#turn) return;
      // Asking again changes neither of these.
      if (error.status === 401) return this.#say("ended");
      if (error.status === 403) {
        this.refusal = error.message;
        return this.#say("refused");
      }
      this.why = error.status ? error.message : "";
      this.#say("away");
      this.#later();
    }
  }

  #later() {
    clearTimeout(this.#again);
    this.#again = setTimeout(() => this.connect(), AGAIN);
  }

  #follow(id) {
    const source = new EventSource(`api/events?after=${encodeURIComponent(id)}`);
    this.#source = source;
    this.#heard = Date.now();
    const on = (type, then) => source.addEventListener(type, (event) => {
      this.#heard = Date.now();
      then(event);
    });
    on("open", () => {
      this.why = "";
      this.#say("live");
    });
    on("beat", () => {});
    on("delta", (event) => this.apply(JSON.parse(event.data)));
    on("reset", () => this.connect());
    source.addEventListener("error", () => {
      // The browser comes back by itself unless it was refused. The server ends streams to see who comes back, so a moment
      // without one is no news.
      if (source.readyState === EventSource.CLOSED) {
        this.#say("away");
        this.#later();
        return;
      }
      setTimeout(() => {
        if (this.#source === source && source.readyState === EventSource.CONNECTING) this.#say("away");
      }, MOMENT);
    });
  }

  /** Applies one difference, in the order that the server says. */
  apply(delta) {
    const changed = [];
    if (delta.whys) {
      const whys = new Map(delta.whys);
      for (const node of this.nodes.values()) {
        const why = whys.get(node.why);
        if (why !== undefined) {
          node.why = why;
          changed.push(node.name);
        }
      }
    }
    let moved = false;
    for (const node of delta.nodes ?? []) {
      const was = this.nodes.get(node.name);
      moved ||= !was || was.pool !== node.pool || was.zone !== node.zone;
      this.nodes.set(node.name, node);
      changed.push(node.name);
    }
    for (const name of delta.gone ?? []) this.nodes.delete(name);
    for (const pool of delta.pools ?? []) this.pools.set(pool.name, pool);
    for (const name of delta.poolsGone ?? []) this.pools.delete(name);
    if (delta.unmanaged) this.unmanaged = delta.unmanaged;
    if (delta.findings) this.findings = delta.findings;
    if (delta.unread) this.unread = delta.unread;
    if (delta.trouble !== undefined) this.trouble = delta.trouble;
    this.#tell(moved || delta.gone || delta.poolsGone ? null : changed);
  }

  /** Whether anything is known of the fleet: what is not in it does not exist. */
  get known() {
    return this.version !== "" && (this.pools.size > 0 || !this.trouble);
  }

  /** The nodes of a pool. */
  of(pool) {
    return [...this.nodes.values()].filter((n) => n.pool === pool);
  }

  #tell(names) {
    if (names === null) this.#all = true;
    else names.forEach((n) => this.#changed.add(n));
    if (this.#planned) return;
    this.#planned = true;
    // A page that is not seen draws nothing; a timer tells it all the same.
    const run = () => {
      if (!this.#planned) return;
      this.#planned = false;
      const detail = { nodes: this.#all ? null : this.#changed };
      this.#all = false;
      this.#changed = new Set();
      this.dispatchEvent(new CustomEvent("change", { detail }));
    };
    requestAnimationFrame(run);
    setTimeout(run, 250);
  }

  #say(connection) {
    // A reader of the screen reads the line aloud each time that it is written.
    const now = `${connection} ${this.why}`;
    if (this.#said === now) return;
    this.#said = now;
    this.connection = connection;
    this.dispatchEvent(new Event("connection"));
  }
}
