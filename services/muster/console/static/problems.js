// What is misdeclared: the values and what to do, by object.

import { fill, h, Table } from "./dom.js";
import { Rows } from "./events.js";
import { compare, count, gangCell } from "./format.js";

const SHOWN = 500;
const COLUMNS = [{ title: "Severity" }, { title: "Gang or tree", class: "name" }, { title: "Declared by" }, { title: "Problem", class: "reason" }];

export function problems(main) {
  const rows = new Rows((row) => row.key);
  const table = new Table(COLUMNS, "Misdeclared objects");
  const summary = h("p");
  fill(main, h("h1", {}, "Misdeclared objects"), summary, table.element);
  return {
    title: "Misdeclared objects",
    parameters: "feeds=problems",
    on: {
      problems: (change) => {
        rows.apply(change);
        const all = [...rows.values()].sort((a, b) => compare(!a.blocking, !b.blocking) || compare(a.subject, b.subject));
        const blocking = all.filter((each) => each.blocking).length;
        fill(summary, all.length ? `${count(all.length, "object")}, ${blocking} of which wait because of it`
          + (all.length > SHOWN ? `; the first ${SHOWN} are shown` : "") : "None.");
        table.update(all.slice(0, SHOWN).map((each) => ({ key: each.key, cells: [
          { text: each.blocking ? "error" : "warning", class: each.blocking ? "phase timed-out" : "phase waiting" },
          each.key.startsWith("tree/") ? each.subject : gangCell(each.subject), each.declared_by, each.messages.join(" "),
        ] })));
      },
    },
  };
}
