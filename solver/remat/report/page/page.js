// A schedule to look into: memory above, processors and channels below, all over one axis of time; of pipelines the
// devices stand above their memories (see panels.js).
"use strict";

const LEFT = 92, RIGHT = 14, AXIS = 24, GAP = 16, OVERVIEW = 34, ROW = 20;
const EXACT = 3;                     // so many steps a pixel are drawn one by one; more are put together
const MOST_LISTED = 14, SHORTEST = 1e-9;

/** A name that fits beside the picture. */
const shortened = name => name.length > 13 ? `${name.slice(0, 7)}…${name.slice(-4)}` : name;

/** The same of several: shortened where that tells them apart. */
const shortenedApart = names => {
  const cut = [7, 6, 5, 4, 3, 8, 9, 10, 2, 1].map(head => names.map(name => name.length > 13 ? `${name.slice(0, head)}…${name.slice(head - 12)}` : name));
  const differ = cut.map(all => new Set(all).size);
  return cut[differ.indexOf(Math.max(...differ))];
};

class Page {
  constructor(head, columns) {
    Object.assign(this, {head, columns});
    const {start, length} = columns;
    this.end = Float64Array.from(start, (time, k) => time + length[k]);
    this.tasks = new Names(head.tasks, columns.tasks);
    this.values = new Names(head.values, columns.values);
    this.memories = head.memories.map((memory, k) => this.contents(memory, k));
    this.home = this.memories[head.fullest];
    this.colourBy(head.groups ? "group" : "kind");
    this.tracks = head.rows.map(row => ({...row,
      track: new Track(columns.served.subarray(row.first, row.stop), start, this.end, columns.phase)}));
    this.readPasses();
    this.living = Boolean(head.groups);
    this.span = Math.max(head.makespan, SHORTEST);
    this.view = [0, this.span];
    this.cursor = null;              // {time, memory, kind, step} under the pointer, or where it was pinned
    this.pinned = this.fitted = false;
    this.matches = null;
    this.canvas = document.getElementById("picture");
    this.overlay = document.getElementById("overlay");
  }

  /** Points of a memory over time, with their totals and the tree that finds the fullest of any stretch. */
  contents(memory, k) {
    const {start} = this.columns, read = (rows, name) => ({rows, bytes: rows.map(row => this.columns[`${name} ${k} ${row}`])});
    const sets = {kind: read(memory.kinds, "bytes"), group: read(memory.groups ?? [], "grouped")}, {bytes} = sets.kind;
    const time = Float64Array.from(this.columns[`at ${k}`], at => at < 0 ? 0 : at < start.length ? start[at] : this.end[at - start.length]);
    const total = new Float64Array(time.length);
    for (const column of bytes) for (let i = 0; i < total.length; i++) total[i] += column[i];
    return {...memory, sets, time, total, largest: new Largest(total), used: memory.peak > 0 || k === 0, boxes: memory.addresses && this.boxes(memory, k)};
  }

  /** Show what bytes are for ("kind"), or which part of the program they belong to ("group"). */
  colourBy(what) {
    this.by = what;
    this.only = undefined;
    this.legend = what === "kind" ? this.head.kinds : this.head.groups.labels.map(label => ({label}));
    for (const memory of this.memories) { memory.kinds = memory.sets[what].rows; memory.bytes = memory.sets[what].bytes; }
  }
  /** The kind, or the group, of a stay. */
  kindOf(stay) { return this.by === "kind" ? this.columns.kind[stay] : this.columns.group[this.columns.value[stay]]; }
  peakTime(memory) { return memory.time[memory.largest.of(0, memory.total.length)]; }

