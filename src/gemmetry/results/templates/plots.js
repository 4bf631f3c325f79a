"use strict";
// The plots, drawn by plotly from the neutral figures in the page's data.

const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon", "x"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "8px 3px", "2px 6px"];

// Plotly reads a little markup in texts; names must stay names.
const escapeText = (text) =>
  String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// Why the measurement of a provider's best dispatch, or of its baseline, is less trustworthy.
function markText(best, whose = "") {
  if (!best.marks.length) return "";
  return `<br>!${whose ? ` ${escapeText(whose)}:` : ""} ${escapeText(best.marks.join(", "))}`;
}

// Lines of a tick's label.
const tickText = (lines) => lines.map(escapeText).join("<br>");

const OPERATIONS_SHOWN = 40; // of one plot; a figure with more is cut into parts

// A figure of speeds as figures of at most 40 operations each.
function inParts(figure) {
  const count = figure.operations.length;
  const parts = [];
  for (let start = 0; start < count; start += OPERATIONS_SHOWN) {
    const end = Math.min(start + OPERATIONS_SHOWN, count);
    const range = count > OPERATIONS_SHOWN ? `, operations ${start + 1} to ${end} of ${count}` : "";
    parts.push({ ...figure, label: figure.label + range, operations: figure.operations.slice(start, end),
      series: figure.series.map((series) => ({ ...series, best: series.best.slice(start, end) })),
      reference: figure.reference.slice(start, end) });
  }
  return parts;
}

class Plots {
  constructor(data) {
    this.figures = { ...data.figures, speed: data.figures.speed.flatMap(inParts) };
    this.baseline = data.baseline;
    this.colours = data.palette;
    this.scale = data.palette.scale.map((colour, i, all) => [i / (all.length - 1), colour]);
    this.providers = [...new Set(data.derived.map((_, i) => data.rows[i][1]))].sort();
    this.baselines = [...new Set([...(data.baseline ? [data.baseline] : []), ...this.providers])];
    this.theme = this.readTheme();
  }

