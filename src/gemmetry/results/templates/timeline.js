"use strict";
// The timeline: streams over time on a canvas, with zoom. Names enter it as text only.

class Timeline {
  constructor(data) {
    this.kinds = data.kinds;
    this.groups = data.groups.map(unpack);
    this.canvas = document.getElementById("timeline");
    this.hint = document.getElementById("timeline-hint");
    this.drag = null;
    this.search = new Search(this);
    this.show(0);
    this.listen();
  }

  show(index) {
    this.group = this.groups[index];
    this.from = 0;
    this.to = this.group.window;
    // A number has 52 bits: in a window of years, a step of nanoseconds would change nothing.
    this.least = Math.max(100, this.group.window * 2 ** -36);
    const { left_out: leftOut, joined } = this.group;
    document.getElementById("timeline-note").textContent = [
      leftOut ? `${leftOut} lanes with less work are not drawn.` : "",
      joined ? "Where there is too much work to draw, neighbours of one kind are drawn as one; a search does not find these." : "",
    ].join(" ").trim();
    this.search.run();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(this.group.window, Math.max(this.least, (this.to - this.from) * factor));
    const share = (around - this.from) / (this.to - this.from);
    this.view(around - share * span, span);
  }

  view(from, span) {
    this.from = Math.max(0, Math.min(from, this.group.window - span));
    this.to = this.from + span;
    this.draw();
  }

