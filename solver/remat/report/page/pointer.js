// What somebody points at, types and looks for.
"use strict";

const NUMBERED = /^[A-Za-z]+(\d+(?:\.\d+)?)$/;
const MOST_TOLD = 3;                 // values beside the pointer; the table has more

/** Steps and values whose names have all words of a text. */
function matchesOf(page, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const fits = name => { const low = name.toLowerCase(); return words.every(word => low.includes(word)); };
  const {item, phase, value, memory, size, kind} = page.columns;
  const tasks = Uint8Array.from({length: page.tasks.count}, (_, k) => fits(page.taskName(k)));
  const values = Uint8Array.from({length: page.values.count}, (_, k) => fits(page.valueName(k)));
  const step = k => phase[k] === page.head.copy ? values[item[k]] : phase[k] ? tasks[item[k]] : 0;
  const lines = new Map();
  page.memories.forEach((place, index) => {
    const chosen = [];
    for (let k = 0; k < value.length; k++) if (memory[k] === index && values[value[k]] && size[value[k]]) chosen.push(k);
    if (chosen.length) lines.set(place, sumOver(chosen, page.stays, k => size[value[k]]));
  });
  const known = new Map();
  const of = track => {
    if (!known.has(track)) known.set(track, track.sums(k => step(track.steps[k])));
    return known.get(track);
  };
  let steps = 0;
  for (let k = 0; k < item.length; k++) steps += step(k) ? 1 : 0;
  const owner = one => one % 2 ? tasks[(one - 1) / 2] : values[one / 2];
  return {step, owner, lines, of, steps, values: values.reduce((sum, one) => sum + one, 0)};
}

/** The bytes of some stays together, as points over time. */
function sumOver(chosen, {begin, end}, size) {
  const count = chosen.length, order = Array.from(chosen).sort((a, b) => end[a] - end[b]);
  const time = [], total = [];
  for (let i = 0, j = 0, sum = 0; j < count;) {            // what ends at an instant goes before what begins there
    const ends = i >= count || end[order[j]] <= begin[chosen[i]];
    const at = ends ? end[order[j]] : begin[chosen[i]];
    sum += ends ? -size(order[j++]) : size(chosen[i++]);
    if (time.length && time.at(-1) === at) total[total.length - 1] = sum;
    else { time.push(at); total.push(sum); }
  }
  return {time: Float64Array.from(time), total: Float64Array.from(total), largest: new Largest(Float64Array.from(total))};
}

/** The residency at a time and an address; -1 where there is none. */
function boxAt({begin, end, low, high}, time, address) {
  for (let k = upper(begin, time) - 1; k >= 0; k--) {
    if (end[k] > time && low[k] <= address && address < high[k]) return k;
  }
  return -1;
}