  readTheme() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), quiet: get("--quiet"), grid: get("--grid"), line: get("--line"), panel: get("--panel") };
  }

  color(provider) {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
    const palette = this.colours[dark ? "dark" : "light"];
    return palette[this.colours.places[provider] % palette.length];
  }

  // Where colours repeat, symbols differ.
  symbol(provider) {
    const place = this.colours.places[provider];
    return SYMBOLS[(place + Math.floor(place / this.colours.light.length)) % SYMBOLS.length];
  }

  // The texts of a heat map's cells, in the colours that are legible on them: one transparent heat
  // map for each colour, because all texts of a heat map have one colour.
  cellTexts(trace, inks) {
    const clear = [[0, "rgba(0,0,0,0)"], [1, "rgba(0,0,0,0)"]];
    return [...new Set(inks.flat().filter(Boolean))].map((ink) => ({
      type: "heatmap", x: trace.x, y: trace.y, z: trace.z, zmin: 0, zmax: 1, xgap: 1, ygap: 1,
      text: trace.text.map((row, i) => row.map((text, j) => (inks[i][j] === ink ? text : ""))),
      texttemplate: "%{text}", textfont: { color: ink }, colorscale: clear, showscale: false, hoverinfo: "skip" }));
  }

  axis(title, more) {
    const { grid, line, quiet } = this.theme;
    return { title: { text: title }, gridcolor: grid, linecolor: line, zerolinecolor: line, tickcolor: line,
      color: quiet, automargin: true, ...more };
  }

  // Ticks of a logarithmic axis as whole numbers, as many as there is room for.
  logAxis(title, values, more) {
    const positive = values.filter((v) => v > 0);
    let [low, high] = [Math.min(...positive), Math.max(...positive)];
    if (high < low * 1.3) [low, high] = [low / 2, high * 2]; // a lone point still needs an axis
    const decades = Math.log10(high / low);
    const fine = innerWidth < 640 ? [1, 1.5, 2, 3, 5, 7] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
    const steps = decades > 2.5 ? [1] : decades > 0.6 ? [1, 2, 5] : fine;
    const ticks = [];
    for (let e = Math.floor(Math.log10(low)) - 1; e <= Math.ceil(Math.log10(high)) + 1; e += 1) {
      ticks.push(...steps.map((step) => Number((step * 10 ** e).toPrecision(3))));
    }
    const room = decades * 0.06;
    return this.axis(title, { type: "log", tickvals: ticks, ticktext: ticks.map((v) => v.toLocaleString("en")),
      tickangle: 0, range: [Math.log10(low) - room, Math.log10(high) + room], ...more });
  }

  layout(more) {
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: this.theme.ink, size: 12, family: "system-ui, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif" },
      margin: { l: 60, r: 16, t: 36, b: 48 }, hovermode: "closest",
      hoverlabel: { align: "left" }, modebar: { bgcolor: "rgba(0,0,0,0)", color: this.theme.quiet, activecolor: this.theme.ink },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
      ...more,
    };
  }

  plot(target, traces, layout) {
    const config = { displaylogo: false, responsive: true, modeBarButtons: [["toImage", "resetScale2d"]] };
    target.classList.remove("empty");
    Plotly.react(target, traces, layout, config);
  }

  empty(target, text) {
    Plotly.purge(target);
    target.classList.add("empty");
    target.textContent = text;
  }

  drawAll() {
    this.theme = this.readTheme();
    this.drawRooflines();
    this.drawSpeed();
    if (this.figures.grid.length) this.drawGrid();
    if (this.figures.heat.length) this.drawHeat();
    this.drawBaseline();
    this.drawSamples();
    for (const bar of document.querySelectorAll("[data-provider]")) {
      bar.style.background = this.color(bar.dataset.provider);
    }
  }

  drawRooflines() {
    const home = document.getElementById("plots-roofline");
    const figures = this.figures.roofline;
    if (!figures.length) { home.textContent = "Nothing was measured."; home.classList.add("empty"); return; }
    while (home.children.length < figures.length) {
      const { label, thinned } = figures[home.children.length];
      const title = element("h3", {}, thinned ? `${label}, each provider's best of each operation` : label);
      home.append(element("div", { class: "plot" }, title, element("div", { style: "height: 340px" })));
    }
    figures.forEach((figure, index) => this.drawRoofline(home.children[index].lastElementChild, figure));
  }

  drawRoofline(target, figure) {
    const traces = [];
    if (figure.roof.length) {
      traces.push({ x: figure.roof.map((p) => p[0]), y: figure.roof.map((p) => p[1]), mode: "lines", name: "roof",
        line: { color: this.theme.quiet, width: 2 }, hovertemplate: `${escapeText(figure.source)}<br>%{y:.4s} GFLOP/s<extra></extra>` });
    }
    for (const provider of this.providers) {
      const points = figure.points.filter((p) => p.provider === provider);
      if (!points.length) continue;
      traces.push({ x: points.map((p) => p.x), y: points.map((p) => p.y), mode: "markers", name: escapeText(provider),
        marker: { color: this.color(provider), symbol: this.symbol(provider), size: 9, opacity: 0.8,
          line: { color: this.theme.panel, width: 1 } },
        text: points.map((p) => `<b>${escapeText(p.provider)}</b> ${escapeText(p.configuration)}<br>${escapeText(p.shape)}<br>` +
          `${formatGflops(p.y)}${p.share ? `, ${formatPercent(p.share)} of the roofline` : ""}<br>${escapeText(p.verification)}`),
        hovertemplate: "%{text}<extra></extra>" });
    }
    this.plot(target, traces, this.layout({
      xaxis: this.logAxis("FLOP / byte", [...figure.points.map((p) => p.x), ...figure.roof.map((p) => p[0])]),
      yaxis: this.logAxis("GFLOP/s", [...figure.points.map((p) => p.y), ...figure.roof.map((p) => p[1])]),
    }));
  }

  figureOf(list, id) { return list[Number(document.getElementById(id).value) || 0]; }

  // Bars need room: a row for each provider of each operation.
  barHeight(figure) { return Math.max(240, 110 + figure.operations.length * (figure.series.length * 15 + 14)); }

  // Operations by number, the first on top, with their names as the ticks' texts.
  categories(figure) {
    const count = figure.operations.length;
    const narrow = innerWidth < 640;
    const labels = figure.operations.map((text) => brokenText(text, narrow ? 16 : 60));
    return { range: [count - 0.4, -0.6], tickvals: figure.operations.map((_, i) => i),
      ticktext: labels.map(tickText), zeroline: false,
      tickfont: { size: narrow ? 10 : 12 } };
  }

  drawSpeed() {
    const target = document.getElementById("plot-speed");
    const figure = this.figureOf(this.figures.speed, "speed-select");
    if (!figure) { this.empty(target, "Nothing was measured."); return; }
    const positions = figure.operations.map((_, i) => i);
    const traces = figure.series.map((series) => {
      const best = series.best;
      return { type: "bar", orientation: "h", name: escapeText(series.provider), y: positions,
        x: best.map((b) => (b ? b.y : null)), marker: { color: this.color(series.provider) },
        error_x: { type: "data", symmetric: false, array: best.map((b) => (b && b.high !== null ? b.high - b.y : NaN)),
          arrayminus: best.map((b) => (b && b.low !== null ? b.y - b.low : NaN)), color: this.theme.ink, thickness: 1.2, width: 3 },
        text: best.map((b, i) => (b ? `<b>${escapeText(series.provider)}</b> ${escapeText(b.configuration)}<br>` +
          `${escapeText(figure.operations[i])}<br>${formatGflops(b.y)} (${formatNs(b.ns)})${markText(b)}` : "")),
        textposition: "none", hovertemplate: "%{text}<extra></extra>" };
    });
    target.style.height = `${this.barHeight(figure)}px`;
    this.plot(target, traces, this.layout({ barmode: "group", bargap: 0.25,
      xaxis: this.axis("GFLOP/s, more is better", { rangemode: "tozero", exponentformat: "SI" }),
      yaxis: this.axis("", this.categories(figure)) }));
  }

  drawGrid() {
    const target = document.getElementById("plot-grid");
    const figure = this.figureOf(this.figures.grid, "grid-select");
    const note = document.getElementById("grid-note");
    note.textContent = figure.hidden ? `${figure.hidden} slower configurations are left out here; the table lists them.` : "";
    const narrow = target.clientWidth < 800;
    const labels = figure.rows.map((text) => brokenText(text, narrow ? 20 : 48));
    const lines = Math.max(...labels.map((label) => label.length));
    const crowded = figure.columns.length > (narrow ? 8 : 16);
    const tilted = figure.columns.length * Math.max(...figure.columns.map((c) => c.length)) > (narrow ? 40 : 110);
    target.style.height = `${Math.max(220, (tilted ? 200 : 140) + figure.rows.length * Math.max(26, 14 * lines + 6))}px`;
    const cells = { type: "heatmap", x: figure.columns.map((_, i) => i), y: figure.rows.map((_, i) => i), z: figure.share,
      text: figure.share.map((row) => row.map((v) => (v === null ? "" : `${(v * 100).toFixed(0)} %`))),
      customdata: figure.names.map((name, i) => figure.columns.map((column, j) =>
        `<b>${escapeText(name)}</b><br>${escapeText(column)}<br>${figure.ns[i][j] === null ? "" : formatNs(figure.ns[i][j])}`)),
      zmin: 0, zmax: 1, colorscale: this.scale, xgap: 1, ygap: 1, hoverongaps: false,
      colorbar: { title: { text: narrow ? "" : "of the fastest", side: "right" }, tickformat: ".0%", thickness: 12, outlinewidth: 0 },
      hovertemplate: "%{customdata}<br>%{z:.1%} of the fastest<extra></extra>" };
    this.plot(target, [cells, ...(crowded ? [] : this.cellTexts(cells, figure.ink))], this.layout({ margin: { l: 60, r: 16, t: 40, b: 48 },
      xaxis: this.axis("", { showgrid: false, zeroline: false, tickvals: figure.columns.map((_, i) => i),
        ticktext: figure.columns.map(escapeText), tickangle: tilted ? -35 : 0 }),
      yaxis: this.axis("", { showgrid: false, zeroline: false, autorange: "reversed", tickvals: figure.rows.map((_, i) => i),
        tickfont: { size: narrow ? 11 : 12 }, ticktext: labels.map(tickText) }) }));
  }

  drawHeat() {
    const target = document.getElementById("plot-heat");
    const figure = this.figureOf(this.figures.heat, "heat-select");
    const decimals = columnDecimals(figure.gflops.flat().filter((v) => v !== null));
    const cellText = figure.gflops.map((row) => row.map((v) => (v === null ? "" : v.toLocaleString("en",
      { minimumFractionDigits: decimals, maximumFractionDigits: decimals }))));
    target.style.height = `${Math.min(760, Math.max(260, 130 + figure.m.length * 40))}px`;
    const crowded = figure.m.length * figure.n.length > 400;
    const cells = { type: "heatmap", x: figure.n.map(String), y: figure.m.map(String), z: figure.gflops,
      text: cellText, customdata: figure.best.map((row) => row.map(escapeText)),
      colorscale: this.scale, xgap: 1, ygap: 1, hoverongaps: false, colorbar: { title: { text: "GFLOP/s", side: "right" }, thickness: 14, outlinewidth: 0 },
      hovertemplate: "M %{y}, N %{x}<br>%{z:.4s} GFLOP/s<br>%{customdata}<extra></extra>" };
    this.plot(target, [cells, ...(crowded ? [] : this.cellTexts(cells, figure.ink))],
    this.layout({ margin: { l: 60, r: 16, t: 16, b: 48 },
      xaxis: this.axis("N", { type: "category", showgrid: false }), yaxis: this.axis("M", { type: "category", showgrid: false }) }));
  }

  drawBaseline() {
    const target = document.getElementById("plot-baseline");
    if (!target) return;
    const baseline = document.getElementById("baseline-select").value;
    const figure = this.figureOf(this.figures.speed, "baseline-dtypes");
    const series = figure && figure.series.find((s) => s.provider === baseline);
    const reference = series ? series.best : figure && baseline === this.baseline ? figure.reference : [];
    if (!reference.some(Boolean)) { this.empty(target, "The baseline measured nothing of these types."); return; }
    const others = figure.series.filter((s) => s.provider !== baseline);
    // One above the other, so that markers of the same ratio do not hide each other.
    const place = (index) => (0.5 / others.length) * (index - (others.length - 1) / 2);
    const traces = others.map((series, index) => {
      const ratios = series.best.map((b, i) => (b && reference[i] ? reference[i].ns / b.ns : null));
      return { type: "scatter", mode: "markers", name: escapeText(series.provider), x: ratios, y: figure.operations.map((_, i) => i + place(index)),
        marker: { color: this.color(series.provider), symbol: this.symbol(series.provider), size: 10, line: { color: this.theme.panel, width: 1 } },
        text: ratios.map((r, i) => (r ? `<b>${escapeText(series.provider)}</b> ${escapeText(series.best[i].configuration)}<br>` +
          `${escapeText(figure.operations[i])}<br>${formatRatio(r)} the speed of ${escapeText(baseline)}` +
          `${markText(series.best[i])}${markText(reference[i], baseline)}` : "")),
        hovertemplate: "%{text}<extra></extra>" };
    });
    target.style.height = `${Math.max(220, 120 + figure.operations.length * Math.max(28, 18 * others.length))}px`;
    this.plot(target, traces, this.layout({
      xaxis: this.logAxis(`× ${escapeText(baseline)}, right is faster`, [0.9, 1.1, ...traces.flatMap((t) => t.x)]),
      yaxis: this.axis("", this.categories(figure)),
      shapes: [{ type: "line", x0: 1, x1: 1, yref: "paper", y0: 0, y1: 1, line: { color: this.theme.quiet, width: 1.5, dash: "dot" } }] }));
  }

  // Of one operation: each provider's fastest dispatch, then the next fastest, at most eight.
  chosenSamples(operation) {
    const all = this.figures.samples.filter((s) => s.operation === operation).sort((a, b) => a.median - b.median);
    const firsts = all.filter((s, i) => all.findIndex((other) => other.provider === s.provider) === i);
    const rest = all.filter((s) => !firsts.includes(s));
    return [...firsts, ...rest].slice(0, 8).sort((a, b) => a.median - b.median);
  }

  drawSamples() {
    const target = document.getElementById("plot-samples");
    const operation = document.getElementById("samples-select").value;
    const chosen = this.chosenSamples(operation);
    if (!chosen.length) { this.empty(target, "No raw samples are stored."); return; }
    const largest = Math.max(...chosen.map((s) => s.median));
    const [unit, factor] = largest >= 1e9 ? ["s", 1e9] : largest >= 1e6 ? ["ms", 1e6] : largest >= 1e3 ? ["µs", 1e3] : ["ns", 1];
    const traces = chosen.flatMap((samples, index) => {
      const short = samples.name.replace(`${samples.operation}_`, "");
      const values = samples.ns.map((ns) => ns / factor);
      const ordered = [...values].sort((a, b) => a - b);
      // A provider has its colour in every plot; its configurations differ in symbol and dashes.
      const color = this.color(samples.provider);
      const place = chosen.slice(0, index).filter((s) => s.provider === samples.provider).length;
      const shared = { name: escapeText(short), legendgroup: samples.name };
      return [
        { ...shared, type: "scatter", mode: "markers", y: values, x: values.map((_, i) => i + 1), showlegend: false,
          marker: { color, size: 5, opacity: 0.75, symbol: SYMBOLS[place % SYMBOLS.length] },
          hovertemplate: `${escapeText(short)}<br>%{y:.4g} ${unit}, sample %{x}<extra></extra>` },
        { ...shared, type: "scatter", mode: "lines", x: ordered, y: ordered.map((_, i) => (i + 1) / ordered.length), xaxis: "x2", yaxis: "y2",
          line: { color, width: 2, shape: "hv", dash: DASHES[place % DASHES.length] }, hovertemplate: `${escapeText(short)}<br>%{y:.0%} take at most %{x:.4g} ${unit}<extra></extra>` },
      ];
    });
    // A logarithmic axis keeps distant outliers visible.
    const durations = chosen.flatMap((s) => s.ns.map((ns) => ns / factor));
    const [low, high] = durations.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, 0]);
    const title = `duration of a launch, ${unit}`;
    const time = () => (high > 4 * low ? this.logAxis(title, [low, high]) : this.axis(title));
    const narrow = target.clientWidth < 700;
    target.style.height = `${(narrow ? 640 : 380) + 20 * chosen.length}px`;
    this.plot(target, traces, this.layout({
      grid: narrow ? { rows: 2, columns: 1, pattern: "independent" } : { rows: 1, columns: 2, pattern: "independent" },
      xaxis: this.axis("sample, in the order taken", { rangemode: "tozero" }), yaxis: time(),
      xaxis2: time(), yaxis2: this.axis("share of samples at or below", { tickformat: ".0%", range: [0, 1.02] }),
    }));
  }
}