  draw() {
    const { canvas, group } = this;
    const width = canvas.clientWidth || 1000;
    const height = TOP + group.lanes.length * (LANE + GAP) + BOTTOM;
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    this.left = Math.min(150, width / 4);
    this.width = width - this.left - RIGHT;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    context.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    this.axis(context, colour, height);
    const colours = [...this.kinds, "faded"].map(colour);
    group.lanes.forEach((lane, row) => {
      const top = TOP + row * (LANE + GAP);
      context.fillStyle = colour("ink");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(lane.label, this.left - 8, top + LANE / 2, this.left - 12);
      if (lane.steps) return this.steps(context, lane, top, colour);
      context.fillStyle = colour("idle");
      context.fillRect(this.left, top, this.width, LANE);
      this.lane(context, lane, top, colours, ratio);
    });
    group.lanes.forEach((lane, row) => {
      if (lane.steps) this.stepLines(context, lane, TOP + row * (LANE + GAP), colour);
    });
    this.search.mark(context, colour("ink"));
    if (this.drag && this.drag.moved) {
      const [a, b] = [this.drag.x, this.drag.now].sort((x, y) => x - y);
      context.globalAlpha = 0.25;
      context.fillStyle = colour("accent");
      context.fillRect(a, TOP, b - a, height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
    document.getElementById("timeline-span").textContent =
      `${formatNs(this.to - this.from)} from ${formatNs(this.from)}`;
    canvas.dataset.drawn = `${this.from}:${this.to}`;
  }

  lane(context, lane, top, colours, ratio) {
    // Columns of a device pixel add up what is narrower; the rest is drawn at its own width.
    const columns = Math.max(1, Math.round(this.width * ratio));
    const scale = columns / (this.to - this.from);
    const shares = new Float32Array(columns * colours.length);
    const first = firstAfter(lane.reached, this.from);
    for (let i = first; i < lane.start.length && lane.start[i] < this.to; i++) {
      const a = Math.max(0, (lane.start[i] - this.from) * scale);
      const b = Math.min(columns, (lane.start[i] + lane.length[i] - this.from) * scale);
      if (b <= a && lane.length[i] > 0) continue;
      const kind = this.search.hides(lane, i) ? colours.length - 1 : lane.kind[i];
      for (let c = Math.floor(a); c < Math.min(columns, Math.ceil(Math.max(b, a + 1e-9))); c++) {
        shares[c * colours.length + kind] += Math.min(b, c + 1) - Math.max(a, c);
      }
    }
    const step = 1 / ratio;
    for (let c = 0; c < columns; ) {
      const slot = c * colours.length;
      let full = -1;
      let busy = 0;
      for (let k = 0; k < colours.length; k++) {
        busy += shares[slot + k];
        if (shares[slot + k] >= 0.999) full = k;
      }
      if (full >= 0) {
        let end = c + 1;
        while (end < columns && shares[end * colours.length + full] >= 0.999) end++;
        context.fillStyle = colours[full];
        context.fillRect(this.left + c * step, top, (end - c) * step, LANE);
        c = end;
        continue;
      }
      if (busy > 0) {
        // Streams of copies may overlap themselves: no column is higher than its lane.
        const height = LANE * Math.max(0.12, Math.min(1, busy));
        let y = top + LANE;
        for (let k = 0; k < colours.length; k++) {
          const part = (height * shares[slot + k]) / busy;
          if (part <= 0) continue;
          y -= part;
          context.fillStyle = colours[k];
          context.fillRect(this.left + c * step, y, step, part);
        }
      }
      c++;
    }
  }

  // A box for each step, from its first to its last work; where steps overlap, on two levels.
  steps(context, lane, top, colour) {
    const height = LANE / lane.levels;
    context.textAlign = "left";
    for (const [number, start, length, , level] of lane.steps) {
      if (start > this.to || start + length < this.from) continue;
      const [a, b] = [this.x(start), this.x(start + length)];
      context.fillStyle = colour("step");
      context.fillRect(a, top + level * height, Math.max(1, b - a - 1), height - 1);
      const text = `step ${number}`;
      if (context.measureText(text).width + 8 > b - a) continue;
      context.fillStyle = colour("ink");
      context.fillText(text, a + 4, top + (level + 0.5) * height);
    }
  }

  // A line where each step begins, through the lanes of its rank.
  stepLines(context, lane, top, colour) {
    const height = (lane.rows + 1) * (LANE + GAP) - GAP;
    context.fillStyle = colour("ink");
    for (const [, start] of lane.steps) {
      if (this.from <= start && start <= this.to) context.fillRect(this.x(start), top, 1, height);
    }
  }

  x(time) {
    const within = Math.max(this.from, Math.min(time, this.to));
    return this.left + ((within - this.from) / (this.to - this.from)) * this.width;
  }

  axis(context, colour, height) {
    const span = this.to - this.from;
    const rough = span / Math.max(2, this.width / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
    context.strokeStyle = colour("grid");
    context.fillStyle = colour("quiet");
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let t = Math.ceil(this.from / step) * step; t <= this.to; t += step) {
      const x = this.left + ((t - this.from) / span) * this.width;
      context.beginPath();
      context.moveTo(x, TOP - 4);
      context.lineTo(x, height - BOTTOM + 4);
      context.stroke();
      const [unit, factor] = span >= 1e6 ? ["ms", 1e6] : ["µs", 1e3];
      const digits = Math.max(0, Math.ceil(-Math.log10(step / factor)));
      context.fillText(`${(t / factor).toFixed(digits)} ${unit}`, x, height - BOTTOM + 7);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = Math.max(this.left, Math.min(event.clientX - box.left, this.left + this.width));
    const y = event.clientY - box.top;
    const time = this.from + ((x - this.left) / this.width) * (this.to - this.from);
    return { x, y, time, row: Math.floor((y - TOP) / (LANE + GAP)) };
  }

  tell(event) {
    const { x, y, time, row } = this.at(event);
    const lane = this.group.lanes[row];
    const pixel = (this.to - this.from) / this.width;
    const lines = lane ? (lane.steps ? stepTexts(lane, time) : this.lines(lane, nearest(lane, time, pixel))) : [];
    this.hint.hidden = lines.length === 0;
    if (lines.length === 0) return;
    this.hint.replaceChildren(
      element("b", {}, lines[0]),
      ...lines.slice(1).filter((line) => line).map((line) => element("div", {}, line)),
    );
    const wide = this.hint.offsetWidth;
    this.hint.style.left = `${Math.max(0, Math.min(x + 12, this.canvas.clientWidth - wide))}px`;
    this.hint.style.top = `${y + 16}px`;
  }

  // The hint about a piece of work: its name, what it computed or sent and how fast, when it ran.
  lines(lane, place) {
    if (place < 0) return [];
    const count = lane.count ? lane.count[place] : 1;
    const length = lane.length[place];
    const when = `${formatNs(length)}, at ${formatNs(lane.start[place])}`;
    const last = `${this.kinds[lane.kind[place]]} · ${when} · ${lane.label}`;
    if (count > 1) return [`${count} pieces of work`, last];
    const [name, operator, shape, flops] = this.group.works[lane.work[place]];
    const bandwidth = lane.bandwidth ? lane.bandwidth[place] : null;
    const speed = flops && length ? formatGflops(flops / length) : "";
    const bus = bandwidth === null ? "" : `bus bandwidth ${threeDigits(bandwidth)} GB/s`;
    return [name, [shape, speed, bus].filter((text) => text).join(" · "), operator, last];
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      const { x } = this.at(event);
      this.drag = { x, now: x, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return this.tell(event);
      this.drag.now = this.at(event).x;
      this.drag.moved ||= Math.abs(this.drag.now - this.drag.x) > 3;
      return this.draw();
    });
    canvas.addEventListener("pointerup", () => {
      const { drag } = this;
      this.drag = null;
      if (!drag || !drag.moved) return;
      const time = (x) => this.from + ((x - this.left) / this.width) * (this.to - this.from);
      const [a, b] = [time(drag.x), time(drag.now)].sort((x, y) => x - y);
      this.view(a, Math.max(this.least, b - a));
    });
    canvas.addEventListener("pointerleave", () => { this.hint.hidden = true; });
    canvas.addEventListener("dblclick", () => this.view(0, this.group.window));
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.at(event).time);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const span = this.to - this.from;
      const moves = { ArrowLeft: -0.2, ArrowRight: 0.2, PageUp: -1, PageDown: 1 };
      if (event.key in moves) this.view(this.from + moves[event.key] * span, span);
      else if (event.key === "+" || event.key === "=") this.zoom(0.5);
      else if (event.key === "-") this.zoom(2);
      else if (event.key === "0") this.view(0, this.group.window);
      else return;
      event.preventDefault();
    });
    document.getElementById("zoom-in").addEventListener("click", () => this.zoom(0.5));
    document.getElementById("zoom-out").addEventListener("click", () => this.zoom(2));
    document.getElementById("zoom-all").addEventListener("click", () => this.view(0, this.group.window));
    addEventListener("resize", () => this.draw());
    addEventListener("beforeprint", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
}

// Finds pieces of work by name, operator and shape: the others fade, and the matches are shown one
// after the other.
class Search {
  constructor(timeline) {
    this.timeline = timeline;
    this.input = document.getElementById("timeline-search");
    this.output = document.getElementById("timeline-found");
    this.works = null;
    this.found = [];
    this.at = -1;
    this.input.addEventListener("input", () => this.run());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.go(event.shiftKey ? -1 : 1);
    });
    document.getElementById("timeline-previous").addEventListener("click", () => this.go(-1));
    document.getElementById("timeline-next").addEventListener("click", () => this.go(1));
  }

  run() {
    const wanted = this.input.value.trim().toLowerCase();
    const { lanes, works } = this.timeline.group;
    this.at = -1;
    this.found = [];
    this.works = wanted
      ? works.map((texts) => texts.slice(0, 3).join(" ").toLowerCase().includes(wanted))
      : null;
    let whole = 0;
    let time = 0;
    if (this.works) {
      lanes.forEach((lane, row) => {
        if (lane.steps) return;
        whole += lane.start.length;
        lane.start.forEach((start, place) => {
          if (this.hides(lane, place)) return;
          this.found.push({ row, place, start });
          time += lane.length[place];
        });
      });
      this.found.sort((a, b) => a.start - b.start || a.row - b.row);
    }
    const count = this.found.length.toLocaleString("en");
    this.output.textContent = this.works ? `${count} of ${whole.toLocaleString("en")}, ${formatNs(time)}` : "";
    this.timeline.draw();
  }

  // A piece that represents several has only the name of the first.
  hides(lane, place) {
    return this.works !== null && !(this.works[lane.work[place]] && !(lane.count && lane.count[place] > 1));
  }

  go(by) {
    const { found, timeline } = this;
    if (found.length === 0) return;
    this.at = this.at < 0 ? (by > 0 ? 0 : found.length - 1) : (this.at + by + found.length) % found.length;
    const { row, place, start } = found[this.at];
    const length = timeline.group.lanes[row].length[place];
    const span = Math.min(timeline.to - timeline.from, Math.max(timeline.least, 40 * length));
    timeline.view(start + length / 2 - span / 2, span);
    const [name] = timeline.group.works[timeline.group.lanes[row].work[place]];
    this.output.textContent = `${(this.at + 1).toLocaleString("en")} of ${found.length.toLocaleString("en")}: ${name}`;
  }

  // An outline around the one that is shown.
  mark(context, ink) {
    if (this.at < 0) return;
    const { row, place, start } = this.found[this.at];
    const { timeline } = this;
    const end = start + timeline.group.lanes[row].length[place];
    if (end < timeline.from || start > timeline.to) return;
    const [a, b] = [timeline.x(start), timeline.x(end)];
    context.strokeStyle = ink;
    context.lineWidth = 2;
    context.strokeRect(a - 1, TOP + row * (LANE + GAP) - 1, Math.max(3, b - a + 2), LANE + 2);
    context.lineWidth = 1;
  }
}