  /** Stays with their times; made when somebody first asks. */
  get stays() {
    const {born, died, last, start, value} = this.columns, count = value.length;
    const later = (column, k) => column[k] % 2 ? -1 : column[k] / 2 + Math.max(born[k], 0);
    const begin = Float64Array.from(born, step => step < 0 ? 0 : start[step]);
    const until = Int32Array.from({length: count}, (_, k) => later(died, k));
    const end = Float64Array.from(until, step => step < 0 ? this.span : this.end[step]);
    const found = {begin, end, until, last: k => later(last, k), cover: new Cover(begin, end)};
    Object.defineProperty(this, "stays", {value: found});
    return found;
  }

  // ------------------------------------------------------------------------------------------- names

  taskName(task) { return this.inModule(this.tasks.at(task), "module", task); }
  valueName(value) { return this.inModule(this.values.at(value), "value module", value); }
  inModule(name, column, index) {
    const module = this.head.modules ? this.columns.modules[this.columns[column][index]] : "";
    return module && module !== name ? `${name} of ${module}` : name;
  }
  stepName(step) {
    if (step < 0) return "the start";
    const item = this.columns.item[step], phase = this.columns.phase[step];
    if (phase === this.head.copy) return `copy of ${this.valueName(item)}`;
    return phase === 0 ? "drop" : this.taskName(item);
  }
  time(ticks) { return timeText(ticks * this.head.tick, this.head.units.time); }
  size(bytes) { return sizeText(bytes, this.head.units); }
  budget(bytes) { return budgetText(bytes, this.head.units); }

  // ------------------------------------------------------------------------------------------ layout

