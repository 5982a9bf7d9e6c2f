// What the pods of each namespace use, have reserved, and wait for.

import { fill, h, Table } from "./dom.js";
import { Rows } from "./events.js";
import { amounts, compare, count } from "./format.js";

const SHOWN = 500;
const COLUMNS = [{ title: "Namespace", class: "name" }, { title: "Pods on nodes", class: "number" }, { title: "Used" },
  { title: "Reserved" }, { title: "Pods that wait", class: "number" }, { title: "Waited for" }];

export function usage(main) {
  const rows = new Rows((row) => row.namespace);
  const table = new Table(COLUMNS, "Usage by namespace");
  const summary = h("p");
  fill(main, h("h1", {}, "Namespaces"),
    h("p", {}, "Requests of pods. What is reserved is for pods that wait and have a node already. Limits of ResourceQuotas are "
      + "shown by ", h("code", {}, "kubectl describe quota"), "."), summary, table.element);
  return {
    title: "Namespaces",
    parameters: "feeds=usage",
    on: {
      usage: (change) => {
        rows.apply(change);
        const all = [...rows.values()].sort((a, b) => b.waiting_pods - a.waiting_pods || b.used_pods - a.used_pods || compare(a.namespace, b.namespace));
        fill(summary, all.length ? `${count(all.length, "namespace")} with pods` + (all.length > SHOWN ? `; the first ${SHOWN} are shown` : "") : "There are no pods.");
        table.update(all.slice(0, SHOWN).map((each) => ({ key: each.namespace, cells: [
          { text: each.namespace, href: `#/queue/${encodeURIComponent(each.namespace)}` }, String(each.used_pods), amounts(each.used),
          amounts(each.reserved), String(each.waiting_pods), amounts(each.waiting),
        ] })));
      },
    },
  };
}
