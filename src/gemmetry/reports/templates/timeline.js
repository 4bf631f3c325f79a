"use strict";
// The timeline: streams over time on a canvas, with zoom. Names enter it as text only.

class Timeline {
  constructor(data) {
    this.kinds = data.kinds;
    this.groups = data.groups.map(unpack);
    this.canvas = document.getElementById("timeline");
    this.hint = document.getElementById("timeline-hint");
    this.drag = null;
    this.show(0);
    this.listen();
  }

  show(index) {
    this.group = this.groups[index];
    this.from = 0;
    this.to = this.group.window;
    // A number has 52 bits: in a window of years a step of nanoseconds would lead nowhere.
    this.least = Math.max(100, this.group.window * 2 ** -36);
    const { left_out: leftOut, joined } = this.group;
    document.getElementById("timeline-note").textContent = [
      leftOut ? `${leftOut} lanes with less work are not drawn.` : "",
      joined ? "Neighbours of one kind are drawn as one where they are too many." : "",
    ].join(" ").trim();
    this.draw();
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
    const colours = this.kinds.map(colour);
    group.lanes.forEach((lane, row) => {
      const top = TOP + row * (LANE + GAP);
      context.fillStyle = colour("ink");
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillText(lane.label, this.left - 8, top + LANE / 2, this.left - 12);
      context.fillStyle = colour("idle");
      context.fillRect(this.left, top, this.width, LANE);
      this.lane(context, lane, top, colours, ratio);
    });
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
      for (let c = Math.floor(a); c < Math.min(columns, Math.ceil(Math.max(b, a + 1e-9))); c++) {
        shares[c * colours.length + lane.kind[i]] += Math.min(b, c + 1) - Math.max(a, c);
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
    const found = lane ? nearest(lane, time, pixel) : -1;
    this.hint.hidden = found < 0;
    if (found < 0) return;
    const count = lane.count ? lane.count[found] : 1;
    const name = count > 1 ? `${count} pieces of work` : this.group.names[lane.name[found]];
    const when = `${formatNs(lane.length[found])}, at ${formatNs(lane.start[found])}`;
    this.hint.replaceChildren(
      element("b", {}, name),
      `${this.kinds[lane.kind[found]]} · ${when} · ${lane.label}`,
    );
    const wide = this.hint.offsetWidth;
    this.hint.style.left = `${Math.max(0, Math.min(x + 12, this.canvas.clientWidth - wide))}px`;
    this.hint.style.top = `${y + 16}px`;
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

const TOP = 8;
const LANE = 22;
const GAP = 5;
const BOTTOM = 26;
const RIGHT = 10;

// Starts are stored as differences; `reached` is the latest end so far, which binary search needs.
function unpack(group) {
  for (const lane of group.lanes) {
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