Object.assign(Page.prototype, {
  // ------------------------------------------------------------------------------------------- moving

  show(from, to) {
    const wide = Math.min(Math.max(to - from, this.span * SHORTEST), this.span);
    const low = Math.min(Math.max(from, 0), this.span - wide);
    this.view = [low, low + wide];
    this.changed();
  },
  zoom(factor, time = (this.view[0] + this.view[1]) / 2) {
    const [from, to] = this.view;
    this.show(time - (time - from) * factor, time + (to - time) * factor);
  },
  pan(share) {
    const by = (this.view[1] - this.view[0]) * share;
    this.show(this.view[0] + by, this.view[1] + by);
  },
  /** Bring an instant to the middle, and point at it. */
  goTo(time, memory) {
    const half = (this.view[1] - this.view[0]) / 2;
    if (time < this.view[0] || time > this.view[1]) this.show(time - half, time + half);
    this.pinned = true;
    this.point({time, memory});
  },
  goToPeak() {
    const used = this.memories.filter(memory => memory.used), first = used.indexOf(this.home);
    const shown = [...used.slice(first), ...used.slice(0, first)], now = shown.indexOf(this.peaked);
    const memory = this.peaked = shown[(now + 1) % shown.length];
    if (this.view[1] - this.view[0] === this.span) this.zoom(0.2, this.peakTime(memory));
    this.reveal(memory);
    this.goTo(this.peakTime(memory), memory);
  },
  /** To the next (or previous) instant at which the bytes of a memory change. */
  step(by) {
    const memory = this.cursor?.memory ?? this.panels[0].memory, now = this.cursor?.time ?? this.view[0];
    let k = upper(memory.time, now) - 1;
    do k += by; while (k > 0 && k < memory.time.length && memory.time[k] === now);
    if (k >= 0 && k < memory.time.length) this.goTo(memory.time[k], memory);
  },
  nextMatch(by) {
    if (!this.matches?.steps) return;
    const {start} = this.columns, now = this.cursor?.time ?? this.view[0] - 1;
    let best = -1;
    for (let k = 0; k < start.length; k++) {
      if (this.matches.step(k) && (start[k] - now) * by > 0 && (best < 0 || (start[k] - start[best]) * by < 0)) best = k;
    }
    if (best >= 0) this.goTo(start[best]);
  },
  filter(text) {
    this.matches = matchesOf(this, text);
    const found = this.matches;
    document.getElementById("found").textContent =
      found ? `${found.steps.toLocaleString("en")} steps, ${found.values.toLocaleString("en")} values` : "";
    this.changed();
  },

  // ----------------------------------------------------------------------------------------- pointing

  /** What is at a place of the picture. */
  at(x, y) {
    if (x < LEFT || x > LEFT + this.across) return null;
    const time = this.timeAt(x), panel = this.panels.find(({top, height}) => y >= top && y < top + height);
    if (panel?.boxes) {
      const {memory, boxes, base, scale} = panel, address = (base - y) / scale;
      return {time, memory, panel, box: boxAt(boxes, time, address)};
    }
    if (panel) {
      const {memory, base, scale} = panel, k = upper(memory.time, time) - 1;
      let bytes = (base - y) / scale, kind;
      memory.kinds.some((one, i) => {
        bytes -= memory.bytes[i][k];
        if (bytes < 0) kind = one;
        return bytes < 0;
      });
      return {time, memory, kind};
    }
    const row = this.rows.find(({top, height}) => y >= top && y < top + height);
    if (!row) return null;
    // Below the operations of a device are the transfers that it sends.
    const sent = y >= row.top + row.height - SENT ? row.sends : undefined, sends = sent?.find(one => one.track.at(time) >= 0) ?? sent?.[0];
    const found = sends ?? row;
    return {time, row: found, below: row, step: found.track.at(time)};
  },

  point(cursor) {
    this.cursor = cursor;
    this.drawCursor();
    this.tell();
  },

  drawCursor() {
    const pen = this.overlay.getContext("2d");
    pen.clearRect(0, 0, this.width, this.height);
    if (this.band) {
      pen.fillStyle = this.colours.accent;
      pen.globalAlpha = 0.15;
      pen.fillRect(this.band[0], this.contentTop, this.band[1] - this.band[0], this.axisTop - this.contentTop);
      pen.globalAlpha = 1;
    }
    if (!this.cursor) return;
    const x = this.x(this.cursor.time);
    if (x < LEFT || x > LEFT + this.across) return;
    pen.strokeStyle = this.colours.ink;
    pen.globalAlpha = this.pinned ? 0.9 : 0.5;
    pen.beginPath();
    pen.moveTo(x, this.contentTop);
    pen.lineTo(x, this.axisTop);
    pen.stroke();
    pen.globalAlpha = 1;
  },

  /** The stays in a memory at a time, largest first; of one kind, if so asked. */
  residents(memory, time, kind) {
    const index = this.memories.indexOf(memory), {columns} = this, found = [];
    this.stays.cover.at(time, k => {
      if (columns.memory[k] === index && (kind === undefined || this.kindOf(k) === kind)) found.push(k);
    });
    const size = k => columns.size[columns.value[k]];
    return found.sort((a, b) => size(b) - size(a) || a - b);
  },

  /** Since when a value is there, until when, and why. */
  story(k) {
    const {born, uses} = this.columns, {begin, end, until, last} = this.stays;
    const by = born[k] < 0 ? "there from the start" : `${this.columns.phase[born[k]] === this.head.copy ? "brought by" : "made by"} ${this.stepName(born[k])}`;
    const read = last(k), many = uses[k] > 1 ? `, last of ${uses[k].toLocaleString("en")} reads` : "";
    const why = read < 0 ? "nothing reads it here" : `${this.stepName(read)} at ${this.time(this.columns.start[read])}${many}`;
    return {since: this.time(begin[k]), by, until: until[k] < 0 ? "the end" : this.time(end[k]), why};
  },

  tell() {
    const tip = document.getElementById("tip"), {cursor} = this;
    tip.hidden = !cursor;
    this.list(cursor ?? {time: this.peakTime(this.home), memory: this.home, peak: true});
    if (!cursor) return;
    const lines = cursor.row ? this.aboutStep(cursor) : cursor.box >= 0 ? this.aboutBox(cursor) : this.aboutMemory(cursor);
    tip.replaceChildren(...lines.map(([tag, text, style]) => {
      const line = document.createElement(tag);
      line.textContent = text;
      if (style) line.className = style;
      return line;
    }));
    const x = this.x(cursor.time), wide = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(x + 14 + wide > this.width ? x - wide - 14 : x + 14, this.width - wide))}px`;
    const panel = cursor.panel ?? this.panels.find(panel => panel.memory === cursor.memory) ?? this.panels[0];
    const y = cursor.row ? cursor.below.top + cursor.below.height + 4 : 26 + panel.top;
    tip.style.top = `${y}px`;
  },

  aboutBox({time, memory, box}) {
    const {first, last, begin, end, low, high, owner} = memory.boxes, shown = this.kindOfBox(memory.boxes, box);
    const by = step => step < 0 ? "" : ` (${this.stepName(step)})`, plain = address => address.toLocaleString("en");
    return [
      ["b", `${this.time(time)} · ${this.ownerName(owner[box])} in ${memory.name}`],
      ["span", `${this.legend[shown].label} ${this.size(high[box] - low[box])}`, `${this.by}-${shown}`],
      ["span", `addresses ${plain(low[box])} to ${plain(high[box])}`, "told"],
      ["span", `${this.time(begin[box])}${by(first[box])} to ${this.time(end[box])}${by(last[box])}`, "told"],
    ];
  },

  aboutMemory({time, memory = this.panels[0].memory, kind}) {
    const k = upper(memory.time, time) - 1, lines = [["b", `${this.time(time)} · ${this.size(memory.total[k])} in ${memory.name}`]];
    if (kind === undefined) {
      memory.kinds.forEach((one, i) => memory.bytes[i][k] && lines.push(["span", `${this.legend[one].label} ${this.size(memory.bytes[i][k])}`, `${this.by}-${one}`]));
      return lines;
    }
    const {label, meaning} = this.legend[kind];
    lines.push(["span", `${label} ${this.size(memory.bytes[memory.kinds.indexOf(kind)][k])}${meaning ? `: ${meaning}` : ""}`, `${this.by}-${kind}`]);
    const found = this.residents(memory, time, kind);
    for (const stay of found.slice(0, MOST_TOLD)) {
      const value = this.columns.value[stay], {since, by, until} = this.story(stay);
      lines.push(["span", `${this.valueName(value)}, ${this.size(this.columns.size[value])}, ${by}: ${since} to ${until}`, "told"]);
    }
    if (found.length > MOST_TOLD) lines.push(["span", `and ${(found.length - MOST_TOLD).toLocaleString("en")} more, listed below`, "soft"]);
    return lines;
  },

  aboutStep({time, row, step}) {
    if (step < 0) return [["b", `${this.time(time)} · ${row.name} is idle`]];
    const {start, length, phase, born, value, size} = this.columns, {until} = this.stays, made = [], freed = [];
    for (let k = 0; k < born.length; k++) {
      if (born[k] === step) made.push(value[k]);
      if (until[k] === step) freed.push(value[k]);
    }
    const named = list => list.slice(0, 5).map(k => `${this.valueName(k)} (${this.size(size[k])})`).join(", ") + (list.length > 5 ? `, ${list.length - 5} more` : "");
    const lines = [["b", this.stepName(step)], ["span", `${this.head.phases[phase[step]]} on ${row.name}, step ${step.toLocaleString("en")}`, `phase-${phase[step]}`],
      ...this.aboutPass(time, row),
      ["span", `${this.time(start[step])} to ${this.time(start[step] + length[step])}, ${this.time(length[step])}`]];
    if (made.length) lines.push(["span", `makes ${named(made)}`]);
    if (freed.length) lines.push(["span", `frees ${named(freed)}`]);
    return lines;
  },

  /** The table below the picture: the largest at the cursor, or where the fullest memory is fullest. */
  list({time, row, memory = this.memories[row?.memory] ?? this.panels[0].memory, kind, peak}) {
    const found = this.residents(memory, time, kind), body = document.getElementById("residents");
    const about = kind === undefined ? "" : `, ${this.legend[kind].label}`, total = memory.total[upper(memory.time, time) - 1];
    const when = peak ? `At the peak of ${memory.name}, ${this.time(time)}` : `${memory.name} at ${this.time(time)}`;
    const first = peak && memory.moments > 1 ? `, the first of ${memory.moments.toLocaleString("en")} such moments` : "";
    const all = peak ? `, ${this.budget(memory.peak)} while ${memory.cause} runs${first}` : "";
    document.getElementById("when").textContent = `${when}${about}: ${found.length.toLocaleString("en")} values${memory.static ? " and static memory" : ""}${all}`;
    const sizeOf = group => group.reduce((sum, k) => sum + this.columns.size[this.columns.value[k]], 0);
    const {groups, alone} = this.together(found), listed = [...groups, ...alone.slice(0, MOST_LISTED).map(k => [k])];
    const shown = listed.map(group => ({size: sizeOf(group), group})).sort((a, b) => b.size - a.size).slice(0, MOST_LISTED);
    const rows = shown.map(({size, group}) => {
      const [k] = group, use = this.head.kinds[this.columns.kind[k]].label;
      const {since, by, until, why} = this.story(k);
      const texts = group.length > 1 ? this.aboutGroup(group, use) : [this.valueName(this.columns.value[k]), use, `${since}, ${by}`, why, until];
      return {size, style: `${this.by}-${this.kindOf(k)}`, texts};
    });
    if (kind === undefined) rows.push(...this.noValues(memory, time));
    body.replaceChildren(...rows.sort((a, b) => b.size - a.size).map(({size, style, texts: [name, use, since, why, until]}) => {
      const row = document.createElement("tr"), share = total ? `${Math.round(100 * size / total)} %` : "";
      for (const [text, look] of [[name, `name ${style}`], [this.size(size), "figure"], [share], [use], [since], [why], [until]]) {
        const cell = row.insertCell();
        cell.textContent = text;
        if (look) cell.className = look;
      }
      return row;
    }));
    const left = sizeOf(found) - shown.reduce((sum, {size}) => sum + size, 0);
    const more = found.length - shown.reduce((sum, {group}) => sum + group.length, 0);
    document.getElementById("more").textContent = more > 0 ? `and ${more.toLocaleString("en")} smaller ones, ${this.size(left)} together` : "";
  },

  /** Values of one kind that are there for good, or of one micro-batch, in groups; and the others. */
  together(found) {
    const {kind, value, born} = this.columns, {until} = this.stays, groups = new Map(), alone = [];
    for (const k of found) {
      const lasting = born[k] < 0 && until[k] < 0, alike = this.head.values.runs && (lasting || this.head.passes);
      const number = alike ? NUMBERED.exec(this.values.at(value[k]))?.[1] : undefined;
      if (!number) { alone.push(k); continue; }
      const key = `${kind[k]} ${number.split(".")[1]} ${lasting}`;
      if (groups.has(key)) groups.get(key).push(k); else groups.set(key, [k]);
    }
    return {groups: [...groups.values()], alone};
  },
  aboutGroup(group, use) {
    const {value, born} = this.columns, {begin, end, until} = this.stays;
    const numbers = group.map(k => NUMBERED.exec(this.values.at(value[k]))[1].split("."));
    const layers = [...new Set(numbers.map(([layer]) => Number(layer)))].sort((a, b) => a - b), ranges = [];
    for (const layer of layers) if (ranges.at(-1)?.[1] === layer - 1) ranges.at(-1)[1] = layer; else ranges.push([layer, layer]);
    const listed = ranges.map(([low, high]) => low === high ? low : `${low}-${high}`).join(", "), [[, batch]] = numbers;
    const name = `${use} of ${this.head.passes ? "layer" : "stage"}${layers.length > 1 ? "s" : ""} ${listed}${batch === undefined ? "" : `, micro-batch ${batch}`}`;
    const span = (times, last) => {
      const [low, high] = [Math.min(...times), Math.max(...times)].map(time => this.time(time)), [figure, unit] = low.split(" ");
      return low === high ? low : last ? `${low} to ${last}` : `${high.endsWith(` ${unit}`) ? figure : low} to ${high}`;
    };
    const lasting = group.every(k => born[k] < 0), kept = group.some(k => until[k] < 0);
    const ends = group.every(k => until[k] < 0) ? "the end" : span(group.map(k => end[k]), kept ? "the end" : undefined);
    return [`${name}, ${group.length} values`, use, lasting ? "0 s, there from the start" : span(group.map(k => begin[k])), "", ends];
  },

  /** What lies in a memory without being a value: static memory, and the workspace of what runs. */
  noValues(memory, time) {
    const {static: fixed, workspace, groups} = this.head, {rows, bytes} = memory.sets.kind, at = rows.indexOf(workspace);
    const work = at < 0 ? 0 : bytes[at][upper(memory.time, time) - 1];
    const style = (kind, extra) => this.by === "kind" ? `kind-${kind}` : `group-${groups.extra + extra}`;
    return [
      {size: memory.static, style: style(fixed, 0), texts: ["static memory (not a value)", this.head.static_use, "0 s, there from the start", "", "the end"]},
      {size: work, style: style(workspace, 1), texts: ["workspace (not a value)", this.head.kinds[workspace].label, "", "what runs now", ""]},
    ].filter(({size}) => size > 0);
  },

  // -------------------------------------------------------------------------------------------- hands

  listen() {
    const {canvas} = this, held = new Map();
    const place = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    canvas.addEventListener("wheel", event => {
      const [x] = place(event);
      if (x < LEFT) return;                        // beside the picture the page scrolls
      event.preventDefault();
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / this.across);
      else this.zoom(1.0018 ** Math.max(-400, Math.min(400, event.deltaY)), this.timeAt(x));
    }, {passive: false});
    canvas.addEventListener("pointerdown", event => {
      held.set(event.pointerId, place(event));
      canvas.setPointerCapture(event.pointerId);
      this.moved = 0;
    });
    canvas.addEventListener("pointermove", event => {
      const now = place(event), before = held.get(event.pointerId);
      if (!before) { if (!this.pinned) this.point(this.at(...now)); return; }
      const others = [...held.entries()].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      held.set(event.pointerId, now);
      this.moved += Math.abs(now[0] - before[0]);
      if (others.length) {                         // two fingers
        const [[x]] = others, wide = Math.abs(now[0] - x);
        if (wide > 8) this.zoom(Math.abs(before[0] - x) / wide, this.timeAt((now[0] + x) / 2));
      } else if (before[1] >= this.overviewTop && before[1] <= this.overviewTop + this.overview) {
        const middle = (now[0] - LEFT) / this.across * this.span, half = (this.view[1] - this.view[0]) / 2;
        this.show(middle - half, middle + half);
        if (this.devices.length) this.scroll(Math.floor((now[1] - this.overviewTop) / (this.overview - 6) * this.devices.length - this.window[1] / 2));
      } else if (event.shiftKey) {
        this.band = [this.band?.[0] ?? before[0], now[0]];
        this.drawCursor();
      } else this.pan((before[0] - now[0]) / this.across);
    });
    const release = event => {
      if (!held.delete(event.pointerId)) return;
      if (this.band) { const [a, b] = this.band.map(x => this.timeAt(x)).sort((one, other) => one - other); this.band = null; this.show(a, b); }
      else if (event.type === "pointerup" && this.moved < 4) {     // a click pins, another one lets go
        const there = this.at(...place(event));
        this.pinned = !this.pinned && there !== null;
        this.point(there);
      }
    };
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, release);
    canvas.addEventListener("pointerleave", () => { if (!this.pinned && !held.size) this.point(null); });
    canvas.addEventListener("dblclick", () => this.show(0, this.span));
    document.addEventListener("keydown", event => this.key(event));
    const box = document.getElementById("filter");
    let waiting;
    box.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => this.filter(box.value), 120); });
    for (const button of document.querySelectorAll("button[data-key]")) {
      button.addEventListener("click", () => this.key({key: button.dataset.key, target: canvas, preventDefault() {}}));
    }
    for (const button of document.querySelectorAll("button[data-kind]")) {
      button.addEventListener("click", () => {
        const kind = Number(button.dataset.kind);
        this.only = this.only === kind ? undefined : kind;
        for (const other of document.querySelectorAll("button[data-kind]")) other.setAttribute("aria-pressed", Number(other.dataset.kind) === this.only && !other.parentElement.hidden);
        this.changed();
      });
    }
    new ResizeObserver(() => this.layout()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.layout());
  },

  key(event) {
    const box = document.getElementById("filter");
    if (event.target === box) {
      if (event.key === "Escape") { box.value = ""; this.filter(""); box.blur(); }
      if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      "+": () => this.zoom(0.5, this.cursor?.time), "=": () => this.zoom(0.5, this.cursor?.time), ArrowUp: () => this.zoom(0.5, this.cursor?.time),
      "-": () => this.zoom(2, this.cursor?.time), ArrowDown: () => this.zoom(2, this.cursor?.time),
      ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), 0: () => this.show(0, this.span), Home: () => this.show(0, this.span),
      ",": () => this.step(-1), ".": () => this.step(1), p: () => this.goToPeak(), n: () => this.nextMatch(1), N: () => this.nextMatch(-1),
      c: () => this.switchColours(), l: () => { this.living = !this.living; this.layout(); },
      PageDown: () => this.scroll(this.window[0] + this.window[1]), PageUp: () => this.scroll(this.window[0] - this.window[1]),
      y: () => { this.fitted = !this.fitted; this.changed(); },
      d: () => { const root = document.documentElement, dark = getComputedStyle(root).colorScheme === "dark"; root.dataset.theme = dark ? "light" : "dark"; this.layout(); },
      "/": () => box.focus(), "?": () => document.getElementById("help").toggleAttribute("open"),
      Escape: () => { this.pinned = false; this.point(null); },
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  },
});

async function begin() {
  const head = JSON.parse(document.getElementById("head").textContent);
  const page = new Page(head, await unpack(head, document.getElementById("data").textContent));
  window.schedule = page;
  page.listen();
  page.layout();
  requestAnimationFrame(() => setTimeout(() => {             // the picture first, then the table
    page.tell();
    document.documentElement.dataset.ready = "yes";
  }));
}
begin().catch(error => {
  document.getElementById("trouble").hidden = false;
  throw error;
});