  layout() {
    const ratio = window.devicePixelRatio || 1, width = Math.max(280, this.canvas.parentElement.clientWidth);
    this.width = width;
    this.place();
    for (const canvas of [this.canvas, this.overlay]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(this.height * ratio);
      canvas.style.height = `${this.height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue(`--${name}`).trim();
    this.colours = {kinds: this.legend.map((_, k) => colour(`${this.by}-${k}`)), phases: this.head.phases.map((_, k) => colour(`phase-${k}`))};
    for (const name of ["ink", "soft", "line", "panel", "paper", "budget", "accent"]) this.colours[name] = colour(name);
    this.font = style.getPropertyValue("--font").trim();
    this.outline = null;
    this.changed();
  }
  get across() { return this.width - LEFT - RIGHT; }
  x(time) { return LEFT + (time - this.view[0]) / (this.view[1] - this.view[0]) * this.across; }
  timeAt(x) { return this.view[0] + (x - LEFT) / this.across * (this.view[1] - this.view[0]); }

  // ----------------------------------------------------------------------------------------- drawing

  changed() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); });
  }

  draw() {
    const pen = this.canvas.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = `11px ${this.font}`;
    for (const panel of this.panels) panel.boxes ? this.drawAddresses(pen, panel) : this.drawMemory(pen, panel);
    for (const row of this.rows) this.drawRow(pen, row);
    if (this.living) this.drawLives(pen);
    this.drawAxis(pen);
    this.drawOverview(pen);
    this.drawCursor();
    document.documentElement.dataset.drawn ??= performance.now().toFixed(1);
  }

  /** Where the bytes of a memory change, in pixels, and which point holds from there: the fullest of each pixel. */
  points(memory, view = this.view, left = LEFT, across = this.across) {
    const {time, largest} = memory, [from, to] = view, scale = across / (to - from);
    const first = Math.max(upper(time, from) - 1, 0), stop = upper(time, to);
    const xs = [], index = [];
    if (stop - first <= across * 2) {
      for (let k = first; k < stop; k++) { xs.push(Math.max(left, left + (time[k] - from) * scale)); index.push(k); }
    } else {
      for (let pixel = 0, low = first; pixel < across; pixel++) {
        const high = upper(time, from + (pixel + 1) / scale, low, stop);
        xs.push(left + pixel);
        index.push(largest.of(low, Math.max(high, low + 1)));
        low = Math.max(low, high - 1);            // what holds at the end of a pixel holds in the next
      }
    }
    return {xs, index};
  }

  drawMemory(pen, panel) {
    const {memory, top, height} = panel, head = height < 100 ? 15 : 20, base = top + height, right = LEFT + this.across;
    const {xs, index} = this.points(memory);
    const near = memory.capacity !== null && memory.capacity <= 3 * Math.max(memory.peak, 1);
    let most = near ? Math.max(memory.peak, memory.capacity) : memory.peak;
    if (this.fitted) most = index.reduce((sofar, k) => Math.max(sofar, memory.total[k]), 0);
    const scale = (height - head) / Math.max(most, 1), y = bytes => base - bytes * scale;
    Object.assign(panel, {scale, base});
    pen.textBaseline = "middle";
    const {ticks: marks, factor, unit} = sizeTicks(most, this.head.units, height < 100 ? 2 : 4);
    marks.forEach((tick, k) => {                             // the unit stands at the highest
      pen.fillStyle = this.colours.line;
      pen.fillRect(LEFT, Math.round(y(tick)), this.across, 1);
      const text = `${digits(tick / factor, 4, true)}${k && k === marks.length - 1 ? unit : ""}`;
      this.label(pen, text, LEFT - 6, Math.max(y(tick), top + 19), "right");
    });
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, this.across, height);
    pen.clip();
    const sums = Float64Array.from(index, k => memory.total[k]);
    for (let k = memory.kinds.length - 1; k >= 0; k--) {     // each is drawn over by those below it: no seams
      pen.fillStyle = this.colours.kinds[memory.kinds[k]];
      pen.globalAlpha = this.faded(memory.kinds[k]) ? 0.25 : 1;
      this.stairs(pen, xs, sums, y, right, base);
      pen.fill();
      for (let i = 0; i < sums.length; i++) sums[i] -= memory.bytes[k][index[i]];
    }
    pen.globalAlpha = 1;
    this.labelBands(pen, memory, xs, index, y, right);
    if (this.matches) this.drawMatches(pen, memory, y, right, base);
    pen.restore();
    if (near && memory.capacity <= most) {
      pen.strokeStyle = this.colours.budget;
      pen.lineWidth = 1.5;
      pen.setLineDash([6, 3]);
      pen.beginPath();
      pen.moveTo(LEFT, y(memory.capacity));
      pen.lineTo(right, y(memory.capacity));
      pen.stroke();
      pen.setLineDash([]);
      pen.lineWidth = 1;
    }
    this.drawPeak(pen, panel, y, near && memory.capacity <= most);
    this.label(pen, shortened(memory.name), LEFT - 6, top + 7, "right", "ink");
  }

  /** Trace what holds from each place to the next, down to the base at both sides, on a canvas or as a path. */
  stairs(pen, xs, sums, y, right, base) {
    pen.beginPath?.();
    pen.moveTo(xs[0], base);
    for (let i = 0; i < xs.length; i++) {
      const height = y(sums[i]);
      pen.lineTo(xs[i], height);
      pen.lineTo(i + 1 < xs.length ? xs[i + 1] : right, height);
    }
    pen.lineTo(right, base);
    pen.closePath();
  }

  /** Say where the memory is fullest and how far that is from the budget, and name the line of the budget. */
  drawPeak(pen, {memory, top}, y, limited) {
    const at = this.peakTime(memory), x = this.x(at), {peak, capacity, moments} = memory, end = LEFT + this.across;
    const inside = x >= LEFT - 1 && x <= end + 1, free = capacity - peak;
    const below = capacity === null ? ", no limit" : free ? `, ${this.size(free)} below the budget` : ", all of the budget";
    pen.font = `bold 11px ${this.font}`;
    const when = ` at ${this.time(at)}${moments > 1 ? ` (first of ${moments.toLocaleString("en")})` : ""}`;
    const most = this.budget(peak);
    const said = [`${most}${when}${below}: ${memory.cause}`, `${most}${when}${below}`, `${most}${below}`, most];
    const text = said.map(one => `${x < LEFT - 1 ? "◂ " : ""}peak ${one}${!inside && x > LEFT ? " ▸" : ""}`)
      .find((one, k) => k === 3 || pen.measureText(one).width < this.across);
    const room = pen.measureText(text).width, begin = Math.max(LEFT, Math.min(x + 4, end - room));
    this.label(pen, text, begin, top + 7, "left", "ink");
    pen.font = `11px ${this.font}`;
    if (limited) {
      const name = `budget ${this.budget(capacity)}`, wide = pen.measureText(name).width;
      const left = begin + room + 12 + wide < end ? end - wide : LEFT + 4;
      if (left > begin + room || left + wide < begin) this.label(pen, name, left, top + 7, "left", "budget");
    }
    if (!inside) return;
    pen.strokeStyle = pen.fillStyle = this.colours.budget;
    pen.beginPath();
    pen.moveTo(Math.max(LEFT, x), top + 13);
    pen.lineTo(Math.max(LEFT, x), y(peak));
    pen.stroke();
    pen.beginPath();
    pen.arc(Math.max(LEFT, x), y(peak), 3.5, 0, 7);
    pen.fill();
  }

  drawMatches(pen, memory, y, right, base) {
    const line = this.matches.lines.get(memory);
    if (!line || !line.time.length) return;
    const {xs, index} = this.points(line);
    this.stairs(pen, xs, index.map(k => line.total[k]), y, right, base);
    pen.strokeStyle = this.colours.ink;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.lineWidth = 1;
  }

  drawTrack(pen, {name, track, kind, top}) {
    const middle = top + ROW / 2, {start, end, phase, steps} = track, [from, to] = this.view;
    this.label(pen, shortened(name), LEFT - 6, middle, "right", kind === "channel" ? "soft" : "ink");
    pen.fillStyle = this.colours.panel;
    pen.fillRect(LEFT, top + 2, this.across, ROW - 4);
    const first = Math.max(upper(start, from) - 1, 0), stop = upper(start, to);
    if (stop - first > EXACT * this.across) return this.drawShares(pen, track, top);
    for (let k = first; k < stop; k++) {
      const left = Math.max(LEFT, this.x(start[k])), right = Math.min(LEFT + this.across, this.x(end[k]));
      if (right < left || end[k] <= from) continue;
      const wide = right - left, second = k > first && start[k] === start[k - 1];     // two at once: a half each
      pen.fillStyle = this.colours.phases[phase[k]];
      pen.globalAlpha = this.matches && !this.matches.step(steps[k]) ? 0.2 : 1;
      pen.fillRect(left, second ? middle : top + 2, Math.max(wide - (wide > 4 ? 1 : 0), 0.7), second ? ROW / 2 - 2 : ROW - 4);
      if (wide > 22) {
        const item = this.columns.item[steps[k]], copied = this.columns.phase[steps[k]] === this.head.copy;
        const names = copied ? [this.valueName(item), this.values.at(item)] : [this.taskName(item), this.tasks.at(item)];
        const text = names.find(name => pen.measureText(name).width < wide - 4);
        if (text !== undefined) {
          pen.fillStyle = "#10161c";
          pen.textAlign = "center";
          pen.fillText(text, (left + right) / 2, second ? middle + ROW / 4 : middle);
        }
      }
    }
    pen.globalAlpha = 1;
  }

  /** Of many steps a pixel: how much of it each phase takes, from below. */
  drawShares(pen, track, top) {
    const step = (this.view[1] - this.view[0]) / this.across, high = ROW - 4;
    const layers = track.phases.map((phase, k) => [this.colours.phases[phase], track.before[k]]);
    const floor = new Float64Array(Math.ceil(this.across));
    pen.globalAlpha = this.matches ? 0.2 : 1;
    for (const [colour, before] of layers) {
      pen.fillStyle = colour;
      let until = track.until(before, this.view[0]);
      for (let pixel = 0; pixel < floor.length; pixel++) {
        const next = track.until(before, this.view[0] + (pixel + 1) * step), share = (next - until) / step * high;
        if (share > 0) pen.fillRect(LEFT + pixel, top + ROW - 2 - floor[pixel] - share, 1, share);
        floor[pixel] += share;
        until = next;
      }
    }
    pen.globalAlpha = 1;
    if (!this.matches) return;
    const before = this.matches.of(track);
    pen.fillStyle = this.colours.accent;
    for (let pixel = 0, until = track.until(before, this.view[0]); pixel < floor.length; pixel++) {
      const next = track.until(before, this.view[0] + (pixel + 1) * step);
      if (next > until) {
        const share = Math.max(1.5, (next - until) / step * high);
        pen.fillRect(LEFT + pixel, top + ROW - 2 - share, 1, share);
      }
      until = next;
    }
  }

  drawAxis(pen) {
    const {tick, units} = this.head, [from, to] = this.view.map(time => time * tick);
    const seconds = SECONDS[units.time] ?? 1, found = ticks(from * seconds, to * seconds, this.across / 110);
    const step = found.length > 1 ? found[1] - found[0] : found[0] || 1;
    const most = Math.min(15, Math.max(5, Math.ceil(Math.log10(Math.max(Math.abs(found.at(-1) ?? 1), step) / step)) + 1));
    const unit = units.time === "unit" ? "" : Object.keys(SECONDS).find(name => to * seconds >= SECONDS[name]) ?? "ns";
    const name = unit === "us" ? "µs" : unit;
    this.label(pen, name ? `time (${name})` : "time", LEFT - 6, this.axisTop + 10, "right");
    for (const mark of found) {
      const x = this.x(mark / seconds / tick);
      pen.fillStyle = this.colours.line;
      pen.fillRect(Math.round(x), this.axisTop - 4, 1, 5);
      const text = digits(unit ? mark / SECONDS[unit] : mark, unit ? most : 12, true);
      const room = pen.measureText(text).width / 2;
      this.label(pen, text, Math.min(Math.max(x, LEFT + room), LEFT + this.across - room), this.axisTop + 10, "center");
    }
  }

  drawOverview(pen) {
    const top = this.overviewTop, high = this.overview - 6;
    pen.fillStyle = this.colours.panel;
    pen.fillRect(LEFT, top, this.across, high);
    if (this.devices.length) this.drawDevices(pen, top, high);
    else this.drawOutline(pen, top, high);
    const [low, up] = this.view.map(time => LEFT + time / this.span * this.across), each = high / (this.devices.length || 1);
    const [first, count] = this.devices.length ? this.window : [0, 1];
    pen.strokeStyle = this.colours.accent;
    pen.lineWidth = 1.5;
    pen.strokeRect(low, top + first * each - 0.5, Math.max(up - low, 3), count * each + 1);
    pen.lineWidth = 1;
    this.label(pen, "overview", LEFT - 6, top + high / 2, "right");
  }

  drawOutline(pen, top, high) {
    const {memory} = this.panels[0];
    if (!this.outline) {
      const {xs, index} = this.points(memory, [0, this.span]);
      this.outline = new Path2D();
      this.stairs(this.outline, xs, index.map(k => memory.total[k]), bytes => top + high - bytes / Math.max(memory.peak, 1) * high, LEFT + this.across, top + high);
    }
    pen.fillStyle = this.colours.soft;
    pen.globalAlpha = 0.45;
    pen.fill(this.outline);
    pen.globalAlpha = 1;
  }

  label(pen, text, x, y, align, colour = "soft") {
    pen.fillStyle = this.colours[colour];
    pen.textAlign = align;
    pen.fillText(text, x, y);
  }

  faded(kind) { return this.only !== undefined && this.only !== kind; }
}
