"""Computes, in a browser, the contrast of every visible text with what is behind it (WCAG 2.2, 1.4.3)."""

from typing import Final

CONTRAST: Final = """
(() => {
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const parsed = (text) => text.match(/[0-9.]+/g).map(Number);
  const ratio = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parsed(getComputedStyle(each).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const found = { checked: 0, low: [] };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("noscript, canvas")) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const contrast = ratio(parsed(style.color), behind(element));
    found.checked += 1;
    if (contrast < (large ? 3 : 4.5)) found.low.push(`${contrast.toFixed(2)}: ${walker.currentNode.data.slice(0, 40)}`);
  }
  return found;
})()
"""
"""An expression: {checked: number of texts, low: those with too little contrast}."""

DRAWN: Final = """
(() => {
  const style = getComputedStyle(document.documentElement);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    const [r, g, b] = [0, 2, 4].map((at) => linear(parseInt(hex.slice(at, at + 2), 16) / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return PAIRS.map(([a, b]) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return [a, b, (high + 0.05) / (low + 0.05)];
  }).filter(([, , contrast]) => contrast < 3);
})()
"""
"""An expression: those of the PAIRS of colours of drawings whose contrast is below 3 (WCAG 2.2, 1.4.11)."""
