// Counters: a track for each below its queue pair, a cursor that goes from change to change, values in words.

const TRACK_HEIGHT = 15;
/** Tracks of a queue pair, at most. */
const MOST_TRACKS = 40;
/** At first, counters of so many queue pairs are shown: of more they would push the rows apart. */
const MOST_AT_FIRST = 2;
/** Changes that the cursor tells of, at most. */
const MOST_TOLD = 6;
/** Counters of what went wrong. */
const TROUBLE_COUNTERS = new Set(["packets sent again", "RNR NAKs"]);

/** The place of the value that holds at a time; -1: none was known yet. */
function counterPlace(counter, at) {
  const next = firstAtLeast(counter.at, at);
  return counter.at[next] === at ? lastOfTime(counter.at, next) : next - 1;
}

/** Of several values of one time, the last. */
function lastOfTime(times, place) {
  let last = place;
  while (times[last + 1] === times[place]) last++;
  return last;
}

/** The values of a counter in a stretch of time: first, least, most, last; null: none is known. */
function counterOver(counter, from, to) {
  const { at, value } = counter;
  let i = Math.max(0, counterPlace(counter, from));
  if (!(at[i] <= to)) return null;
  const found = { first: value[i], least: value[i], most: value[i], last: value[i] };
  for (; i < at.length && at[i] <= to; i++) {
    found.least = Math.min(found.least, value[i]);
    found.most = Math.max(found.most, value[i]);
    found.last = value[i];
  }
  return found;
}

/** A value with its unit. */
function valueText({ unit }, value) {
  if (unit === "ns") return timeText(value);
  return value.toLocaleString("en") + (unit && ` ${unit}`);
}

class Counters {
  constructor(page) {
    this.page = page;
    this.cursor = null;
    this.show(page.trace.used.reduce((sum, one) => sum + one, 0) <= MOST_AT_FIRST);
  }

  show(isShown) {
    this.isShown = isShown;
    byId("counters").setAttribute("aria-pressed", String(isShown));
    byId("timeline").classList.toggle("with-counters", isShown);
    this.setCursor(null);
  }

  toggle() {
    this.show(!this.isShown);
  }

  /** The counters of a queue pair that have a track below it. A completion queue's is at the first of its
   * queue pairs; `seen` has those that have one. */
  tracks(qp, seen) {
    if (!this.isShown) return [];
    const fresh = this.page.trace.countersOf[qp].filter((counter) => !seen.has(counter));
    const tracks = fresh.slice(0, MOST_TRACKS);
    tracks.forEach((counter) => seen.add(counter));
    return tracks;
  }

  draw(timeline) {
    for (const { tracks, tracksTop } of timeline.list) {
      tracks.forEach((counter, place) => {
        this.drawOne(timeline, counter, tracksTop + (place + 1) * TRACK_HEIGHT - 1);
      });
    }
    if (this.cursor !== null) this.drawCursor(timeline);
  }

  /** A lane of colours for a plane: all of its paths are GOOD, some, or none. What has left paths has less height. */
  drawPlane(timeline, counter, bottom) {
    const { context, page, width } = timeline, { at, value, most } = counter, { axis, colours } = page;
    const place = (ns) => Math.min(width, Math.max(TIMELINE_LEFT, Math.floor(timeline.x(ns))));
    const end = place(Math.min(axis.to, page.trace.endNs));
    const fill = (left, right, good) => {
      const height = TRACK_HEIGHT - 4, high = Math.round(good / most * height);
      context.fillStyle = good === 0 ? colours.bad : colours.warn;
      context.fillRect(left, bottom - height, right - left, height - high);
      context.fillStyle = colours.answer;
      context.fillRect(left, bottom - high, right - left, high);
    };
    let least = Infinity;
    for (let i = Math.max(0, counterPlace(counter, axis.from)); i < at.length && at[i] <= axis.to; i++) {
      const left = place(at[i]), right = i + 1 < at.length ? Math.min(end, place(at[i + 1])) : end;
      // Where several changes are in one pixel, the one with the fewest paths.
      least = Math.min(least, value[i]);
      if (right <= left) continue;
      fill(left, left + 1, least);
      fill(left + 1, right, value[i]);
      least = Infinity;
    }
  }

