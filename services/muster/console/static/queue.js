// What waits, in which order, since when and why; and what runs.

import { fill, h, Table } from "./dom.js";
import { Rows } from "./events.js";
import { briefReason, compare, count, expectedStart, gangLink, inQueueOrder, PENDING, QUEUED } from "./format.js";

const PAGE = 100;
const COLUMNS = [
  { title: "#", class: "number" }, { title: "Namespace" }, { title: "Gang", class: "name" }, { title: "Phase" },
  { title: "Priority", class: "number" }, { title: "Bound", class: "number" }, { title: "Minimum", class: "number" },
  { title: "Age", class: "number" }, { title: "Expected start", class: "expected" }, { title: "Reason", class: "reason" },
];
const SHOWN = { pending: (gang) => PENDING.includes(gang.phase), running: (gang) => !PENDING.includes(gang.phase), all: () => true };

export function queue(main, namespace) {
  const gangs = new Rows((gang) => gang.id);
  const starts = new Rows((start) => start.id);
  const table = new Table(COLUMNS, "Gangs");
  const summary = h("p", { "aria-live": "polite" });
  const more = h("button", { type: "button", hidden: true, onclick: () => { shown += PAGE; update(); } });
  const filter = h("input", { type: "search", id: "filter", oninput: () => { shown = PAGE; update(); } });
  const which = h("select", { id: "which", onchange: () => { shown = PAGE; update(); } },
    h("option", { value: "pending" }, "pending"), h("option", { value: "running" }, "started"), h("option", { value: "all" }, "all"));
  const hint = h("p", { hidden: true });
  const assumption = h("p", { class: "detail", hidden: true });
  filter.value = namespace ? `${namespace}/` : "";
  let shown = PAGE;
  let session = { sees_all: true, namespaces: [] };
  let drawn = 0;

  function update() {
    if (!drawn) drawn = requestAnimationFrame(draw);
  }

  function draw() {
    drawn = 0;
    const text = filter.value.trim().toLowerCase();
    const positions = new Map();
    const queued = [...gangs.values()].filter((gang) => QUEUED.includes(gang.phase)).sort(inQueueOrder);
    queued.forEach((gang, at) => positions.set(gang.id, at + 1));
    const found = [...gangs.values()].filter((gang) => SHOWN[which.value](gang)
      && (!text || `${gang.namespace}/${gang.name} ${gang.phase} ${gang.reason}`.toLowerCase().includes(text)));
    found.sort((a, b) => compare(!PENDING.includes(a.phase), !PENDING.includes(b.phase)) || inQueueOrder(a, b));
    table.update(found.slice(0, shown).map((gang) => ({
      key: gang.id,
      cells: [
        session.sees_all && positions.has(gang.id) ? String(positions.get(gang.id)) : "",
        gang.namespace, { text: gang.name, href: gangLink(gang.id) }, { text: gang.phase, class: `phase ${gang.phase}` },
        String(gang.priority), `${gang.bound}/${gang.members}`, gang.minimum ? String(gang.minimum) : "-",
        { since: gang.created }, expectedStart(starts.get(gang.id)), briefReason(gang),
      ],
    })));
    fill(summary, `${count(found.length, "gang")}${text ? " found" : ""}, in the order of the queue`);
    more.hidden = found.length <= shown;
    fill(more, `Show ${Math.min(PAGE, found.length - shown)} more of ${found.length}`);
    hint.hidden = session.sees_all;
    fill(hint, `You see namespaces in which you may read pods: ${session.namespaces.join(", ") || "none with gangs"}. `
      + "The places of gangs in the queue are on their pages.");
  }

  fill(main, h("h1", {}, "Queue"), h("div", { class: "controls" }, h("label", { for: "which" }, "Show"), which,
    h("label", { for: "filter" }, "Find"), filter), summary, hint, assumption, table.element, more);
  return {
    title: "Queue",
    parameters: `feeds=gangs,starts&namespace=${encodeURIComponent(namespace)}`,
    on: {
      session: (changed) => {
        session = changed;
        table.element.classList.toggle("no-forecast", !changed.forecast);
        update();
      },
      gangs: (change) => { gangs.apply(change); update(); },
      starts: (change) => { starts.apply(change); update(); },
      forecast: (found) => {
        const since = found.seconds ? ` Found at ${new Date(found.seconds * 1000).toLocaleTimeString()}.` : "";
        assumption.hidden = !(found.assumption || found.detail);
        fill(assumption, found.assumption ? `Expected starts: ${found.assumption}${since} ` : "",
          found.detail ? `They are not found now: ${found.detail}` : "");
      },
    },
  };
}
