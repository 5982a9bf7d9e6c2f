// Positions of nodes on the map: blocks of cells, one for each domain of the lowest level, in rows that fill the width.

import { naturally } from "./format.js";

const GAP = 2;
const MARGIN = 12;
const LABEL = 16;
const OUTSIDE = "(outside of the tree)";

export function layout(nodes, tree, width) {
  const blocks = blocksOf(nodes, tree);
  const size = nodes.length > 2000 ? 8 : nodes.length > 400 ? 12 : 20;
  const pitch = size + GAP;
  const cells = [];
  const labels = [];
  const boxes = [];
  let [x, y, rowHeight, above] = [0, 0, 0, null];
  for (const block of blocks) {
    const upper = block.path.slice(0, -1).join(" / ");
    const columns = Math.max(1, Math.min(Math.floor((width - GAP) / pitch), Math.ceil(Math.sqrt(block.nodes.length * 1.6))));
    const blockWidth = Math.max(64, columns * pitch);
    if (upper !== above) {
      y += rowHeight;
      [x, rowHeight] = [0, 0];
    }
    if (upper !== above && upper) {
      labels.push({ text: upper, x: 1, y: y + LABEL - 3, width, font: "bold 13px sans-serif" });
      y += LABEL + 4;
    } else if (x > 0 && x + blockWidth > width) {
      y += rowHeight;
      [x, rowHeight] = [0, 0];
    }
    above = upper;
    labels.push({ text: block.path.at(-1) ?? OUTSIDE, x: x + 1, y: y + LABEL - 4, width: blockWidth, font: "12px sans-serif" });
    const first = cells.length;
    block.nodes.forEach((name, at) => cells.push({
      name, x: x + 1 + (at % columns) * pitch, y: y + LABEL + Math.floor(at / columns) * pitch, size,
    }));
    const height = LABEL + Math.ceil(block.nodes.length / columns) * pitch;
    boxes.push({ x, y, width: columns * pitch, height, first, last: cells.length });
    x += blockWidth + MARGIN;
    rowHeight = Math.max(rowHeight, height + MARGIN);
  }
  const columns = boxes.length ? Math.max(1, Math.floor(boxes[0].width / pitch)) : 1;
  return { cells, labels, columns, width, height: Math.max(1, y + rowHeight), domains: blocks.length, find: finder(boxes, cells) };
}

function blocksOf(nodes, tree) {
  const blocks = new Map();
  for (const node of nodes) {
    const path = node.paths[tree];
    const key = path === undefined ? null : path.join("\n");
    if (!blocks.has(key)) blocks.set(key, { path: path?.length ? path : [path === undefined ? OUTSIDE : "all nodes"], nodes: [], outside: path === undefined });
    blocks.get(key).nodes.push(node.name);
  }
  const sorted = [...blocks.values()].sort((a, b) => a.outside - b.outside || naturally(a.path.join("/"), b.path.join("/")));
  for (const block of sorted) block.nodes.sort(naturally);
  return sorted;
}

function finder(boxes, cells) {
  return (x, y) => {
    const box = boxes.find((each) => x >= each.x && x < each.x + each.width && y >= each.y && y < each.y + each.height);
    if (!box) return null;
    for (let at = box.first; at < box.last; at += 1) {
      const cell = cells[at];
      if (x >= cell.x && x < cell.x + cell.size && y >= cell.y && y < cell.y + cell.size) return cell;
    }
    return null;
  };
}
