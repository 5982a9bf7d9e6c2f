// Where gangs run and how full the cluster is: a canvas with a cell for each node, by domain of a topology tree.

import { fill, h } from "./dom.js";
import { Rows } from "./events.js";
import { amount, count, naturally, nodeLink, resources, shortName } from "./format.js";
import { layout } from "./layout.js";

const STEPS = ["--cell-0", "--cell-1", "--cell-2", "--cell-3", "--cell-4"];

export function map(main) {
  const nodes = new Rows((row) => row.name);
  const trees = new Rows((row) => row.name);
  const canvas = h("canvas", { tabindex: "0", role: "img", "aria-describedby": "tip" });
  const tip = h("div", { id: "tip", role: "status", "aria-live": "polite", class: "tip" });
  const tree = h("select", { id: "tree", onchange: () => relayout() });
  const resource = h("select", { id: "resource", onchange: () => redraw() });
  const summary = h("p");
  const fits = h("div", { class: "fits" });
  const shape = { cpu: h("input", { id: "cpu", type: "number", min: "0", step: "0.5", value: "1", oninput: () => showFits() }),
    memory: h("input", { id: "memory", type: "number", min: "0", step: "1", value: "1", oninput: () => showFits() }),
    other: h("input", { id: "other", type: "number", min: "0", step: "1", value: "0", oninput: () => showFits() }) };
  const otherName = h("select", { id: "other-name", "aria-label": "Other resource", onchange: () => showFits() });
  let drawing = { cells: [], labels: [], width: 0, height: 0, byName: new Map() };
  let selected = null;
  let scheduled = 0;
  let mustLayout = false;
  let denied = false;

  fill(main, h("h1", {}, "Map"), h("div", { class: "controls" }, h("label", { for: "tree" }, "Tree"), tree,
    h("label", { for: "resource" }, "Colour by"), resource), summary, legend(),
  h("div", { class: "map" }, canvas), tip,
  h("section", {}, h("h2", {}, "Largest gang that fits"), h("div", { class: "controls" },
    h("label", { for: "cpu" }, "Each member: cpu"), shape.cpu, h("label", { for: "memory" }, "memory, GiB"), shape.memory,
    h("label", { for: "other" }, "and"), shape.other, otherName), fits));

  function schedule(layoutToo) {
    mustLayout ||= layoutToo;
    if (!scheduled) scheduled = requestAnimationFrame(frame);
  }

  function frame() {
    scheduled = 0;
    if (mustLayout) {
      mustLayout = false;
      offer(tree, [...trees.values()].sort((a, b) => b.default - a.default || naturally(a.name, b.name)).map((each) => each.name));
      const names = new Set();
      for (const node of nodes.values()) for (const name of Object.keys(node.allocatable)) names.add(name);
      offer(resource, resources([...names]).filter((name) => name !== "pods"));
      offer(otherName, resources([...names]).filter((name) => !["cpu", "memory", "pods"].includes(name)));
      shape.other.disabled = otherName.options.length === 0;
      drawing = layout([...nodes.values()], tree.value, main.clientWidth);
      const ratio = devicePixelRatio || 1;
      canvas.width = drawing.width * ratio;
      canvas.height = drawing.height * ratio;
      canvas.style.width = `${drawing.width}px`;
      canvas.style.height = `${drawing.height}px`;
    }
    draw();
    showFits();
  }

  function draw() {
    const began = performance.now();
    const context = canvas.getContext("2d");
    const ratio = devicePixelRatio || 1;
    const colours = palette();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, drawing.width, drawing.height);
    context.fillStyle = colours.text;
    for (const label of drawing.labels) {
      context.font = label.font;
      context.fillText(label.text, label.x, label.y, label.width);
    }
    for (const cell of drawing.cells) drawCell(context, cell, colours);
    const usable = [...nodes.values()].filter((node) => node.ready && !node.cordoned).length;
    fill(summary, denied ? "The map is for readers who may read pods in all namespaces, and nodes." :
      `${count(nodes.size, "node")}, ${usable.toLocaleString("en")} usable; ${count(drawing.domains ?? 0, "domain")}`);
    canvas.setAttribute("aria-label", `${nodes.size} nodes by free ${resource.value}; arrow keys choose a node, Enter opens it`);
    canvas.dataset.cells = String(drawing.cells.length);
    canvas.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  function drawCell(context, cell, colours) {
    const node = nodes.get(cell.name);
    if (node === undefined) return;
    const { x, y, size } = cell;
    const name = resource.value;
    if (!node.ready || node.cordoned) {
      context.fillStyle = colours.unusable;
      context.fillRect(x, y, size, size);
      context.strokeStyle = colours.text;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x + 1, y + 1);
      context.lineTo(x + size - 1, y + size - 1);
      context.stroke();
    } else if (!node.allocatable[name]) {
      context.fillStyle = colours.none;
      context.fillRect(x, y, size, size);
    } else {
      const share = Math.min(1, Math.max(0, node.free[name] / node.allocatable[name]));
      context.fillStyle = colours.steps[share === 0 ? 0 : Math.min(STEPS.length - 1, 1 + Math.floor(share * (STEPS.length - 1)))];
      context.fillRect(x, y, size, size);
    }
    context.strokeStyle = colours.edge;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1);
    const part = Math.max(2, Math.floor(size / 3));
    if (Object.keys(node.reserved).length) {
      context.fillStyle = colours.reserved;
      context.fillRect(x, y + size - part, size, part);
    }
    if (Object.keys(node.nominated).length) {
      context.fillStyle = colours.nominated;
      context.fillRect(x, y, size, part);
    }
    if (cell.name === selected) {
      context.strokeStyle = colours.text;
      context.lineWidth = 2;
      context.strokeRect(x - 1, y - 1, size + 2, size + 2);
    }
  }

  function showTip() {
    const node = nodes.get(selected);
    if (node === undefined) {
      fill(tip);
      return;
    }
    const path = node.paths[tree.value] ?? [];
    const lines = resources(Object.keys(node.allocatable)).slice(0, 6).map((name) =>
      `${name}: ${amount(name, node.free[name])} of ${amount(name, node.allocatable[name])} free`
      + (node.reserved[name] ? `, ${amount(name, node.reserved[name])} reserved` : "")
      + (node.nominated[name] ? `, ${amount(name, node.nominated[name])} nominated` : ""));
    const gangs = node.gangs.map(([id, pods]) => `${shortName(id)} (${pods})`);
    const others = node.gang_count - node.gangs.length;
    fill(tip, h("strong", {}, h("a", { href: nodeLink(node.name) }, [...path, node.name].join(" / "))),
      !node.ready || node.cordoned ? h("span", {}, node.ready ? " cordoned" : " not ready") : "",
      h("ul", { class: "plain" }, lines.map((line) => h("li", {}, line))),
      h("p", {}, node.pods ? `${count(node.pods, "pod")}: ${gangs.join(", ")}${others > 0 ? ` and ${others} more` : ""}` : "no pods"));
  }

  function select(name) {
    if (name === selected) return;
    selected = name;
    showTip();
    schedule(false);
  }

  function at(event) {
    const box = canvas.getBoundingClientRect();
    return drawing.find?.(event.clientX - box.left, event.clientY - box.top) ?? null;
  }

  canvas.addEventListener("mousemove", (event) => {
    const cell = at(event);
    if (cell) select(cell.name);
  });
  canvas.addEventListener("click", (event) => {
    const cell = at(event);
    if (cell) location.hash = nodeLink(cell.name);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: drawing.columns ?? 1, ArrowUp: -(drawing.columns ?? 1) }[event.key];
    if (event.key === "Enter" && selected) location.hash = nodeLink(selected);
    if (step === undefined || drawing.cells.length === 0) return;
    event.preventDefault();
    const now = drawing.cells.findIndex((cell) => cell.name === selected);
    const next = Math.min(drawing.cells.length - 1, Math.max(0, now < 0 ? 0 : now + step));
    select(drawing.cells[next].name);
  });

  function showFits() {
    const wanted = { cpu: Number(shape.cpu.value) * 1000, memory: Number(shape.memory.value) * 2 ** 30, pods: 1 };
    if (otherName.value) wanted[otherName.value] = Number(shape.other.value);
    const levels = trees.get(tree.value)?.levels ?? [];
    const best = largest(nodes.values(), wanted, tree.value);
    const rows = best.map(({ members, path, node }, depth) => h("li", {}, depth === 0 ? `${count(members, "member")} in the whole cluster`
      : `${count(members, "member")} in one ${levels[depth - 1] ?? "node"}: ${[...path, node].filter(Boolean).join(" / ")}`));
    fill(fits, h("ul", {}, rows), h("p", { class: "detail" }, "By what is neither used nor reserved on usable nodes. Taints, "
      + "affinity and other rules of pods may allow fewer; muster whatif asks placement."));
  }

  function relayout() {
    schedule(true);
  }

  function redraw() {
    schedule(false);
  }

  const observer = new ResizeObserver(relayout);
  observer.observe(main);
  return {
    title: "Map",
    parameters: "feeds=nodes,trees",
    on: {
      session: (session) => { denied = !session.sees_all; schedule(true); },
      trees: (change) => { trees.apply(change); schedule(true); },
      nodes: (change) => {
        const moved = change.reset || change.removed.length > 0
          || change.rows.some((row) => JSON.stringify(nodes.get(row.name)?.paths) !== JSON.stringify(row.paths));
        nodes.apply(change);
        if (change.rows.some((row) => row.name === selected)) showTip();
        schedule(moved);
      },
    },
    redraw,
    close: () => {
      observer.disconnect();
      cancelAnimationFrame(scheduled);
    },
  };
}