  /** Steps from value to value; where several are in one pixel, the highest. */
  drawOne(timeline, counter, bottom) {
    if (counter.unit === "paths") return this.drawPlane(timeline, counter, bottom);
    const { context, page, width } = timeline, { at, value, most } = counter, { axis, colours } = page;
    const height = (number) => Math.max(1, Math.round(number / most * (TRACK_HEIGHT - 4)));
    const place = (ns) => Math.min(width, Math.max(TIMELINE_LEFT, Math.floor(timeline.x(ns))));
    const end = place(Math.min(axis.to, page.trace.endNs));
    context.fillStyle = TROUBLE_COUNTERS.has(counter.name) ? colours.warn : colours.accent;
    let before = -1;
    const piece = (left, right, high) => {
      context.globalAlpha = 0.3;
      context.fillRect(left, bottom - high, right - left, high);
      context.globalAlpha = 1;
      context.fillRect(left, bottom - high, right - left, 1);
      // The step up or down.
      if (before >= 0 && before !== high) {
        context.fillRect(left, bottom - Math.max(before, high), 1, Math.abs(before - high) + 1);
      }
      before = high;
    };
    let peak = 0;
    for (let i = Math.max(0, counterPlace(counter, axis.from)); i < at.length && at[i] <= axis.to; i++) {
      const left = place(at[i]), right = i + 1 < at.length ? Math.min(end, place(at[i + 1])) : end;
      peak = Math.max(peak, height(value[i]));
      if (right <= left) continue;
      piece(left, left + 1, peak);
      if (right > left + 1) piece(left + 1, right, height(value[i]));
      peak = 0;
    }
    if (peak > 0 && end < width) piece(end, end + 1, peak);
  }

  drawNames(timeline, { tracks, tracksTop }) {
    const { context } = timeline;
    tracks.forEach((counter, place) => {
      const middle = tracksTop + (place + 0.5) * TRACK_HEIGHT;
      const text = `${counter.name} ≤ ${valueText(counter, counter.most)}`;
      context.fillText(text, TIMELINE_LEFT - 6, middle, TIMELINE_LEFT - 18);
    });
  }

  /** A line at the cursor's time, and the value of each counter beside it. */
  drawCursor(timeline) {
    const { context, page, width } = timeline, x = timeline.x(this.cursor);
    if (x < TIMELINE_LEFT || x > width) return;
    context.fillStyle = page.colours.accent;
    context.fillRect(Math.floor(x), OVERVIEW_HEIGHT, 1, timeline.height);
    const isRight = x > width - 120;
    context.textAlign = isRight ? "right" : "left";
    context.textBaseline = "middle";
    for (const { tracks, tracksTop } of timeline.list) {
      tracks.forEach((counter, place) => {
        const value = counter.value[counterPlace(counter, this.cursor)];
        const text = value === undefined ? "" : valueText(counter, value);
        const middle = tracksTop + (place + 0.5) * TRACK_HEIGHT, left = x + (isRight ? -5 : 5);
        const length = context.measureText(text).width;
        context.fillStyle = page.colours.back;
        context.globalAlpha = 0.8;
        context.fillRect(isRight ? left - length : left, middle - 6, length, 12);
        context.globalAlpha = 1;
        context.fillStyle = page.colours.text;
        context.fillText(text, left, middle);
      });
    }
    context.textAlign = "left";
  }

  /** What is under the pointer, with this between its parts. */
  text({ counter, at, perPixel }, between = "\n") {
    const found = counterOver(counter, at, at + perPixel), owner = counter.queuePairs[0];
    const inWords = (value) => valueText(counter, value);
    const values = found ? [found.least, found.most].map(inWords) : ["not known yet"];
    return [
      `${timeText(at, 3)}, ${this.page.trace.queuePairName(owner)}`,
      `${counter.name}: ${[...new Set(values)].join(" to ")}`,
    ].join(between);
  }

  /** To the next or the last time before the cursor at which a counter that is shown changed. */
  step(direction) {
    const { page } = this, { axis } = page;
    if (!this.isShown) this.show(true);
    const shown = page.timeline.rows().flatMap(({ tracks }) => tracks);
    const isSeen = this.cursor !== null && this.cursor >= axis.from && this.cursor <= axis.to;
    const start = isSeen ? this.cursor : direction > 0 ? axis.from : axis.to;
    const times = shown.map(({ at }) => {
      const next = firstAtLeast(at, start);
      return at[direction < 0 ? next - 1 : at[next] === start ? lastOfTime(at, next) + 1 : next];
    }).filter((at) => at !== undefined);
    if (times.length === 0) return;
    const at = times.reduce((one, other) => (other - one) * direction < 0 ? other : one);
    this.setCursor(at, this.told(at, shown));
  }

  /** Puts the cursor to a time and says this, or takes it away. */
  setCursor(at, text = "") {
    const { page } = this;
    this.cursor = at;
    byId("cursor").textContent = text;
    if (at !== null && (at < page.axis.from || at > page.axis.to)) {
      page.axis.set(at - page.axis.span / 2, at + page.axis.span / 2);
    }
    page.schedule();
  }

  /** Which counters changed at a time. */
  told(at, shown) {
    const changed = shown.filter((counter) => counter.at[counterPlace(counter, at)] === at);
    const texts = changed.slice(0, MOST_TOLD).map((counter) => {
      const owner = this.page.trace.queuePairName(counter.queuePairs[0]);
      return `${owner}: ${counter.name} ${valueText(counter, counter.value[counterPlace(counter, at)])}`;
    });
    const more = changed.length > MOST_TOLD ? [countText(changed.length - MOST_TOLD, "other counter")] : [];
    return [timeText(at, 3), ...texts, ...more].join(" · ");
  }
}
