"use strict";
// The table of results: sorting, filters, details of a row.

// Shown together below the other facts.
const VERDICT_COLUMNS = ["checks_passed", "checks_failed", "checks_not_applicable", "error_map"];

class ResultsTable {
  constructor(data) {
    this.data = data;
    this.names = data.columns.map((column) => column.name);
    this.rows = data.rows.map((values, index) => this.makeRow(values, data.derived[index], index));
    this.columns = this.makeColumns();
    this.sorting = { key: null, descending: false };
    this.limit = 300;
    this.opened = new Set();
    this.fillFilters();
    this.makeHead();
    this.draw();
  }

  makeRow(values, derived, index) {
    const record = Object.fromEntries(this.names.map((name, i) => [name, values[i]]));
    const words = [
      record.provider, record.dispatch, record.target, record.outcome, record.verification,
      record.reason, derived.shape, derived.dtypes, ...Object.entries(record.tags || {}).flat(),
    ];
    return { record, derived, index, text: words.filter(Boolean).join(" ").toLowerCase() };
  }

  makeColumns() {
    const { rows } = this;
    const has = (get) => rows.some((row) => get(row) !== null && get(row) !== undefined);
    const speedDigits = columnDecimals(rows.map((r) => r.record.gflops).filter((v) => v !== null));
    const several = (get) => new Set(rows.map(get)).size > 1;
    const all = [
      { key: "shape", title: "operation", value: (r) => r.derived.shape, order: (r) => r.record.flops, style: "shape" },
      { key: "dtypes", title: "types", value: (r) => `${r.derived.dtypes} ${r.record.layouts.replace("nhwc_hwcf", "")}`.trim() },
      { key: "target", title: "device", value: (r) => r.record.device || r.record.target,
        shown: several((r) => r.record.device || r.record.target) },
      { key: "provider", title: "provider", value: (r) => r.record.provider },
      { key: "configuration", title: "configuration", value: (r) => r.record.configuration, style: "configuration" },
      { key: "time", title: "time", value: (r) => r.record.median_ns, text: (v) => formatNs(v, evenDigits), number: true },
      { key: "half", title: "±", value: (r) => r.derived.half, number: true,
        text: (v) => (v >= 1 ? ">100 %" : `±${(v * 100).toFixed(1)} %`), sign: (r) => (r.derived.marks.length ? " !" : ""),
        absent: (r) => (r.record.median_ns === null ? "–" : "n/a"),
        hint: (r) => r.derived.marks.join("\n") },
      { key: "gflops", title: "GFLOP/s", value: (r) => r.record.gflops, number: true,
        text: (v) => v.toLocaleString("en", { minimumFractionDigits: speedDigits, maximumFractionDigits: speedDigits }) },
      { key: "roofline", title: "roofline", value: (r) => r.record.roofline_fraction, text: (v) => `${(v * 100).toFixed(1)} %`, number: true },
      { key: "ratio", title: `× ${this.data.baseline}`, value: (r) => r.derived.ratio, number: true,
        text: formatRatio, sign: (r) => r.derived.sign,
        shown: this.data.baseline !== "", hint: (r) => r.derived.difference },
      { key: "clock", title: "clock", value: (r) => r.record.sm_clock_hz, text: (v) => `${(v / 1e6).toFixed(0)} MHz`, number: true },
      { key: "power", title: "power", value: (r) => r.record.power_w, text: (v) => `${v.toFixed(0)} W`, number: true },
      { key: "verification", title: "verified", value: (r) => r.record.verification, style: "verification" },
      { key: "outcome", title: "outcome", value: (r) => r.record.outcome, style: "outcome" },
    ];
    for (const column of all) column.hasSigns = Boolean(column.sign && rows.some(column.sign));
    const isEmpty = (c) => c.number && !has(c.value) && !(c.absent && has((r) => r.record.median_ns));
    return all.filter((c) => c.shown !== false && !isEmpty(c));
  }