function offer(select, names) {
  if ([...select.options].map((option) => option.value).join("\n") === names.join("\n")) return;
  const chosen = select.value;
  fill(select, names.map((name) => h("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function palette() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  return { steps: STEPS.map(colour), text: colour("--text"), edge: colour("--muted"), unusable: colour("--unusable"), none: colour("--surface"),
    reserved: colour("--reserved"), nominated: colour("--nominated") };
}

function legend() {
  const entries = [["cell-0", "nothing free"], ["cell-1", "some"], ["cell-2", ""], ["cell-3", ""], ["cell-4", "all free"],
    ["key-reserved", "reserved"], ["key-nominated", "nominated"], ["key-unusable", "not usable"]];
  return h("ul", { class: "legend", "aria-label": "Legend" }, entries.map(([name, text]) => h("li", {}, h("span", { class: `key ${name}` }), text)));
}

// The largest number of members in the cluster, then in the best domain of each level, then on the best node.
function largest(nodes, wanted, tree) {
  const sums = [];
  for (const node of nodes) {
    if (!node.ready || node.cordoned) continue;
    let members = Infinity;
    for (const [name, number] of Object.entries(wanted)) {
      if (number > 0) members = Math.min(members, Math.max(0, Math.floor((node.free[name] ?? 0) / number)));
    }
    if (!Number.isFinite(members)) members = 0;
    const path = node.paths[tree] ?? [];
    add(sums, 0, "", members, [], "");
    path.forEach((_, depth) => add(sums, depth + 1, path.slice(0, depth + 1).join("\n"), members, path.slice(0, depth + 1), ""));
    add(sums, path.length + 1, `${path.join("\n")}\n${node.name}`, members, path, node.name);
  }
  return sums.map((domains) => [...domains.values()].reduce((best, each) => (each.members > best.members ? each : best)));
}

function add(sums, depth, key, members, path, node) {
  sums[depth] ??= new Map();
  const found = sums[depth].get(key);
  if (found) found.members += members;
  else sums[depth].set(key, { members, path, node });
}
