"use strict";
// Draws the figures of a page about sweeps with plotly, and makes its tables sortable.

(function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const style = () => getComputedStyle(document.documentElement);

  // A trace states the place of its colour in the palette (tint), or that it has that of the text.
  function coloured(trace, palette, ink) {
    const color = trace.ink ? ink : trace.tint === undefined ? null : palette[trace.tint % palette.length];
    if (!color) return trace;
    const errors = trace.error_x ? { error_x: { color, ...trace.error_x } } : {};
    return { ...trace, marker: { color, ...trace.marker }, line: { color, ...trace.line }, ...errors };
  }

  function draw(target) {
    const figure = data.figures[Number(target.dataset.figure)];
    const get = (name) => style().getPropertyValue(name).trim();
    const dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
    const palette = data.palette[dark ? "dark" : "light"];
    const narrow = target.clientWidth < 640;
    const axis = (given = {}) => ({ gridcolor: get("--grid"), linecolor: get("--line"), zerolinecolor: get("--line"),
      color: get("--quiet"), automargin: true, ...given, title: { text: given.title || "" },
      tickfont: { size: narrow ? 10 : 12 } });
    const { line_at: at, ...given } = figure.layout;
    const shapes = at === undefined ? [] : [{ type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1,
      line: { color: get("--quiet"), width: 1.5, dash: "dash" } }];
    const above = { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" };
    const legend = given.legend && !narrow ? given.legend : above;
    // Long names of rows leave no room for the plot on a narrow page: they are broken into lines.
    const yaxis = axis(given.yaxis);
    if (narrow && yaxis.ticktext) yaxis.ticktext = yaxis.ticktext.map((text) => String(text).replaceAll(" · ", "<br>"));
    const extra = narrow && yaxis.ticktext ? 1.25 : 1;
    target.style.height = `${figure.height * extra + (figure.narrow_legend && narrow ? 22 * figure.traces.length : 0)}px`;
    const layout = { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
      font: { color: get("--ink"), size: 12, family: "system-ui, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif" },
      margin: { l: 50, r: 16, t: 40, b: 46 }, hoverlabel: { align: "left" }, ...given, shapes, legend,
      xaxis: axis(given.xaxis), yaxis,
      modebar: { bgcolor: "rgba(0,0,0,0)", color: get("--quiet"), activecolor: get("--ink") } };
    const traces = figure.traces.map((trace) => coloured(trace, palette, get("--ink")));
    Plotly.react(target, traces, layout, { displaylogo: false, responsive: true, modeBarButtons: [["toImage", "resetScale2d"]] });
  }

  const targets = [...document.querySelectorAll("[data-figure]")];
  const drawAll = () => targets.forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", drawAll);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) { width = innerWidth; drawAll(); }
  });

  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => {
          const { value: number } = row.cells[place].dataset;
          return number === undefined ? row.cells[place].textContent : Number(number);
        };
        const isEmpty = (v) => v === "" || v === "–";
        const sorted = [...body.rows].sort((left, right) => {
          const [a, b] = [value(left), value(right)];
          if (isEmpty(a) || isEmpty(b)) return isEmpty(a) - isEmpty(b); // empty cells come last
          const order = typeof a === "number" && typeof b === "number" ? a - b
            : String(a).localeCompare(String(b), "en", { numeric: true });
          return up ? order : -order;
        });
        body.append(...sorted);
      });
    });
    const filter = document.querySelector(`input[data-filter="${table.id}"]`);
    if (filter) filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of body.rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
  }
  document.documentElement.dataset.ready = "true";
})();
