// Who was evicted for whom.

import { fill, h, Table } from "./dom.js";
import { Rows } from "./events.js";
import { count, gangCell } from "./format.js";

const COLUMNS = [{ title: "Victim", class: "name" }, { title: "Its priority", class: "number" }, { title: "Evicted for", class: "name" },
  { title: "Its priority", class: "number" }, { title: "Pods", class: "number" }, { title: "Since", class: "number" }, { title: "Why", class: "reason" }];

export function preemptions(main) {
  const rows = new Rows((row) => row.key);
  const table = new Table(COLUMNS, "Preemptions");
  const summary = h("p");
  fill(main, h("h1", {}, "Preemptions"),
    h("p", {}, "A preemption is under way until its victim has started again, or has gone. Those that are over are listed "
      + "if a page of the console was open at the time."), summary, table.element);
  return {
    title: "Preemptions",
    parameters: "feeds=preemptions",
    on: {
      preemptions: (change) => {
        rows.apply(change);
        const all = [...rows.values()].sort((a, b) => b.seen - a.seen);
        fill(summary, all.length ? `${count(all.length, "preemption")}, ${all.filter((each) => each.under_way).length} under way` : "None.");
        table.update(all.map((each) => ({ key: each.key, cells: [gangCell(each.victim), priority(each.victim_priority),
          gangCell(each.preemptor), priority(each.preemptor_priority), each.pods ? String(each.pods) : "", { since: each.seen }, why(each)] })));
      },
    },
  };
}

function priority(number) {
  return number === null ? "" : String(number);
}

function why(each) {
  const state = each.under_way ? "under way" : "over";
  return `${each.borrowed ? "it ran on capacity that is reserved for the other" : "the other has a higher priority"}; ${state}`;
}
