"use strict";
// Text for people; the same rules as the console's.

function threeDigits(value) {
  return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

// Digits after the point of all cells of a column: three digits of the least value, unless that
// takes more than one digit beyond what the median needs.
function columnDecimals(values, most = 3) {
  const sizes = values.filter((v) => v).map(Math.abs).sort((a, b) => a - b);
  if (!sizes.length) return 0;
  const [least, middle] = [sizes[0], sizes[Math.floor(sizes.length / 2)]].map((v) => 2 - Math.floor(Math.log10(v)));
  return Math.max(0, Math.min(most, least, Math.max(0, middle) + 1));
}

// Three digits, zeros at the end too, so that the cells of a column are alike.
const evenDigits = (value) =>
  Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(columnDecimals([Number(value.toPrecision(3))], 2));

function scaled(value, unit, steps, digits = threeDigits) {
  for (const [name, factor] of steps) {
    if (Math.abs(value) >= factor) return `${digits(value / factor)} ${name}`;
  }
  return `${digits(value)} ${unit}`;
}

const formatNs = (v, digits = threeDigits) => scaled(v, "ns", [["s", 1e9], ["ms", 1e6], ["µs", 1e3]], digits);
const formatGflops = (v) => scaled(v, "GFLOP/s", [["PFLOP/s", 1e6], ["TFLOP/s", 1e3]]);
const formatBytes = (v) => scaled(v, "B", [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]);
const formatPercent = (v) => `${threeDigits(v * 100)} %`;
const formatRatio = (v) => `${v >= 100 ? v.toFixed(0) : v.toFixed(2)}×`;

// A stored value with its column's unit.
function formatValue(value, column) {
  if (Array.isArray(value)) return value.join(", ");
  if (value !== null && typeof value === "object") {
    return Object.entries(value).map(([k, v]) => `${k}: ${v}`).join(", ");
  }
  if (typeof value !== "number") return String(value);
  if (column.unit === "ns") return formatNs(value);
  if (column.unit === "B") return formatBytes(value);
  if (column.name === "gflops") return formatGflops(value);
  if (column.name.endsWith("_fraction") || column.name.endsWith("_share")) return formatPercent(value);
  const number = Number.isInteger(value) ? value.toLocaleString("en") : threeDigits(value);
  return column.unit ? `${number} ${column.unit}` : number;
}

// Everything that came from names or messages enters the page as a text node, never as markup.
function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function fillSelect(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => {
    const option = element("option", { value }, text);
    option.selected = value === chosen;
    return option;
  }));
}

// A name in lines of at most `width` characters, broken after "_", "×" and spaces where possible,
// so that names that differ in one place only can still be distinguished.
function brokenText(text, width) {
  const lines = [""];
  for (const part of text.split(/(?<=[_×\s])/)) {
    if (lines.at(-1) && (lines.at(-1) + part).trimEnd().length > width) lines.push("");
    let rest = part;
    for (; rest.length > width && !lines.at(-1); rest = rest.slice(width)) lines.splice(-1, 0, rest.slice(0, width));
    lines[lines.length - 1] += rest;
  }
  return lines.map((line) => line.trimEnd()).filter(Boolean);
}

// A name whose words (between "_") stay whole where there is room for the longest of them.
const breakable = (text) =>
  element("span", { class: "words" }, ...text.split(/(?<=_)/).flatMap((part, i) => (i ? [element("wbr"), part] : [part])));
