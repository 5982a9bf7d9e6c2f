// Streams of server-sent events by fetch, which unlike EventSource can send a token. Connects again after every loss.

const SILENCE_MS = 25_000;
const LONGEST_PAUSE_MS = 10_000;

export const token = {
  get: () => sessionStorage.getItem("muster-token") ?? "",
  set: (value) => sessionStorage.setItem("muster-token", value),
  clear: () => sessionStorage.removeItem("muster-token"),
};

export function headers() {
  return token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
}

export class Events {
  // `on`: function by name of event; also "open", "lost" (with a text) and "unauthenticated".
  constructor(parameters, on) {
    this.parameters = parameters;
    this.on = on;
    this.abort = new AbortController();
    this.closed = false;
    this.run();
  }

  close() {
    this.closed = true;
    this.abort.abort();
  }

  async run() {
    for (let failures = 0; !this.closed; failures += 1) {
      this.abort = new AbortController();
      let lost = "The connection to the console is lost.";
      try {
        const response = await fetch(`/api/events?${this.parameters}`, { headers: headers(), signal: this.abort.signal });
        if (response.status === 401) {
          this.on.unauthenticated((await response.json()).error);
          return;
        }
        if (!response.ok) lost = `The console answers: ${(await response.json()).error}.`;
        else if (await this.read(response)) return;
        else failures = 0;
      } catch {
        // shown below
      }
      if (this.closed) return;
      this.on.lost(lost);
      const pause = Math.min(LONGEST_PAUSE_MS, 500 * 2 ** failures) * (0.5 + Math.random() / 2);
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  // Returns whether the stream has ended for good.
  async read(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let silence;
    let rest = "";
    this.on.open();
    try {
      for (;;) {
        clearTimeout(silence);
        silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
        const { done, value } = await reader.read();
        if (done) return false;
        const parts = (rest + value).split("\n\n");
        rest = parts.pop();
        for (const part of parts) {
          if (this.closed) return true;
          const [name, data] = parse(part);
          if (name === "expired") {
            this.on.unauthenticated(data.error);
            return true;
          }
          if (name) this.on[name]?.(data);
        }
      }
    } finally {
      clearTimeout(silence);
    }
  }
}

function parse(part) {
  const lines = part.split("\n");
  const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
  const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
  return name && data ? [name, JSON.parse(data)] : ["", null];
}

// Rows of a feed by key.
export class Rows extends Map {
  constructor(keyOf) {
    super();
    this.keyOf = keyOf;
  }

  apply({ reset, rows, removed }) {
    if (reset) this.clear();
    for (const row of rows) this.set(this.keyOf(row), row);
    for (const key of removed) this.delete(key);
  }
}
