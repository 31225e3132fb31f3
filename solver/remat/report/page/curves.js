// Time-memory curves: stairs on a canvas, and the figures at the budget under the pointer.
"use strict";

(() => {
  const head = JSON.parse(document.getElementById("head").textContent), canvas = document.getElementById("curves");
  const tip = document.getElementById("tip"), {units, curves, bounds, reference} = head;
  const LEFT = 78, RIGHT = 78, TOP = 26, BOTTOM = 44;
  let factor = 1;
  while (SIZES[units.base][Math.round(Math.log(factor) / Math.log(units.base))] !== head.unit && units.memory !== "unit") factor *= units.base;
  const every = curves.flatMap(curve => curve.points), sizes = every.map(point => point[0]), times = every.map(point => point[1]);
  const least = Math.min(...sizes), most = Math.max(...sizes, 1), pad = (most - least) * 0.06 || 1;
  const range = head.logarithmic ? [least / 1.15, most * 1.25] : [Math.max(0, least - pad), most + pad];
  const low = Math.min(...times, reference), high = head.top, room = (high - low) || high || 1;
  const bend = head.logarithmic ? Math.log : x => x, rise = head.logarithmic_time ? Math.log : x => x;
  const span = head.logarithmic_time ? [low / 1.15, high * 1.3] : [Math.max(0, low - 0.08 * room), high + 0.1 * room];
  let width = 0, height = 0, pointed = null;

  const across = size => LEFT + (bend(size) - bend(range[0])) / (bend(range[1]) - bend(range[0])) * (width - LEFT - RIGHT);
  // Of times above the axis, the figures are at its upper edge.
  const down = time => time > span[1] ? 2 : TOP + (rise(span[1]) - rise(time)) / (rise(span[1]) - rise(span[0])) * (height - TOP - BOTTOM);
  const sizeAt = x => {
    const at = bend(range[0]) + (x - LEFT) / (width - LEFT - RIGHT) * (bend(range[1]) - bend(range[0]));
    return head.logarithmic ? Math.exp(at) : at;
  };

  /** 1.5, 2, 3, 4, ... of bytes, 1, 2, 5, 10, ... of all else; of many only the powers, or some of them. */
  function ratioTicks(from, to, binary) {
    const base = binary ? 2 : 10;
    let found = [];
    for (const steps of [binary ? [1, 1.5] : [1, 2, 5], [1]]) {
      found = [];
      for (let power = Math.floor(Math.log(from) / Math.log(base)) - 1; power <= Math.log(to) / Math.log(base); power++) {
        for (const step of steps) { const tick = step * base ** power; if (tick >= from && tick <= to) found.push(tick); }
      }
      if (found.length <= 8) break;
    }
    return found.filter((_, k) => k % Math.ceil(found.length / 8) === 0);
  }
  function memoryTicks() {
    const [from, to] = range.map(size => size / factor), bytes = units.memory !== "unit";
    return head.logarithmic ? ratioTicks(from, to, bytes && units.base === 1024) : ticks(from, to, Math.max(3, width / 130), bytes ? 0 : 1);
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    width = Math.max(300, canvas.parentElement.clientWidth);
    height = Math.min(560, Math.max(300, width * 0.5));
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.height = `${height}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue(`--${name}`).trim();
    const write = (text, x, y, align, paint = "soft") => { pen.fillStyle = paint[0] === "#" ? paint : colour(paint); pen.textAlign = align; pen.fillText(text, x, y); };
    pen.font = `12px ${colour("font")}`;
    pen.textBaseline = "middle";
    const seconds = SECONDS[units.time] ?? 1, name = Object.keys(SECONDS).find(one => high * seconds >= SECONDS[one]) ?? "ns";
    const scale = units.time === "unit" ? 1 : SECONDS[name] / seconds, unit = units.time === "unit" ? "" : ` (${name === "us" ? "µs" : name})`;
    const [first, last] = span.map(time => time / scale);
    for (const tick of head.logarithmic_time ? ratioTicks(first, last, false) : ticks(first, last, 6)) {
      const y = down(tick * scale);
      pen.fillStyle = colour("line");
      pen.fillRect(LEFT, Math.round(y), width - LEFT - RIGHT, 1);
      write(digits(tick, 6, true), LEFT - 8, y, "right");
      if (reference) write(`${tick * scale >= reference ? "+" : "−"}${digits(Math.abs(100 * (tick * scale / reference - 1)), 3, true)} %`, width - RIGHT + 6, y, "left");
    }
    for (const tick of memoryTicks()) {
      const x = across(tick * factor);
      pen.fillStyle = colour("line");
      pen.fillRect(Math.round(x), TOP, 1, height - TOP - BOTTOM + 4);
      write(digits(tick, 4, true), x, height - BOTTOM + 14, "center");
    }
    write(`peak of ${head.memory}${units.memory === "unit" ? "" : ` (${head.unit})`}`, (LEFT + width - RIGHT) / 2, height - 10, "center", "ink");
    pen.save();
    pen.translate(12, (TOP + height - BOTTOM) / 2);
    pen.rotate(-Math.PI / 2);
    write(`makespan${unit}`, 0, 0, "center", "ink");
    pen.restore();
    if (reference) write("overhead", width - RIGHT + 6, 9, "left");
    const dark = style.colorScheme === "dark", paint = curve => dark && curve.colour === "#000000" ? "#FFFFFF" : curve.colour;
    pen.setLineDash([5, 3]);
    pen.strokeStyle = colour("soft");
    pen.beginPath();
    bounds.forEach(([budget, time], k) => {           // a bound for a budget holds for all smaller ones
      const x = Math.min(Math.max(across(budget ?? range[1]), LEFT), width - RIGHT);
      if (k === 0) pen.moveTo(LEFT, down(time)); else pen.lineTo(pen.last, down(time));
      pen.lineTo(x, down(time));
      pen.last = x;
    });
    pen.stroke();
    pen.setLineDash([]);
    const placed = [];
    curves.forEach(curve => {
      pen.strokeStyle = pen.fillStyle = paint(curve);
      pen.lineWidth = 1.8;
      pen.beginPath();
      curve.points.forEach(([size, time], k) => {
        if (k) pen.lineTo(across(size), down(curve.points[k - 1][1])); else pen.moveTo(across(size), down(time));
        pen.lineTo(across(size), down(time));
      });
      pen.lineTo(width - RIGHT, down(curve.points.at(-1)[1]));
      pen.stroke();
      curve.points.forEach(([, time], k) => {
        const next = (curve.points[k + 1] ?? curve.points[k])[0];
        if (time > span[1]) write(`\u2191 ${curve.texts[k]}`, across(next) + 6, TOP + 12, "left", paint(curve));
      });
      for (const [size, time] of curve.points) { pen.beginPath(); pen.arc(across(size), down(time), 2.6, 0, 7); pen.fill(); }
      if (curve.knee >= 0) { const [size, time] = curve.points[curve.knee]; pen.beginPath(); pen.arc(across(size), down(time), 6.5, 0, 7); pen.stroke(); }
      pen.lineWidth = 1;
      const [size, time] = curve.points.find(([, time]) => time <= span[1]) ?? curve.points[0], x = across(size) + 8;
      let y = down(time) - 9, by = -14;
      while (placed.some(other => Math.abs(other[1] - y) < 13 && Math.abs(other[0] - x) < 190)) {
        y += by;
        if (y < 8) { by = 14; y = down(time) + 10; }
      }
      placed.push([x, y]);
      write(curve.name, x, y, "left", paint(curve));
    });
    if (pointed !== null) {
      const x = across(pointed);
      pen.strokeStyle = colour("ink");
      pen.globalAlpha = 0.5;
      pen.beginPath();
      pen.moveTo(x, TOP);
      pen.lineTo(x, height - BOTTOM);
      pen.stroke();
      pen.globalAlpha = 1;
    }
    document.documentElement.dataset.drawn ??= performance.now().toFixed(1);
  }

  /** The best point of each curve within a budget. */
  const within = budget => curves.map(curve => {
    let best = -1;
    curve.points.forEach(([size], k) => { if (size <= budget) best = k; });
    return best;
  });

  canvas.addEventListener("pointermove", event => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left;
    pointed = x < LEFT || x > width - RIGHT ? null : sizeAt(x);
    tip.hidden = pointed === null;
    if (pointed !== null) {
      const lines = [`within ${sizeText(Math.floor(pointed), units)}`, ...within(pointed).map((best, k) =>
        `${curves[k].name}: ${best < 0 ? "no schedule found" : curves[k].texts[best]}`)];
      tip.replaceChildren(...lines.map((text, k) => {
        const line = document.createElement(k ? "span" : "b");
        line.textContent = text;
        if (k) line.style.color = curves[k - 1].colour === "#000000" ? "" : curves[k - 1].colour;
        return line;
      }));
      tip.style.left = `${x + 14 + tip.offsetWidth > width ? Math.max(0, x - tip.offsetWidth - 14) : x + 14}px`;
      tip.style.top = "16px";
    }
    draw();
  });
  canvas.addEventListener("pointerleave", () => { pointed = null; tip.hidden = true; draw(); });
  new ResizeObserver(draw).observe(canvas.parentElement);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.curves = {within};
  draw();
})();