  fillFilters() {
    const choices = (id, get) => {
      const found = [...new Set(this.rows.map(get))].sort();
      fillSelect(document.getElementById(id), [["", "all"], ...found.map((v) => [v, v])], "");
    };
    choices("filter-provider", (r) => r.record.provider);
    choices("filter-dtypes", (r) => r.derived.dtypes);
    choices("filter-outcome", (r) => r.record.outcome);
    const form = document.querySelector(".filters");
    form.addEventListener("input", () => this.draw());
    form.addEventListener("reset", () => setTimeout(() => this.draw()));
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("show-all").addEventListener("click", () => {
      this.limit = Infinity;
      this.draw();
    });
  }

  makeHead() {
    const cells = this.columns.map((column) => {
      const button = element("button", { type: "button", onclick: () => this.sortBy(column) },
        column.title, element("span", { class: "arrow", "aria-hidden": "true" }));
      return element("th", { scope: "col", class: column.number ? "number" : "", "data-key": column.key }, button);
    });
    const blank = element("th", { scope: "col", "aria-label": "details" });
    document.querySelector("#table thead").replaceChildren(element("tr", {}, blank, ...cells));
  }

  // Numbers sort largest first where large is good; a second press reverses the order.
  sortBy(column) {
    const first = ["gflops", "roofline", "ratio"].includes(column.key);
    const same = this.sorting.key === column.key;
    this.sorting = { key: column.key, descending: same ? !this.sorting.descending : first };
    for (const head of document.querySelectorAll("#table thead th[data-key]")) {
      const active = head.dataset.key === column.key;
      const direction = this.sorting.descending ? "descending" : "ascending";
      if (active) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
      head.querySelector(".arrow").textContent = active ? (this.sorting.descending ? "▼" : "▲") : "";
    }
    this.draw();
  }

  selected() {
    const value = (id) => document.getElementById(id).value;
    const words = value("filter-text").toLowerCase().split(/\s+/).filter(Boolean);
    const provider = value("filter-provider");
    const dtypes = value("filter-dtypes");
    const outcome = value("filter-outcome");
    const onlyBest = document.getElementById("filter-best").checked;
    return this.rows.filter((row) =>
      words.every((word) => row.text.includes(word)) &&
      (!provider || row.record.provider === provider) &&
      (!dtypes || row.derived.dtypes === dtypes) &&
      (!outcome || row.record.outcome === outcome) &&
      (!onlyBest || row.derived.best));
  }

  sorted(rows) {
    const column = this.columns.find((c) => c.key === this.sorting.key);
    if (!column) return rows;
    const get = column.order || column.value;
    const sign = this.sorting.descending ? -1 : 1;
    return [...rows].sort((left, right) => {
      const [a, b] = [get(left), get(right)];
      if (a === b) return left.index - right.index;
      if (a === null || a === undefined) return 1; // rows without a value come last in either order
      if (b === null || b === undefined) return -1;
      return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
    });
  }

  draw() {
    const rows = this.sorted(this.selected());
    const body = document.querySelector("#table tbody");
    body.replaceChildren(...rows.slice(0, this.limit).flatMap((row) => this.drawRow(row)));
    if (!rows.length) {
      const cell = element("td", { colspan: this.columns.length + 1, class: "empty" }, "No dispatch matches the filter.");
      body.append(element("tr", {}, cell));
    }
    document.getElementById("count").textContent = `${rows.length} of ${this.rows.length}`;
    const more = document.getElementById("show-all");
    more.hidden = rows.length <= this.limit;
    more.textContent = `Show all ${rows.length}`;
  }

