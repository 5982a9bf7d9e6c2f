// One gang: why it waits, what would help, where its members are, what happened to it.

import { age, fill, h, Table } from "./dom.js";
import { amounts, count, expectedStart, gangCell, gangLink, nodeLink, shortName } from "./format.js";

const MEMBERS = [{ title: "Rank", class: "number" }, { title: "Pod", class: "name" }, { title: "State" }, { title: "Node" },
  { title: "Requests" }, { title: "Runs for", class: "number" }];

export function gang(main, id) {
  const heading = h("h1", {}, shortName(id));
  const body = h("div");
  const members = new Table(MEMBERS, "Members");
  const membersTitle = h("h2", {});
  const membersPart = h("section", { hidden: true }, membersTitle, members.element);
  fill(main, heading, body, membersPart);
  return {
    title: shortName(id),
    parameters: `gang=${encodeURIComponent(id)}`,
    on: {
      gang: (page) => {
        if (page.gone || page.unavailable) {
          membersPart.hidden = true;
          fill(body, h("p", { class: "warning" }, page.gone ? "There is no such gang, or you may not read its namespace."
            : `The coordinator does not answer: ${page.unavailable}`));
          return;
        }
        fill(body, ...sections(page));
        membersPart.hidden = page.member_count === 0;
        const listed = [...page.listed_members].sort((a, b) => (a.rank ?? Infinity) - (b.rank ?? Infinity) || 0);
        fill(membersTitle, `Members: ${page.member_count}`
          + (listed.length < page.member_count ? ` (the first ${listed.length} are shown)` : ""));
        members.update(listed.map((member) => ({ key: member.pod, cells: [
          member.rank === null ? "" : String(member.rank), member.pod, member.state,
          node(member), amounts(member.requests), { since: member.started },
        ] })));
      },
    },
  };
}

function node(member) {
  if (member.node) return { text: member.node, href: nodeLink(member.node) };
  return member.reserved_node ? { text: `${member.reserved_node} (reserved)`, href: nodeLink(member.reserved_node) } : "";
}

function sections(page) {
  return [
    h("p", {}, h("span", { class: `phase ${page.phase}` }, page.phase), " ", page.reason ? h("strong", {}, page.reason) : ""),
    help(page), list("What it lacks", page.lacks), facts(page), infeasibility(page), list("Devices", page.devices), ahead(page),
    list("Problems of its declaration", page.problems.map((problem) => `${problem.blocking ? "Error" : "Warning"}: ${problem.message}`)),
    timeline(page),
  ];
}

// Changes that were played; without a service that plays them there are only facts.
function help(page) {
  const found = page.played;
  if (!found) return null;
  if (!found.found) {
    return h("section", { class: "help" }, h("h2", {}, "It would start now if"),
      h("p", {}, found.failure ? `No changes were played: ${found.failure}` : "Changes are being played on a copy of the cluster …"));
  }
  const at = `on a copy of the cluster as of ${new Date(found.read * 1000).toLocaleTimeString()}`;
  if (found.starts_now) {
    return h("section", { class: "help" }, h("h2", {}, "It would start now"), h("p", {}, `as the cluster is: it was played ${at}.`));
  }
  const changes = found.changes.map((text) => h("li", {}, text));
  if (found.hidden) changes.push(h("li", {}, `${count(found.hidden, "change")} of namespaces that you cannot read`));
  return h("section", { class: "help" }, h("h2", {}, "It would start now if"),
    changes.length ? h("ul", {}, changes) : h("p", {}, "No single change with which it would was found in time."),
    h("p", { class: "detail" }, `Each was played ${at}.`));
}

function facts(page) {
  const rows = [["Declared by", [page.dialect, h("ul", { class: "plain terms" }, page.terms.map((term) => h("li", {}, term)))]],
    ["Members", `${page.members} exist, ${page.bound} bound${page.reserved ? `, ${page.reserved} reserved` : ""}; `
      + (page.minimum ? `${page.minimum} must start together` : "no valid minimum is declared")],
    ["Queue", `${page.queue_position ? `position ${page.queue_position}` : "not queued"}, priority ${page.priority}, `
      + `schedule cycle ${page.cycle}, ${count(page.attempts, "attempt")}`],
    ["Created", [age(page.created), " ago"]]];
  const start = expectedStart(page.expected_start);
  if (start) rows.push(["Expected start", [start, h("span", { class: "detail" }, ` ${page.assumption}`)]]);
  const partners = page.group.filter((other) => other !== page.id);
  if (partners.length) rows.push(["Starts with", links(partners)]);
  if (page.preempted_by) rows.push(["Preempted by", links([page.preempted_by])]);
  if (page.victims.length) rows.push(["Evicts", links(page.victims)]);
  if (page.nominated_nodes) rows.push(["Nominated", `capacity on ${count(page.nominated_nodes, "node")}`]);
  if (page.waits_until) rows.push(["Holds until", new Date(page.waits_until).toLocaleTimeString()]);
  if (page.start_seconds !== null) rows.push(["Start", `${page.start_seconds.toFixed(2)} s from its first pod to its last bind`]);
  if (page.rejected.length) rows.push(["Rejected", page.rejected.map((each) => `${each.count} × ${each.reason}`).join(", ")]);
  if (page.trace_url) {
    rows.push(["Trace", h("a", { href: page.trace_url, rel: "noreferrer noopener", target: "_blank" }, page.trace_id)]);
  } else if (page.trace_id) {
    rows.push(["Trace", h("code", {}, page.trace_id)]);
  }
  return h("dl", { class: "facts" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function links(ids) {
  return ids.flatMap((id, at) => {
    const cell = gangCell(id);
    return [at ? ", " : "", cell.href ? h("a", { href: gangLink(id) }, cell.text) : id];
  });
}

function infeasibility(page) {
  const why = page.explanation;
  const lines = [];
  if (why.summary && !page.reason.includes(why.summary)) lines.push(why.summary);
  if (why.needed) lines.push(`${why.fit} of ${why.needed} members fit at best`);
  if (why.best_domain) lines.push(`${why.best_domain_fit} fit in ${why.best_domain}, the best domain`);
  for (const each of why.filtered_nodes) lines.push(`${count(each.nodes, "node")}: ${each.reason}`);
  return ["satisfied", "ended"].includes(page.phase) ? null : list("Why it does not fit", lines);
}

function list(title, lines) {
  return lines.length === 0 ? null : h("section", {}, h("h2", {}, title), h("ul", {}, lines.map((line) => h("li", {}, line))));
}

function ahead(page) {
  if (page.ahead.length === 0) return null;
  const others = page.queue_position - 1 - page.ahead.length;
  return h("section", {}, h("h2", {}, "Ahead of it"), h("p", {}, links(page.ahead), others > 0 ? ` and ${others} more` : ""));
}

function timeline(page) {
  return h("section", {}, h("h2", {}, "Timeline"), h("ol", { class: "timeline" }, page.timeline.map((event) => h("li", {},
    h("span", { class: "at" }, new Date(event.at).toLocaleString()), " ", event.what, event.exact ? "" : " (or earlier)"))));
}
