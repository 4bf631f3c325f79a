"use strict";
// Ties the page together once it is loaded.

(function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  new ResultsTable(data);

  const plots = new Plots(data);
  const { speed, grid, heat, samples } = plots.figures;
  const numbered = (figures, text) => figures.map((figure, index) => [String(index), text(figure)]);
  const watch = (id, options, chosen, draw) => {
    const select = document.getElementById(id);
    if (!select) return;
    fillSelect(select, options, chosen);
    select.closest(".controls").hidden = options.length === 0;
    select.addEventListener("change", draw);
  };
  watch("speed-select", numbered(speed, (f) => f.label), "0", () => plots.drawSpeed());
  watch("grid-select", numbered(grid, (f) => f.label), "0", () => plots.drawGrid());
  watch("heat-select", numbered(heat, (f) => `${f.label} (${f.cells} shape${f.cells === 1 ? "" : "s"})`), "0", () => plots.drawHeat());
  watch("baseline-dtypes", numbered(speed, (f) => f.label), "0", () => plots.drawBaseline());
  watch("baseline-select", plots.baselines.map((name) => [name, name]), plots.baseline, () => plots.drawBaseline());
  const operations = [...new Set(samples.map((s) => s.operation))];
  watch("samples-select", operations.map((o) => [o, o]), operations[0], () => plots.drawSamples());
  for (const part of document.querySelectorAll("[data-figure]")) part.hidden = plots.figures[part.dataset.figure].length === 0;
  plots.drawAll();

  // After a change of theme, and for printing, the plots need their colours again.
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.drawAll());
  addEventListener("beforeprint", () => plots.drawAll());
  addEventListener("afterprint", () => plots.drawAll());

  for (const button of document.querySelectorAll(".copy")) {
    button.addEventListener("click", async () => {
      const done = await copyText(button.dataset.copy);
      button.textContent = done ? "Copied" : "Select the text to copy it";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
  document.documentElement.dataset.ready = "true";

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return false; // a browser may not allow it to pages opened from a file
    }
  }
})();
