// Is it healthy, how long is the queue, how full is the cluster.

import { age, fill, h, svg } from "./dom.js";
import { amount, count, gangLink, PHASES, resources, shortName } from "./format.js";

export function overview(main) {
  const cards = h("div", { class: "cards" });
  const usage = h("section", { hidden: true });
  fill(main, h("h1", {}, "Overview"), cards, usage);
  let seesAll = true;
  return {
    title: "Overview",
    parameters: "overview=1",
    on: {
      session: (session) => {
        seesAll = session.sees_all;
      },
      overview: (page) => {
        fill(cards, health(page), waiting(page), starts(page), phases(page, seesAll));
        usage.hidden = page.utilisation === undefined;
        if (page.utilisation !== undefined) fill(usage, ...utilisation(page));
      },
    },
  };
}

function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", {}, title), ...children);
}

function health(page) {
  const lines = Object.entries(page.sources).map(([name, source]) =>
    h("li", { class: source.connected ? "good" : "bad" }, `${name}: ${source.connected ? "connected" : "not reachable"}`,
      source.connected ? "" : h("div", { class: "detail" }, source.detail, " ", source.since ? age(source.since) : "")));
  return card("Health", h("ul", { class: "plain" }, lines, h("li", { class: page.leader ? "good" : "bad" },
    page.leader ? `leader: ${page.leader}` : "no coordinator leads")));
}

function waiting(page) {
  const oldest = page.oldest ? [h("p", {}, "Longest wait: ", age(page.oldest_created)),
    h("p", { class: "detail" }, h("a", { href: gangLink(page.oldest) }, shortName(page.oldest)))]
    : h("p", {}, "Nothing waits.");
  return card("Queue", h("p", { class: "big" }, h("a", { href: "#/queue" }, count(page.queued, "gang"))),
    h("p", {}, `${count(page.pending_pods, "pending pod")}`), oldest);
}

function starts(page) {
  if (page.starts === undefined) return null;
  const last = page.starts.slice(-5);
  const perMinute = last.reduce((sum, each) => sum + each, 0) / last.length;
  return card("Starts", h("p", { class: "big" }, `${perMinute.toFixed(1)} per minute`),
    h("p", {}, "in the last 5 minutes; ", page.last_start ? ["last one ", age(page.last_start), " ago"] : "none seen yet"),
    bars(page.starts));
}

function bars(numbers) {
  const most = Math.max(1, ...numbers);
  const drawn = numbers.map((number, at) => svg("rect", {
    x: at * 4, width: 3, y: 40 - (40 * number) / most, height: (40 * number) / most, class: "bar",
  }));
  const label = `Starts in each of the last ${numbers.length} minutes, at most ${most}`;
  return svg("svg", { viewBox: `0 0 ${numbers.length * 4} 41`, role: "img", "aria-label": label, class: "chart" },
    svg("line", { x1: 0, x2: numbers.length * 4, y1: 40.5, y2: 40.5, class: "axis" }), ...drawn);
}

function phases(page, seesAll) {
  const known = PHASES.filter((phase) => page.phases[phase]);
  return card(seesAll ? "Gangs" : "Your gangs", known.length === 0 ? h("p", {}, "There are no gangs.") : h("dl", { class: "counts" },
    known.map((phase) => [h("dt", {}, h("span", { class: `phase ${phase}` }, phase)), h("dd", {}, String(page.phases[phase]))])));
}

function utilisation(page) {
  const rows = resources(Object.keys(page.utilisation)).map((name) => {
    const { allocatable, used, reserved } = page.utilisation[name];
    const meter = h("div", { class: "meter", role: "img",
      "aria-label": `${name}: ${percent(used, allocatable)} used, ${percent(reserved, allocatable)} reserved` },
    part("used", used, allocatable), part("reserved", reserved, allocatable));
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { "data-label": "Used" }, percent(used, allocatable)),
      h("td", { class: "wide" }, meter),
      h("td", { "data-label": "Amount" }, `${amount(name, used)} of ${amount(name, allocatable)}`
        + (reserved > 0 ? `, ${amount(name, reserved)} reserved` : "")));
  });
  return [h("h2", {}, "Utilisation"),
    h("p", {}, `${count(page.nodes, "node")}, ${page.usable_nodes.toLocaleString("en")} of them ready and not cordoned. `,
      h("a", { href: "#/map" }, "Map")),
    h("table", { class: "usage", "aria-label": "Utilisation by resource" }, h("tbody", {}, rows))];
}

function part(kind, number, of) {
  const element = h("div", { class: kind });
  element.style.width = `${Math.min(100, (100 * Math.max(0, number)) / of)}%`;
  return element;
}

function percent(number, of) {
  return `${Math.round((100 * number) / of)} %`;
}
