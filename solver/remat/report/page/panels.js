// Parts of the picture: where they stand, names on bands, devices of a pipeline, addresses, lifetimes of the largest
// values.
"use strict";

const SENT = 5;                      // height of the transfers that a device sends, below its operations
const MOST_DEVICES = 8, MOST_LIVES = 10, LIFE = 17;

/** Black or white: what can be read on a colour (#rrggbb). */
const inkOn = colour => {
  const [r, g, b] = [1, 3, 5].map(k => parseInt(colour.slice(k, k + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 125 ? "#10161c" : "#ffffff";
};

Object.assign(Page.prototype, {
  // ------------------------------------------------------------------------------------------ places

  /** Put memories above resources; of a pipeline, devices above memories, and no more of them than fit a window. */
  place() {
    const all = this.memories.filter(memory => memory.used);
    let shown = all, rows = this.tracks, y = 6;
    this.overview = OVERVIEW;
    if (this.devices.length) {
      this.overview = Math.max(OVERVIEW, 6 + Math.min(4, Math.ceil(200 / this.devices.length)) * this.devices.length);
      this.overviewTop = 2;
      y += this.overview;
      const visible = this.devices.slice(this.window[0], this.window[0] + this.window[1]);
      const mine = new Set(visible.map(row => this.memories[row.memory]));
      const owned = new Set(this.devices.map(row => this.memories[row.memory]));
      shown = all.filter(memory => mine.has(memory) || !owned.has(memory));
      rows = [...visible, ...this.tracks.filter(row => row.kind === "channel" && row.sender === undefined)];
    }
    this.contentTop = y - 2;
    const putRows = () => {
      this.rowsTop = y;
      this.rows = rows;
      for (const row of rows) {
        row.top = y;
        row.height = row.sends?.length ? ROW + SENT + 1 : ROW;
        y += row.height;
      }
      y += 6;
    };
    const putMemories = () => {
      const tall = shown.length > 4 ? 50 : shown.length > 2 ? 96 : shown.length > 1 ? 170 : 260;
      this.panels = shown.flatMap(memory => memory.boxes ? [{memory}, {memory, boxes: memory.boxes}] : [{memory}]);
      for (const panel of this.panels) {
        Object.assign(panel, {top: y, height: panel.boxes ? Math.max(tall, shown.length > 4 ? 120 : 200) : tall});
        y += panel.height + (panel.height < 100 ? 10 : GAP);
      }
    };
    for (const put of this.devices.length ? [putRows, putMemories] : [putMemories, putRows]) put();
    if (this.living) { this.livesTop = y + 4; y += 26 + LIFE * this.lives().length; }
    this.axisTop = y;
    this.height = y + AXIS;
    if (this.devices.length) return;
    this.overviewTop = this.height;
    this.height += this.overview + 4;
  },

  // ---------------------------------------------------------------------------------------- pipelines

  /** Operations of each device of a pipeline, and the channels on which it sends. */
  readPasses() {
    const {columns, head} = this;
    this.devices = head.passes ? this.tracks.filter(row => row.kind !== "channel") : [];
    this.window = [0, Math.min(this.devices.length, MOST_DEVICES)];
    if (!head.passes) return;
    const [device, begin, long] = ["device", "start", "length"].map(name => columns[`pass ${name}`]);
    this.devices.forEach((row, k) => {
      const first = upper(device, k - 1), stop = upper(device, k);
      const own = name => columns[`pass ${name}`].subarray(first, stop);
      row.passes = {start: begin.subarray(first, stop), end: begin.subarray(first, stop).map((time, i) => time + long[first + i]),
        phase: own("phase"), batch: own("batch"), half: own("half"), chunk: own("chunk"), from: first};
      row.sends = this.tracks.filter(other => other.sender === k);
    });
    this.reveal(this.home);
  },

  /** Show the devices from a number on. */
  scroll(first) {
    const low = Math.max(0, Math.min(first, this.devices.length - this.window[1]));
    if (low === this.window[0]) return;
    this.window = [low, this.window[1]];
    if (this.width) this.layout();
  },
  /** Bring the device of a memory into the window. */
  reveal(memory) {
    const k = this.devices.findIndex(row => this.memories[row.memory] === memory), [first, count] = this.window;
    if (k >= 0 && (k < first || k >= first + count)) this.scroll(k - (count >> 1));
  },

  drawRow(pen, row) {
    if (!row.passes) return this.drawTrack(pen, row);
    const {start, end} = row.passes, [from, to] = this.view;
    const first = Math.max(upper(start, from) - 2, 0), stop = upper(start, to), count = Math.max(stop - first, 1);
    if (this.matches || count > this.across || this.across / count > 140) this.drawTrack(pen, row);
    else this.drawPasses(pen, row, first, stop);
    for (const {track} of row.sends) {
      pen.fillStyle = this.colours.phases[this.head.copy];
      const low = Math.max(upper(track.start, from) - 1, 0), high = upper(track.start, to);
      const stride = Math.max(1, Math.floor((high - low) / (4 * this.across)));
      for (let k = low; k < high; k += stride) {
        const left = Math.max(LEFT, this.x(track.start[k])), right = Math.min(LEFT + this.across, this.x(track.end[k]));
        if (right >= left) pen.fillRect(left, row.top + ROW - 1, Math.max(right - left, 0.8), SENT - 1);
      }
    }
  },

  /** Operations with their micro-batch; those of a device's later stages are paler. */
  drawPasses(pen, {name, top, passes}, first, stop) {
    const {start, end, phase, batch, half, chunk} = passes;
    this.label(pen, shortened(name), LEFT - 6, top + ROW / 2, "right", "ink");
    pen.fillStyle = this.colours.panel;
    pen.fillRect(LEFT, top + 2, this.across, ROW - 4);
    for (let k = first; k < stop; k++) {
      const left = Math.max(LEFT, this.x(start[k])), right = Math.min(LEFT + this.across, this.x(end[k])), wide = right - left;
      if (wide <= 0) continue;
      const high = half[k] ? ROW / 2 - 2 : ROW - 4, y = top + 2 + (half[k] === 2 ? ROW / 2 - 2 : 0);
      pen.fillStyle = this.colours.phases[phase[k]];
      pen.globalAlpha = Math.max(0.5, 1 - 0.3 * chunk[k]);
      pen.fillRect(left, y, Math.max(wide - (wide > 4 ? 1 : 0), 0.7), high);
      pen.globalAlpha = 1;
      this.drawRecomputed(pen, passes.from + k, y, high);
      const text = String(batch[k]);
      if (!half[k] && wide > 7 * text.length + 3) {
        pen.fillStyle = "#10161c";
        pen.textAlign = "center";
        pen.fillText(text, (left + right) / 2, y + high / 2 + 0.5);
      }
    }
  },

  /** The part of an operation that recomputes, such as the beginning of a backward. */
  drawRecomputed(pen, pass, y, high) {
    const {"again pass": of, "again start": start, "again length": length} = this.columns;
    pen.fillStyle = this.colours.phases[this.head.again];
    for (let k = upper(of, pass - 1); k < of.length && of[k] === pass; k++) {
      const left = Math.max(LEFT, this.x(start[k])), right = Math.min(LEFT + this.across, this.x(start[k] + length[k]));
      if (right > left) pen.fillRect(left, y, right - left, high);
    }
  },

  /** The operation of a device at a time, for the tip. */
  aboutPass(time, {passes}) {
    if (!passes) return [];
    const k = upper(passes.start, time) - 1;
    if (k < 0 || time >= passes.end[k]) return [];
    const stage = Math.max(...passes.chunk) ? `, stage ${passes.chunk[k] + 1} of this device` : "";
    return [["span", `micro-batch ${passes.batch[k]}: ${this.head.phases[passes.phase[k]]}${stage}`]];
  },

  /** All devices over the whole time, small: drawn once. */
  drawDevices(pen, top, high) {
    const wide = Math.round(this.across), each = high / this.devices.length;
    if (!this.outline) {
      this.outline = new OffscreenCanvas(wide, high);
      const brush = this.outline.getContext("2d"), scale = wide / this.span;
      this.devices.forEach(({passes}, row) => {
        for (let k = 0; k < passes.start.length; k++) {
          brush.fillStyle = this.colours.phases[passes.phase[k]];
          brush.fillRect(passes.start[k] * scale, row * each, Math.max((passes.end[k] - passes.start[k]) * scale, 0.4), Math.max(each - 0.6, 1));
        }
        const {"again pass": of, "again start": start, "again length": length} = this.columns;
        brush.fillStyle = this.colours.phases[this.head.again];
        for (let k = upper(of, passes.from - 1), stop = upper(of, passes.from + passes.start.length - 1); k < stop; k++) {
          brush.fillRect(start[k] * scale, row * each, length[k] * scale, Math.max(each - 0.6, 1));
        }
      });
    }
    pen.drawImage(this.outline, LEFT, top);
  },

  // -------------------------------------------------------------------------------------------- bands

  /** Write the name of each band there where it is high enough over the longest time. */
  labelBands(pen, memory, xs, index, y, right) {
    const under = new Float64Array(xs.length);
    memory.kinds.forEach((kind, band) => {
      let best = [0, 0, 0, 0], first = 0, low = Infinity, high = -Infinity;
      const close = stop => {
        const end = stop < xs.length ? xs[stop] : right, wide = end - xs[first];
        if (stop > first && wide > best[0]) best = [wide, xs[first] + wide / 2, low, high];
      };
      for (let i = 0; i < xs.length; i++) {                  // `low` is the lower edge, further down the canvas
        const bottom = y(under[i]), top = y(under[i] + memory.bytes[band][index[i]]);
        if (Math.min(low, bottom) - Math.max(high, top) < 12) {
          close(i);
          first = i;
          low = high = undefined;
          if (bottom - top < 12) { first = i + 1; low = Infinity; high = -Infinity; continue; }
        }
        low = Math.min(low ?? Infinity, bottom);
        high = Math.max(high ?? -Infinity, top);
      }
      close(xs.length);
      for (let i = 0; i < xs.length; i++) under[i] += memory.bytes[band][index[i]];
      const {label} = this.legend[kind], [wide, x, bottom, top] = best;
      const text = [label, shortened(label)].find(one => pen.measureText(one).width + 8 <= wide);
      if (text === undefined) return;
      pen.fillStyle = inkOn(this.colours.kinds[kind]);
      pen.globalAlpha = this.faded(kind) ? 0.25 : 1;
      pen.textAlign = "center";
      pen.fillText(text, x, (bottom + top) / 2);
      pen.globalAlpha = 1;
    });
  },

  // ---------------------------------------------------------------------------------------- addresses

  /** Residencies of a memory that is laid out: times, addresses, what they are of. */
  boxes({addresses}, k) {
    const of = name => this.columns[`${name} ${k}`], first = of("first"), last = of("last");
    const begin = Float64Array.from(first, step => step < 0 ? 0 : this.columns.start[step]);
    const end = Float64Array.from(last, step => step < 0 ? this.head.makespan : this.end[step]);
    return {...addresses, first, last, begin, end, low: of("low"), high: of("high"), kind: of("kind"), owner: of("owner")};
  },
  ownerName(owner) { return owner % 2 ? `workspace of ${this.taskName((owner - 1) / 2)}` : this.valueName(owner / 2); },
  /** The kind, or the group, of a residency. */
  kindOfBox({kind, owner}, k) {
    if (this.by === "kind") return kind[k];
    return owner[k] % 2 ? this.head.groups.extra + 1 : this.columns.group[owner[k] / 2];
  },

  /** Each residency over time and address. */
  drawAddresses(pen, panel) {
    const {memory, boxes, top, height} = panel, head = 20, base = top + height, edge = LEFT + this.across;
    const scale = (height - head) / Math.max(boxes.size, 1), y = address => base - address * scale;
    Object.assign(panel, {scale, base});
    pen.textBaseline = "middle";
    const {ticks: marks, factor, unit} = sizeTicks(boxes.size, this.head.units);
    marks.forEach((tick, k) => {                             // the unit stands at the highest
      pen.fillStyle = this.colours.line;
      pen.fillRect(LEFT, Math.round(y(tick)), this.across, 1);
      const text = `${digits(tick / factor, 4, true)}${k && k === marks.length - 1 ? unit : ""}`;
      this.label(pen, text, LEFT - 6, Math.max(y(tick), top + 19), "right");
    });
    pen.fillStyle = this.colours.line;
    for (const [low, high] of boxes.blocked) pen.fillRect(LEFT, y(high), this.across, (high - low) * scale);
    const [from, to] = this.view, {begin, end, low, high, owner} = boxes, stop = upper(begin, to);
    for (let k = 0; k < stop; k++) {
      if (end[k] < from) continue;
      const left = Math.max(LEFT, this.x(begin[k])), right = Math.min(edge, this.x(end[k]));
      const wide = right - left, tall = (high[k] - low[k]) * scale, kind = this.kindOfBox(boxes, k), colour = this.colours.kinds[kind];
      pen.fillStyle = colour;
      pen.globalAlpha = this.faded(kind) || (this.matches && !this.matches.owner(owner[k])) ? 0.25 : 1;
      pen.fillRect(left, y(high[k]), Math.max(wide - (wide > 4 ? 1 : 0), 0.7), Math.max(tall - (tall > 4 ? 1 : 0), 0.5));
      if (wide > 22 && tall > 12) {
        const names = [this.ownerName(owner[k]), owner[k] % 2 ? this.tasks.at((owner[k] - 1) / 2) : this.values.at(owner[k] / 2)];
        const text = names.find(name => pen.measureText(name).width < wide - 4);
        if (text !== undefined) {
          pen.fillStyle = inkOn(colour);
          pen.textAlign = "center";
          pen.fillText(text, (left + right) / 2, y((low[k] + high[k]) / 2));
        }
      }
    }
    pen.globalAlpha = 1;
    const above = ((boxes.size / memory.peak - 1) * 100).toFixed(2);
    const share = boxes.size > memory.peak ? memory.peak ? `, ${above} % above the peak` : "" : ", no more than the peak";
    this.label(pen, `arena ${this.budget(boxes.size)}${share}`, LEFT + 4, top + 7, "left", "ink");
    this.label(pen, "addresses", LEFT - 6, top + 7, "right", "ink");
  },

  // --------------------------------------------------------------------------------------------- lives

  /** The largest values where the fullest memory is fullest. */
  lives() {
    this.largest ??= this.residents(this.home, this.peakTime(this.home)).slice(0, MOST_LIVES);
    return this.largest;
  },

  /** A bar for each: from when to when it is there, with an arrow from the peak to the step that it waits for. */
  drawLives(pen) {
    const {begin, end, last} = this.stays, now = this.peakTime(this.home), right = LEFT + this.across;
    const clip = x => Math.max(LEFT, Math.min(right, x));
    const about = [`lifetimes of the largest values at the peak of ${shortened(this.home.name)}, the largest first; arrows lead to the last reader, for which they wait`,
      "lifetimes at the peak, arrows to the last reader", "lifetimes"];
    this.label(pen, about.find((text, k) => k === 2 || pen.measureText(text).width < this.across), LEFT, this.livesTop + 6, "left");
    const names = this.lives().map(k => this.values.at(this.columns.value[k])), labels = shortenedApart(names);
    this.lives().forEach((k, row) => {
      const top = this.livesTop + 16 + row * LIFE, middle = top + LIFE / 2, value = this.columns.value[k], colour = this.colours.kinds[this.kindOf(k)];
      const left = clip(this.x(begin[k])), until = clip(this.x(end[k])), name = names[row];
      const kind = this.head.kinds[this.columns.kind[k]].label, told = kind === "values" ? "" : `, ${kind}`;
      const size = `${labels[row] === name ? "" : `${name}: `}${this.size(this.columns.size[value])}${told}`;
      this.label(pen, labels[row], LEFT - 6, middle, "right", "ink");
      pen.fillStyle = colour;
      if (this.x(end[k]) > LEFT && this.x(begin[k]) < right) pen.fillRect(left, top + 2, Math.max(until - left, 1), LIFE - 4);
      const read = last(k), waits = read >= 0 && this.columns.start[read] > now;
      const from = clip(this.x(now)), to = read < 0 ? from : clip(this.x(this.columns.start[read]));
      if (waits && to > from + 4) this.arrow(pen, from, to, middle, inkOn(colour));
      const full = waits ? `${size}, waits for ${this.stepName(read)}` : `${size}, ${read < 0 ? "nothing reads it" : `read by ${this.stepName(read)} at the peak`}`;
      const spare = Math.max(right - until - 6, left - LEFT - 6, until - left - 8);
      const note = pen.measureText(full).width < spare ? full : size, room = pen.measureText(note).width, after = until + 6 + room < right;
      if (after || left - 6 - room > LEFT) this.label(pen, note, after ? until + 6 : left - 6, middle, after ? "left" : "right");
      else {
        pen.fillStyle = colour;
        pen.fillRect(left, top + 2, room + 10, LIFE - 4);
        pen.fillStyle = inkOn(colour);
        pen.textAlign = "left";
        pen.fillText(note, left + 4, middle);
      }
    });
    const x = this.x(now);
    if (x < LEFT || x > right) return;
    pen.strokeStyle = this.colours.budget;
    pen.beginPath();
    pen.moveTo(x, this.livesTop + 14);
    pen.lineTo(x, this.livesTop + 16 + LIFE * this.lives().length);
    pen.stroke();
  },

  arrow(pen, from, to, y, colour) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(from, y);
    pen.lineTo(to - 4, y);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(to, y);
    pen.lineTo(to - 6, y - 3.5);
    pen.lineTo(to - 6, y + 3.5);
    pen.fill();
  },

  /** From what bytes are for to the parts of the program, and back. */
  switchColours() {
    if (!this.head.groups) return;
    this.colourBy(this.by === "kind" ? "group" : "kind");
    for (const legend of document.querySelectorAll("[data-by]")) legend.hidden = legend.dataset.by !== this.by;
    this.layout();
    this.tell();
  },
});