  drawRow(row) {
    const isOpen = this.opened.has(row.index);
    const toggle = element("button", {
      type: "button", class: "expand", "aria-expanded": String(isOpen),
      "aria-label": `Details of ${row.record.dispatch}`,
      onclick: () => this.toggle(row),
    }, isOpen ? "▾" : "▸");
    const cells = this.columns.map((column) => this.drawCell(row, column));
    const line = element("tr", { class: `row${row.derived.best ? " best" : ""}`, "data-index": row.index },
      element("td", {}, toggle), ...cells);
    if (!isOpen) return [line];
    const details = element("td", { colspan: cells.length + 1 }, this.drawDetails(row));
    return [line, element("tr", { class: "details" }, details)];
  }

  toggle(row) {
    if (!this.opened.delete(row.index)) this.opened.add(row.index);
    this.draw();
    const button = document.querySelector(`#table tr[data-index="${row.index}"] .expand`);
    if (button) button.focus();
  }

  drawCell(row, column) {
    const value = column.value(row);
    const missing = value === null || value === undefined;
    const text = missing ? (column.absent ? column.absent(row) : "–") : column.text ? column.text(value, row) : String(value);
    if (column.style === "outcome") {
      return element("td", { title: row.record.reason }, element("span", { class: `outcome ${value}` }, text));
    }
    if (column.style === "verification") {
      const marks = { passed: "✓", warned: "~ warned", failed: "✗ failed", not_verified: "– no" };
      const title = [text.replace("_", " "), row.record.accuracy_class].filter(Boolean).join(", accuracy ");
      return element("td", { class: `mark-${value}`, title }, marks[value] || text);
    }
    const hint = column.hint ? column.hint(row) : column.style === "configuration" ? text : "";
    const isDoubtful = (column.key === "half" && hint) || (column.key === "ratio" && row.derived.sign);
    const styles = [column.number ? "number" : "", column.style || "", isDoubtful ? "noisy" : ""];
    // Signs are set apart, so that the numbers line up.
    const sign = column.hasSigns ? element("span", { class: "sign" }, missing && !column.absent ? "" : column.sign(row)) : null;
    const shown = column.style === "configuration" ? breakable(text) : text;
    return element("td", { class: styles.join(" ").trim(), title: hint || null }, shown, sign);
  }

  drawDetails(row) {
    const { record, derived } = row;
    const isAbsent = (v) => v === null || v === "" || (typeof v === "object" && Object.keys(v).length === 0);
    const facts = this.data.columns
      .filter((column) => !VERDICT_COLUMNS.includes(column.name) && !isAbsent(record[column.name]))
      .map((column) => this.fact(column.name, formatValue(record[column.name], column), column.description));
    const verdict = [
      ...(derived.why && derived.why !== record.reason ? [this.fact("verdict", derived.why, "")] : []),
      ...record.checks_failed.map((text) => this.fact("check", text, "")),
      ...record.checks_not_applicable.map((text) => this.fact("could not apply", text, "")),
    ];
    for (const fact of verdict) fact.classList.add("long");
    const passed = record.checks_passed.length;
    if (passed) {
      verdict.push(this.fact(`passed ${passed} check${passed === 1 ? "" : "s"}`, record.checks_passed.join(", "), ""));
    }
    const because = derived.because
      ? element("p", { class: "because" }, element("span", {}, "why"), derived.because) : null;
    const parts = [because, element("dl", { class: "facts" }, ...facts, ...verdict)];
    if (record.error_map.length) parts.push(this.errorMap(record.error_map));
    if (derived.tail) {
      parts.push(element("p", { class: "quiet" }, "End of its output"), element("pre", {}, derived.tail));
    }
    return element("div", {}, ...parts);
  }

  errorMap([caption, ...lines]) {
    return element("figure", { class: "error-map" },
      element("figcaption", { class: "quiet" }, caption), element("pre", {}, lines.join("\n")));
  }

  fact(name, text, description) {
    return element("div", { class: text.length > 60 ? "long" : "", title: description || null },
      element("dt", {}, name.replace(/_ns$/, "").replaceAll("_", " ")), element("dd", {}, breakable(text)));
  }
}