const TOP = 8;
const LANE = 22;
const GAP = 5;
const BOTTOM = 26;
const RIGHT = 10;

// Starts are stored as differences; `reached` is the latest end so far, which binary search needs.
function unpack(group) {
  for (const lane of group.lanes) {
    if (lane.steps) {
      lane.levels = stack(lane.steps);
      continue;
    }
    let at = 0;
    let reached = 0;
    lane.start = lane.start.map((difference) => (at += difference));
    lane.reached = lane.start.map((start, i) => (reached = Math.max(reached, start + lane.length[i])));
  }
  group.joined = group.lanes.some((lane) => lane.count);
  group.window = Math.max(1, group.window);
  return group;
}

// The first place whose value is above `limit`; values never fall.
function firstAfter(values, limit) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle;
    else low = middle + 1;
  }
  return low;
}

// Puts each step that begins before the previous one has ended on the other of two levels; returns
// the number of levels.
function stack(steps) {
  let reached = -Infinity;
  let level = 0;
  let levels = 1;
  for (const step of steps) {
    level = step[1] < reached ? 1 - level : 0;
    levels = Math.max(levels, level + 1);
    step.push(level);
    reached = Math.max(reached, step[1] + step[2]);
  }
  return levels;
}

// The hint about the steps at a moment.
function stepTexts(lane, time) {
  const found = lane.steps.filter(([, start, length]) => start <= time && time < start + length);
  return found.flatMap(([number, start, length, mark]) => [
    `step ${number}`,
    `${formatNs(length)} on the device, at ${formatNs(start)} · mark ${formatNs(mark)} · ${lane.label}`,
  ]);
}

// The piece of work at a moment, or the longest within two pixels of it; -1: none.
function nearest(lane, time, pixel) {
  let best = -1;
  for (let i = firstAfter(lane.reached, time - 2 * pixel); i < lane.start.length; i++) {
    if (lane.start[i] > time + 2 * pixel) break;
    if (lane.start[i] + lane.length[i] < time - 2 * pixel) continue;
    const inside = lane.start[i] <= time && time < lane.start[i] + lane.length[i];
    if (inside && lane.length[i] > 4 * pixel) return i;
    if (best < 0 || lane.length[i] > lane.length[best]) best = i;
  }
  return best;
}

(function main() {
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.groups.length > 0 && document.getElementById("timeline")) {
    const timeline = new Timeline(data);
    const select = document.getElementById("timeline-group");
    fillSelect(select, data.groups.map((group, index) => [String(index), group.label]), "0");
    select.closest("label").hidden = data.groups.length === 1;
    select.addEventListener("change", () => timeline.show(Number(select.value)));
  }
  document.documentElement.dataset.ready = "true";
})();
