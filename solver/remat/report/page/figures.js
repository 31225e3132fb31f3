// Columns, levels of detail, and figures as people read them. No drawing here.

/** Unpack what Python packed (see data.py): a column for each entry, typed arrays of whole numbers, or texts. */
async function unpack(head, encoded) {
  const packed = Uint8Array.fromBase64 ? Uint8Array.fromBase64(encoded)
    : Uint8Array.from(atob(encoded), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const found = {};
  let at = 0;
  for (const entry of head.columns) {
    const length = entry.bytes ?? entry.count * entry.width;
    const part = bytes.subarray(at, at + length);
    found[entry.name] = entry.bytes === undefined ? numbers(part, entry) : new TextDecoder().decode(part).split("\n");
    at += length;
  }
  return found;
}

function numbers(part, {count, width, differences}) {
  const wide = width > 3 || (differences && width > 2);
  const found = wide ? new Float64Array(count) : new Int32Array(count);
  let sum = 0;
  for (let k = 0; k < count; k++) {
    let unsigned = 0;
    for (let plane = width - 1; plane >= 0; plane--) unsigned = unsigned * 256 + part[plane * count + k];
    const value = unsigned % 2 ? -(unsigned + 1) / 2 : unsigned / 2;
    found[k] = differences ? (sum += value) : value;
  }
  return found;
}

/** Names of tasks or values: numbered runs ([prefix, first, count]), or a list. */
class Names {
  constructor({runs, count}, listed) {
    this.runs = runs;
    this.listed = listed;
    this.count = count;
    this.starts = [];
    let total = 0;
    for (const run of runs ?? []) { this.starts.push(total); total += run[2]; }
  }
  at(index) {
    if (this.listed) return this.listed[index];
    const run = upper(this.starts, index) - 1;
    const [prefix, first] = this.runs[run];
    return first === null ? prefix : prefix + (first + index - this.starts[run]);
  }
}

/** The first index of a sorted array whose entry is above a figure. */
function upper(sorted, figure, low = 0, high = sorted.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] > figure) high = middle; else low = middle + 1;
  }
  return low;
}

/** Which of some neighbours is the largest, found in blocks of blocks: O(log n) for any stretch. */
class Largest {
  constructor(values, block = 32) {
    this.values = values;
    this.block = block;
    this.levels = [];
    let below = null;
    for (let count = Math.ceil(values.length / block); count > 1 || this.levels.length === 0; count = Math.ceil(count / block)) {
      const level = new Int32Array(count);
      const length = below ? below.length : values.length;
      for (let k = 0; k < count; k++) {
        let best = below ? below[k * block] : k * block;
        for (let j = k * block, stop = Math.min(j + block, length); j < stop; j++) {
          const index = below ? below[j] : j;
          if (values[index] > values[best]) best = index;
        }
        level[k] = best;
      }
      this.levels.push(level);
      below = level;
      if (count === 1) break;
    }
  }
  /** The index of the largest of [first, stop). */
  of(first, stop) {
    let best = first;
    const take = index => {                        // of equal ones the first
      if (this.values[index] > this.values[best] || (this.values[index] === this.values[best] && index < best)) best = index;
    };
    const visit = (level, low, high) => {         // in units of that level; -1: the values themselves
      if (high - low <= 2 * this.block || level + 1 >= this.levels.length) {
        for (let k = low; k < high; k++) take(level < 0 ? k : this.levels[level][k]);
        return;
      }
      const left = Math.ceil(low / this.block), right = Math.floor(high / this.block);
      for (let k = low; k < left * this.block; k++) take(level < 0 ? k : this.levels[level][k]);
      for (let k = right * this.block; k < high; k++) take(level < 0 ? k : this.levels[level][k]);
      visit(level + 1, left, right);
    };
    visit(-1, first, stop);
    return best;
  }
}

/** Stays that cover an instant: sorted by their begin, with the latest end of each block. */
class Cover {
  constructor(begin, end) {
    this.begin = begin;
    this.end = end;
    this.latest = new Largest(end);
  }
  /** Call back with each index whose [begin, end) holds a time. */
  at(time, found) {
    const stop = upper(this.begin, time), {levels, block} = this.latest;
    const visit = (level, low, high) => {          // blocks of a level; -1: the stays themselves
      for (let k = low; k < Math.min(high, Math.ceil(stop / block ** (level + 1))); k++) {
        if (level < 0) { if (this.end[k] > time) found(k); }
        else if (this.end[levels[level][k]] > time) visit(level - 1, k * block, (k + 1) * block);
      }
    };
    if (stop > 0) visit(levels.length - 1, 0, levels.at(-1).length);
  }
}

