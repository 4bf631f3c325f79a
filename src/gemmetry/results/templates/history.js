"use strict";
// The trends of a history: a filtered list with small pictures, and one series in detail. All texts
// are set as text, so that no name can become markup.

(function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const get = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const STEP = 40;
  let limit = STEP;

  function element(tag, attributes = {}, text = "") {
    const drawn = ["svg", "path", "line", "circle", "text", "title", "g"].includes(tag);
    const made = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    return made;
  }

  function formatNs(value) {
    const [unit, scale] = value >= 1e9 ? ["s", 1e9] : value >= 1e6 ? ["ms", 1e6] : value >= 1e3 ? ["µs", 1e3] : ["ns", 1];
    return `${Number((value / scale).toPrecision(4))} ${unit}`;
  }

  function path(points) {
    return points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  }

  function spread(values) {
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const margin = (high - low) * 0.06 || Math.abs(high) * 0.01 || 1;
    return [low - margin, high + margin];
  }

  function small(series) {
    const picture = element("svg", { viewBox: "0 0 220 28", preserveAspectRatio: "none", "aria-hidden": "true" });
    if (series.trend.length) {
      const [low, high] = spread(series.trend);
      const wide = Math.max(1, series.trend.length - 1);
      const points = series.trend.map((ns, place) => [(220 * place) / wide, 27 - (26 * (ns - low)) / (high - low)]);
      picture.append(element("path", { d: path(points), class: "line" }));
    }
    return picture;
  }

  // The points of a series come from a script next to this page: a page that was opened as a file
  // may load scripts, but no other files.
  const waiting = new Map();
  const files = new Map();
  window.gemmetryPoints = (number, points) => { files.set(number, points); (waiting.get(number) || []).forEach((then) => then(points)); waiting.delete(number); };
  function withPoints(place, then) {
    const number = Math.floor(place / data.perFile);
    const pick = (points) => then(points[place % data.perFile]);
    if (files.has(number)) { pick(files.get(number)); return; }
    if (waiting.has(number)) { waiting.get(number).push(pick); return; }
    waiting.set(number, [pick]);
    const script = element("script", { src: `points/${number}.js` });
    script.addEventListener("error", () => { get("detail").append(element("p", { class: "warning" }, `points/${number}.js cannot be loaded; it belongs next to this page.`)); waiting.delete(number); });
    document.head.append(script);
  }

  // The least of 1, 2, 5, 10, 20 ... that is not less than `least`.
  function roundStep(least) {
    const power = 10 ** Math.floor(Math.log10(least));
    return [1, 2, 5, 10].map((one) => one * power).find((one) => one >= least * 0.999);
  }

  function large(series, points) {
    const device = data.devices.find((one) => one.name === series.device) || data.devices[0];
    const [width, height, left, bottom, top] = [Math.max(320, Math.min(1300, get("detail").clientWidth - 34)), 300, 76, 34, 16];
    const picture = element("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Times of ${series.name}` });
    const count = Math.max(2, device.runs.length);
    const lows = points.ns.map((ns, place) => ns * (1 + points.low[place] / 1e4));
    const highs = points.ns.map((ns, place) => ns * (1 + points.high[place] / 1e4));
    const [low, high] = spread([...lows, ...highs]);
    const x = (run) => left + ((width - left - 12) * run) / (count - 1);
    const y = (ns) => top + (height - top - bottom) * (1 - (ns - low) / (high - low));
    const step = roundStep((high - low) / 4);
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) {
      picture.append(element("line", { class: "grid", x1: left, x2: width - 12, y1: y(value), y2: y(value) }));
      picture.append(element("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, formatNs(value)));
    }
    const labels = width < 700 ? 3 : 6;
    for (let place = 0; place < labels; place += 1) {
      const run = Math.round(((device.runs.length - 1) * place) / (labels - 1));
      const anchor = place === 0 ? "start" : place === labels - 1 ? "end" : "middle";
      picture.append(element("text", { x: x(run), y: height - 10, "text-anchor": anchor }, device.runs[run][0].slice(0, 10)));
    }
    const up = points.runs.map((run, place) => [x(run), y(highs[place])]);
    const down = points.runs.map((run, place) => [x(run), y(lows[place])]).reverse();
    if (up.length > 1) picture.append(element("path", { d: `${path([...up, ...down])}Z`, class: "band" }));
    picture.append(element("path", { d: path(points.runs.map((run, place) => [x(run), y(points.ns[place])])), class: "line" }));
    points.runs.forEach((run, place) => {
      const [time, commit, label] = device.runs[run];
      const dot = element("circle", { class: "dot", cx: x(run), cy: y(points.ns[place]), r: count > 150 ? 1.6 : 2.6 });
      dot.append(element("title", {}, [formatNs(points.ns[place]), time, commit, label].filter(Boolean).join("\n")));
      picture.append(dot);
    });
    for (const change of series.changes) {
      const at = x(change.run - 0.5);
      picture.append(element("line", { class: `mark ${change.cause}`, x1: at, x2: at, y1: top, y2: height - bottom }));
      const right = at > width - 90;
      picture.append(element("text", { x: at + (right ? -4 : 4), y: top - 4, "text-anchor": right ? "end" : "start" }, change.cause));
    }
    return picture;
  }

  function show(place) {
    const [series, detail] = [data.series[place], get("detail")];
    detail.hidden = false;
    detail.replaceChildren(element("h3", {}, series.name));
    const facts = [data.devices.length > 1 ? series.device : "", series.reference ? `compared with ${series.reference}` : ""];
    detail.append(element("p", { class: "quiet" }, facts.filter(Boolean).join(" · ")));
    withPoints(place, (points) => {
      if (detail.firstChild.textContent !== series.name) return;
      detail.querySelector("svg")?.remove();
      detail.insertBefore(large(series, points), detail.children[2] || null);
    });
    const list = element("ul");
    const device = data.devices.find((one) => one.name === series.device) || data.devices[0];
    for (const change of series.changes) {
      const item = element("li", {}, `${device.runs[change.run][0].slice(0, 10)} ${change.title}: ${change.reasons.join("; ")}`);
      for (const remark of change.remarks) item.append(element("br"), element("span", { class: "remark" }, remark));
      list.append(item);
    }
    detail.append(series.changes.length ? list : element("p", { class: "quiet" }, "No change was found."));
  }

  function draw() {
    const words = get("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (series) => words.every((word) => `${series.name} ${series.device}`.toLowerCase().includes(word))
      && (!get("changed").checked || series.changes.some((change) => change.cause !== "noise"));
    const chosen = data.series.map((series, place) => [series, place]).filter(([series]) => fits(series));
    get("rows").replaceChildren(...chosen.slice(0, limit).map(([series, place]) => {
      const row = element("button", { class: "trend", type: "button" });
      row.append(element("span", { class: "name" }, series.name), element("span", { class: "time" }, series.latest), small(series));
      row.addEventListener("click", () => { show(place); get("detail").scrollIntoView({ block: "nearest" }); });
      return row;
    }));
    get("count").textContent = `${chosen.length} of ${data.series.length}`;
    get("more").hidden = chosen.length <= limit;
  }

  get("filter").addEventListener("input", () => { limit = STEP; draw(); });
  get("changed").addEventListener("change", () => { limit = STEP; draw(); });
  get("more").addEventListener("click", () => { limit += STEP; draw(); });
  for (const link of document.querySelectorAll("a[data-series]")) {
    link.addEventListener("click", () => {
      const place = data.series.findIndex((one) => one.name === link.dataset.series && one.device === link.dataset.device);
      if (place >= 0) show(place);
    });
  }
  draw();
  const first = data.series.findIndex((series) => series.changes.some((change) => change.cause === "kernel"));
  if (data.series.length) show(Math.max(0, first));
  document.documentElement.dataset.ready = "true";
})();
