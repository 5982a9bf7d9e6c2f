// One node: what it has, what is reserved and nominated there, and its pods.

import { fill, h, Table } from "./dom.js";
import { amount, amounts, count, gangCell, resources } from "./format.js";

const PODS = [{ title: "Pod", class: "name" }, { title: "Gang", class: "name" }, { title: "Phase" }, { title: "Requests" },
  { title: "Runs for", class: "number" }];
const AMOUNTS = ["Resource", "Allocatable", "Used", "Reserved", "Nominated", "Free"].map((title, at) => ({ title, class: at ? "number" : "" }));

export function node(main, name) {
  const state = h("p");
  const capacity = new Table(AMOUNTS, "Capacity");
  const pods = new Table(PODS, "Pods");
  const podsTitle = h("h2");
  const labels = h("ul", { class: "plain terms" });
  const rest = h("div", { hidden: true }, capacity.element, podsTitle, pods.element,
    h("details", {}, h("summary", {}, "Labels"), labels));
  fill(main, h("h1", {}, name), state, rest);
  return {
    title: name,
    parameters: `node=${encodeURIComponent(name)}`,
    on: {
      node: (page) => {
        rest.hidden = page.gone !== undefined;
        if (page.gone !== undefined) {
          fill(state, "There is no such node, or you may not read nodes.");
          return;
        }
        const where = Object.entries(page.paths).filter(([, path]) => path.length).map(([tree, path]) => `${path.join(" / ")} (tree ${tree})`);
        fill(state, `${page.ready ? "ready" : "not ready"}${page.cordoned ? ", cordoned" : ""}`
          + (page.taints.length ? `, taints: ${page.taints.join(", ")}` : "") + (where.length ? `, in ${where.join(", ")}` : ""));
        capacity.update(resources(Object.keys(page.allocatable)).map((each) => {
          const [has, used, reserved, nominated] = ["allocatable", "used", "reserved", "nominated"].map((kind) => page[kind][each] ?? 0);
          return { key: each, cells: [each, ...[has, used, reserved, nominated, has - used - reserved].map((number) => amount(each, number))] };
        }));
        fill(podsTitle, count(page.pod_count, "pod") + (page.pods.length < page.pod_count ? ` (the first ${page.pods.length} are shown)` : ""));
        pods.update(page.pods.map((pod) => ({ key: pod.pod, cells: [pod.pod, pod.ours ? gangCell(pod.gang) : "", pod.phase,
          amounts(pod.requests), { since: pod.started }] })));
        fill(labels, Object.entries(page.labels).map(([key, value]) => h("li", {}, `${key}=${value}`)));
      },
    },
  };
}
