// Amounts, names and addresses of pages, in the words of the command line.

const UNITS = [[50, "Pi"], [40, "Ti"], [30, "Gi"], [20, "Mi"], [10, "Ki"]];

export function amount(resource, number) {
  if (resource === "cpu") return String(Math.round(number) / 1000);
  if (resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-")) {
    for (const [shift, unit] of UNITS) {
      if (Math.abs(number) >= 2 ** shift) return (number / 2 ** shift).toFixed(1).replace(/\.0$/, "") + unit;
    }
  }
  return String(number);
}

// cpu, memory and pods first, then the others by name.
export function resources(names) {
  const first = ["cpu", "memory", "pods"].filter((name) => names.includes(name));
  return [...first, ...names.filter((name) => !first.includes(name)).sort()];
}

export function amounts(of) {
  return resources(Object.keys(of)).map((name) => `${amount(name, of[name])} ${name}`).join(", ");
}

export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

export function gangLink(id) {
  return `#/gang/${encodeURIComponent(id)}`;
}

export function nodeLink(name) {
  return `#/node/${encodeURIComponent(name)}`;
}

// "koordinator/ml/train" -> "ml/train", as people name gangs.
export function shortName(id) {
  return id.split("/").slice(1).join("/") || id;
}

export function gangCell(id) {
  return id.includes("/") ? { text: shortName(id), href: gangLink(id) } : id;
}

export function briefReason(gang) {
  const name = `gang ${gang.namespace}/${gang.name} `;
  for (const start of [`${name}cannot start: `, `${name}is pending: `]) {
    if (gang.reason.startsWith(start)) return gang.reason.slice(start.length);
  }
  return gang.reason;
}

// When a gang is expected to start, with the range; "" for one of which nothing is known.
export function expectedStart(start) {
  if (!start || start.verdict === "unknown") return "";
  if (start.verdict === "now") return "now";
  if (start.verdict === "never") return "not foreseen";
  const about = `about ${clock(start.expected)}`;
  if (!start.latest) return `${about}, or later`;
  return start.latest - start.earliest < 60 ? about : `${about}, from ${clock(start.earliest)} to ${clock(start.latest)}`;
}

function clock(seconds) {
  const at = new Date(seconds * 1000);
  const far = Math.abs(seconds - Date.now() / 1000) > 43_200;
  return far ? at.toLocaleString([], { dateStyle: "short", timeStyle: "short" }) : at.toLocaleTimeString([], { timeStyle: "short" });
}

// Order of the queue: priority, then age, then name.
export function inQueueOrder(a, b) {
  return b.priority - a.priority || a.created - b.created || compare(a.namespace, b.namespace) || compare(a.name, b.name);
}

export function compare(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

const natural = new Intl.Collator("en", { numeric: true });

export function naturally(a, b) {
  return natural.compare(a, b);
}

export const PENDING = ["gathering", "queued", "solving", "waiting", "timed-out"];
export const QUEUED = ["queued", "solving", "waiting"];
export const PHASES = [...PENDING, "permitted", "binding", "repairing", "satisfied", "ended"];
