// Asks what would happen to manifests: where their pods would start, when, whom they displace, and what would help.

import { duration, fill, h } from "./dom.js";
import { headers } from "./events.js";
import { count, gangCell, nodeLink } from "./format.js";

const MOST_NODES = 50;
const FIELDS = [
  { name: "namespace", title: "Namespace", type: "text", value: "default" },
  { name: "count", title: "Pods of each template", type: "number", min: 1 },
  { name: "topology", title: "Topology", type: "text", placeholder: "rack: hard pack" },
  { name: "priority", title: "Priority", type: "number" },
  { name: "add_nodes", title: "More nodes", type: "number", min: 0 },
  { name: "like", title: "like node", type: "text" },
];

// What was entered, while the page is open: a look at another view does not lose it.
let kept = {};

export function whatif(main) {
  const manifest = h("textarea", {
    id: "manifest", rows: 12, spellcheck: "false", required: true, placeholder: "Manifests as for kubectl apply: Jobs, JobSets, PodGroups with pods, ...",
  });
  const inputs = FIELDS.map((field) => h("input", { id: `ask-${field.name}`, ...field, title: null, value: null }));
  const ask = h("button", { type: "submit" }, "Ask");
  const hint = h("p", { class: "warning", hidden: true },
    "The console has no service forecast. Enable it: forecast.enabled in the chart, --forecast of the console.");
  const answer = h("section", { id: "answer", "aria-live": "polite" });
  let asking = null;

  manifest.value = kept.manifest ?? "";
  FIELDS.forEach((field, at) => { inputs[at].value = kept[field.name] ?? field.value ?? ""; });

  function keep() {
    kept = { manifest: manifest.value };
    FIELDS.forEach((field, at) => { kept[field.name] = inputs[at].value; });
  }

  function question() {
    const asked = { manifest: manifest.value };
    FIELDS.forEach((field, at) => {
      const value = inputs[at].value.trim();
      if (value) asked[field.name] = field.type === "number" ? Number(value) : value;
    });
    return asked;
  }

  async function submit(event) {
    event.preventDefault();
    keep();
    asking?.abort();
    const request = asking = new AbortController();
    answer.setAttribute("aria-busy", "true");
    fill(answer, h("p", {}, "Playing it on a copy of the cluster. That takes up to half a minute."));
    let shown;
    try {
      const response = await fetch("/api/whatif", {
        method: "POST", headers: { ...headers(), "Content-Type": "application/json" },
        body: JSON.stringify(question()), signal: request.signal,
      });
      const found = await response.json();
      shown = response.ok ? result(found) : h("p", { class: "error", role: "alert" }, found.error);
    } catch {
      shown = h("p", { class: "error", role: "alert" }, "The console did not answer: try again.");
    }
    if (asking !== request) return;
    answer.removeAttribute("aria-busy");
    fill(answer, shown);
  }

  fill(main, h("h1", {}, "What if"), hint,
    h("p", {}, "What would happen to these manifests if they were applied now. Nothing is applied."),
    h("form", { class: "ask", onsubmit: submit, oninput: keep },
      h("label", { for: "manifest" }, "Manifests"), manifest,
      h("div", { class: "controls" }, FIELDS.map((field, at) => [h("label", { for: `ask-${field.name}` }, field.title), inputs[at]])),
      h("p", {}, ask)),
    answer);
  return {
    title: "What if",
    parameters: "",
    on: {
      session: (session) => {
        hint.hidden = session.forecast;
        ask.disabled = !session.forecast;
      },
    },
    close: () => asking?.abort(),
  };
}

function result(found) {
  return [
    h("h2", { class: found.verdict === "now" ? "good" : "" }, sentence(found)),
    found.reason ? h("p", {}, found.reason) : null,
    found.reason_hidden ? h("p", {}, "The reason is not shown: it names gangs of namespaces that you cannot read.") : null,
    list("It would start now if", found.would_start_now_if, hidden(found.changes_hidden, "change")),
    list("It would preempt", found.preempts.map((each) => [gang(each.gang), `: ${each.pods.join(", ")}`]), hidden(found.preempts_hidden, "gang")),
    list("It starts after the expected ends of", found.after_the_ends_of.map(gang), hidden(found.ends_hidden, "gang")),
    list("Where it would run", places(found.pods), found.started > found.pods.length ? `and ${found.started - found.pods.length} more pods` : ""),
    list("As if it were replaced", found.replaces.map(gang), ""),
    h("p", { class: "detail" }, `From the cluster as of ${new Date(found.read * 1000).toLocaleTimeString()}`,
      found.exact ? "" : ", without what only the leading coordinator knows"),
  ];
}

function sentence({ verdict, started, asked, nodes, at, after_seconds }) {
  const some = started < asked ? ` with ${started} of ${asked} pods` : "";
  if (verdict === "now") return `It would start now${some} on ${count(nodes, "node")}`;
  if (verdict === "later") return `It would start${some} at about ${new Date(at * 1000).toLocaleString()}, in ${duration(after_seconds)}`;
  if (verdict === "never") return "It would not start as long as nothing changes but the ends of pods that are expected";
  return "No answer was found in time: it may start or not";
}

function gang(id) {
  const cell = gangCell(id);
  return cell.href ? h("a", { href: cell.href }, cell.text) : id;
}

function places(pods) {
  const nodes = new Map();
  for (const each of pods) {
    if (!nodes.has(each.node)) nodes.set(each.node, []);
    nodes.get(each.node).push(each.rank === null ? each.pod : `${each.pod} (rank ${each.rank})`);
  }
  const shown = [...nodes].slice(0, MOST_NODES).map(([node, there]) => [h("a", { href: nodeLink(node) }, node), `: ${there.join(", ")}`]);
  return nodes.size > shown.length ? [...shown, [`and ${nodes.size - shown.length} more nodes`]] : shown;
}

function hidden(number, noun) {
  return number ? `${count(number, noun)} of namespaces that you cannot read` : "";
}

function list(title, lines, more) {
  const all = more ? [...lines, more] : lines;
  return all.length === 0 ? null : h("section", {}, h("h2", {}, title), h("ul", {}, all.map((line) => h("li", {}, line))));
}