/** Steps of one processor or channel, one after the other, with the time of each phase up to each of them. */
class Track {
  constructor(steps, start, end, phase) {
    this.steps = steps;
    this.start = Float64Array.from(steps, step => start[step]);
    this.end = Float64Array.from(steps, step => end[step]);
    this.phase = Uint8Array.from(steps, step => phase[step]);
    this.phases = [...new Set(this.phase)].sort((a, b) => a - b);
    this.before = this.phases.map(wanted => this.sums(k => this.phase[k] === wanted));
  }
  sums(counts) {
    const before = new Float64Array(this.steps.length + 1);
    for (let k = 0; k < this.steps.length; k++) {
      before[k + 1] = before[k] + (counts(k) ? this.end[k] - this.start[k] : 0);
    }
    return before;
  }
  /** How much of [0, time) the steps take that `before` counts. */
  until(before, time) {
    const k = upper(this.start, time) - 1;
    if (k < 0) return 0;
    const last = before[k + 1] - before[k];
    return before[k] + Math.min(last, last ? time - this.start[k] : 0);
  }
  /** The step that runs at a time, or -1. */
  at(time) {
    const k = upper(this.start, time) - 1;
    return k >= 0 && time < this.end[k] ? this.steps[k] : -1;
  }
}

/** A figure with at most so many digits; with commas between thousands, if so asked. */
function digits(number, most, commas = false) {
  const rounded = Number(number.toPrecision(most));
  return commas ? WITH_COMMAS.format(rounded) : String(rounded);
}
const WITH_COMMAS = new Intl.NumberFormat("en", {maximumFractionDigits: 15});

const SIZES = {1000: ["B", "kB", "MB", "GB", "TB", "PB", "EB"], 1024: ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]};

/** A size in the unit that suits it. */
function sizeText(size, {memory, base}) {
  if (memory === "unit") return Math.round(size).toLocaleString("en");
  let power = 0;
  while (power < 6 && Math.abs(size) >= base ** (power + 1)) power++;
  return power ? `${digits(size / base ** power, 4)} ${SIZES[base][power]}` : `${Math.round(size)} B`;
}

/** A budget or a peak, rounded up at the last digit: a schedule for it fits what is printed. */
function budgetText(size, units) {
  const text = sizeText(size, units), [number, name] = text.split(" "), {memory, base} = units;
  const power = memory === "unit" ? 0 : SIZES[base].indexOf(name);
  if (!power || Number(number) * base ** power >= size * (1 - 1e-14)) return text;
  return `${digits(Number(number) + 10 ** (Math.floor(Math.log10(Number(number))) - 3), 4)} ${name}`;
}

const SECONDS = {s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9};

function timeText(time, unit, most = 5) {
  if (unit === "unit") return Number.isInteger(time) ? time.toLocaleString("en") : digits(time, 6);
  const seconds = Number((time * SECONDS[unit]).toPrecision(most));
  if (seconds === 0) return "0 s";
  const name = Object.keys(SECONDS).find(key => Math.abs(seconds) >= SECONDS[key]) ?? "ns";
  return `${digits(seconds / SECONDS[name], most)} ${name === "us" ? "µs" : name}`;
}

/** About `count` round figures between two, `least` or more apart. */
function ticks(low, high, count, least = 0) {
  const raw = Math.max((high - low) / Math.max(count, 1), least), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high * (1 + 1e-12); k++) found.push(k * step);
  return found;
}

/** The same of sizes: all in one unit, and round in it. */
function sizeTicks(most, {memory, base}, count = 4) {
  if (memory === "unit") return {ticks: ticks(0, most, count, 1), factor: 1, unit: ""};
  let factor = 1, power = 0;
  while (most >= factor * base && power < 6) { factor *= base; power++; }
  const least = power ? 0 : 1, some = ticks(0, most / factor, count, least);
  const found = some.length > 1 ? some : ticks(0, most / factor, 2 * count, least);
  return {ticks: found.map(tick => tick * factor), factor, unit: ` ${SIZES[base][power]}`};
}

if (typeof module !== "undefined") module.exports = {unpack, Names, upper, Largest, Cover, Track, sizeText, budgetText, timeText, ticks, sizeTicks};
