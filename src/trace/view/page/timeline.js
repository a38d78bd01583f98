// The timeline: a row for each queue pair with its requests, its packets and what happened to it.

const TIMELINE_LEFT = 190, OVERVIEW_HEIGHT = 30, AXIS_HEIGHT = 18, BAR_HEIGHT = 7;
const TICK_HEIGHT = 8, MARK_HEIGHT = 13;
/** Rows that are drawn at most, and their pixels; filters choose others. */
const MOST_ROWS = 200, MOST_HEIGHT = 13000;
/** Signs of moments by kind; the others have a dot. */
const MOMENT_SIGNS = new Map([["fault", "◆"], ["refusal", "▲"], ["recovery", "↻"], ["drop", "⊘"],
  ["call", "!"], ["log", "!"], ["async event", "!"], ["missing", "?"]]);

class Timeline {
  constructor(canvas, page) {
    this.canvas = canvas;
    this.page = page;
    const area = () => ({ start: TIMELINE_LEFT, length: this.width - TIMELINE_LEFT });
    canvas.addEventListener("pointerdown", (event) => this.press(event), true);
    canvas.addEventListener("pointermove", (event) => this.overview(event), true);
    canvas.addEventListener("pointerup", () => { this.isInOverview = false; });
    moveByPointer(canvas, page.axis, false, area);
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => page.tip(null));
    canvas.addEventListener("click", (event) => {
      if (canvas.wasDragged || event.offsetY < OVERVIEW_HEIGHT) return;
      const place = this.counterAt(event.offsetX, event.offsetY);
      if (place) return page.counters.setCursor(place.at, page.counters.text(place, " · "));
      const found = this.find(event.offsetX, event.offsetY);
      if (found.request >= 0) page.choose(found.request);
    });
  }

  /** A press in the overview shows the time there. */
  press(event) {
    this.isInOverview = event.offsetY < OVERVIEW_HEIGHT;
    this.overview(event);
  }

  overview(event) {
    if (!this.isInOverview || !event.buttons) return;
    event.stopImmediatePropagation();
    const { axis, trace } = this.page, length = this.width - TIMELINE_LEFT;
    const at = (event.offsetX - TIMELINE_LEFT) / length * trace.endNs;
    axis.set(at - axis.span / 2, at + axis.span / 2);
  }

  rows() {
    const { trace, filter, counters } = this.page, rows = [], seen = new Set();
    let top = OVERVIEW_HEIGHT + AXIS_HEIGHT;
    for (const qp of filter.queuePairs.slice(0, MOST_ROWS)) {
      const lanes = LANES, packets = top + lanes * BAR_HEIGHT + 4;
      const tracksTop = packets + 2 * TICK_HEIGHT + MARK_HEIGHT;
      const tracks = counters.tracks(qp, seen), height = tracksTop - top + 2 + tracks.length * TRACK_HEIGHT;
      if (top + height > MOST_HEIGHT) break;
      rows.push({ qp, top, height, lanes, packets, tracks, tracksTop });
      top += height;
    }
    return rows;
  }

  draw() {
    const { canvas, page } = this;
    this.list = this.rows();
    this.rowOf = new Map(this.list.map((row) => [row.qp, row]));
    const last = this.list[this.list.length - 1];
    this.width = canvas.clientWidth;
    this.height = last ? last.top + last.height + 2 : 80;
    canvas.style.height = `${this.height}px`;
    const context = this.context = prepareCanvas(canvas, this.width, this.height);
    context.fillStyle = page.colours.back;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    this.drawOverview();
    this.drawAxis();
    context.save();
    context.beginPath();
    context.rect(TIMELINE_LEFT, OVERVIEW_HEIGHT, this.width, this.height);
    context.clip();
    this.drawRequests();
    this.drawPackets();
    this.drawMoments();
    page.counters.draw(this);
    context.restore();
    this.drawNames();
  }

  x(ns) {
    return TIMELINE_LEFT + this.page.axis.place(ns, this.width - TIMELINE_LEFT);
  }

  /** Packets of the whole time, and the part of it that is shown. */
  drawOverview() {
    const { context, page } = this, { packets, endNs } = page.trace, length = this.width - TIMELINE_LEFT;
    if (this.bins?.length !== length || this.binsOf !== page.filter.packets) {
      this.bins = new Uint32Array(Math.max(1, length));
      this.troubleBins = new Uint8Array(this.bins.length);
      this.binsOf = page.filter.packets;
      for (let i = 0; i < packets.count; i++) {
        const bin = Math.min(this.bins.length - 1, Math.floor(packets.at[i] / endNs * this.bins.length));
        this.bins[bin]++;
        if (packets.flags[i] & TROUBLE || packets.transmission[i] > 1) this.troubleBins[bin] = 1;
      }
      this.mostInBin = this.bins.reduce((most, count) => Math.max(most, count), 1);
    }
    context.fillStyle = page.colours.panel;
    context.fillRect(0, 0, this.width, OVERVIEW_HEIGHT);
    context.fillStyle = page.colours.soft;
    for (let bin = 0; bin < this.bins.length; bin++) {
      const height = this.bins[bin] && 2 + this.bins[bin] / this.mostInBin * (OVERVIEW_HEIGHT - 10);
      if (height) context.fillRect(TIMELINE_LEFT + bin, OVERVIEW_HEIGHT - height, 1, height);
    }
    context.fillStyle = page.colours.bad;
    for (let bin = 0, until = -9; bin < this.bins.length; bin++) {
      if (this.troubleBins[bin] && bin > until) {
        context.fillText("×", TIMELINE_LEFT + bin - 3, 9);
        until = bin + 6;
      }
    }
    const place = (ns) => TIMELINE_LEFT + Math.min(1, Math.max(0, ns / endNs)) * length;
    const [left, right] = [place(page.axis.from), place(page.axis.to)];
    context.fillStyle = page.colours.accent;
    context.globalAlpha = 0.16;
    context.fillRect(left, 0, Math.max(2, right - left), OVERVIEW_HEIGHT);
    context.globalAlpha = 1;
    context.strokeStyle = page.colours.accent;
    context.lineWidth = 1.5;
    context.strokeRect(left, 0.75, Math.max(2, right - left), OVERVIEW_HEIGHT - 1.5);
    context.fillStyle = page.colours.soft;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(`all: ${timeText(endNs)}; here: ${timeText(page.axis.span)}`, 12, OVERVIEW_HEIGHT / 2);
  }

  drawAxis() {
    const { context, page } = this, [ticks, step] = page.axis.ticks(this.width - TIMELINE_LEFT, 110);
    context.textAlign = "center";
    for (const at of ticks) {
      const x = Math.round(this.x(at)) + 0.5;
      if (x < TIMELINE_LEFT) continue;
      context.strokeStyle = page.colours.line;
      context.lineWidth = 0.6;
      context.beginPath();
      context.moveTo(x, OVERVIEW_HEIGHT + AXIS_HEIGHT - 3);
      context.lineTo(x, this.height);
      context.stroke();
      context.fillStyle = page.colours.soft;
      context.fillText(axisText(at, step), x, OVERVIEW_HEIGHT + AXIS_HEIGHT / 2);
    }
  }

  drawNames() {
    const { context, page } = this;
    context.textAlign = "left";
    for (const row of this.list) {
      const { qp, top, height, packets } = row;
      const { process } = page.trace.queuePairs[qp];
      context.fillStyle = page.colours.text;
      context.fillText(page.trace.queuePairName(qp).slice(0, 30), 12, top + 8);
      context.fillStyle = page.colours.soft;
      const { program, process: number } = page.trace.processes[process];
      if (height > 40) context.fillText(`${program} ${number}`.slice(0, 26), 12, top + 22);
      context.textAlign = "right";
      context.fillText("sent", TIMELINE_LEFT - 6, packets + 4);
      context.fillText("received", TIMELINE_LEFT - 6, packets + 13);
      page.counters.drawNames(this, row);
      context.textAlign = "left";
      context.strokeStyle = page.colours.line;
      context.lineWidth = 0.8;
      context.beginPath();
      context.moveTo(0, top + height - 1.5);
      context.lineTo(this.width, top + height - 1.5);
      context.stroke();
    }
  }

  drawRequests() {
    const { page } = this, { requests } = page.trace, { axis, filter } = page;
    const first = firstAtLeast(requests.endMax, axis.from), last = firstAtLeast(requests.at, axis.to);
    const filled = new Float64Array(page.trace.queuePairs.length * LANES);
    let chosen = null;
    for (let i = first; i < last; i++) {
      const row = this.rowOf.get(requests.queue_pair[i]);
      if (!row || !filter.requests[i] || requests.end[i] < axis.from) continue;
      const lane = requests.lane[i], slot = row.qp * LANES + lane;
      const left = Math.max(TIMELINE_LEFT, this.x(requests.at[i]));
      const right = Math.ceil(Math.min(this.width, Math.max(this.x(requests.end[i]), left + 1)));
      const top = row.top + 2 + lane * BAR_HEIGHT;
      if (i === page.chosen) chosen = [left, top, right];
      // Bars of less than a pixel that would be on one another are one; trouble is always drawn, also over other bars.
      const isSeen = i === page.chosen || page.trace.hasTrouble(i);
      if (right <= filled[slot] && !isSeen) continue;
      const from = isSeen ? left : Math.max(left, filled[slot]);
      filled[slot] = Math.max(filled[slot], right);
      this.drawBar(i, from, right, top);
    }
    if (chosen === null) return;
    const { context } = this, [left, top, right] = chosen;
    context.strokeStyle = page.colours.accent;
    context.lineWidth = 2;
    context.strokeRect(left - 1.5, top - 1.5, right - left + 3, BAR_HEIGHT + 1.5);
  }

  drawBar(request, left, right, top) {
    const { context, page } = this, { requests } = page.trace, height = BAR_HEIGHT - 1.5;
    if (right - left < 4) {
      const { parts, bad, warn } = page.colours;
      const usual = page.trace.hasTrouble(request) ? warn : parts[1];
      context.fillStyle = requests.hasFailed[request] ? bad : usual;
      context.fillRect(left, top, right - left, height);
      return;
    }
    let at = requests.at[request];
    for (const [kind, ns] of page.trace.partsOf(request)) {
      const [from, to] = [Math.max(left, this.x(at)), Math.min(this.width, this.x(at + ns))];
      context.fillStyle = page.colours.parts[kind];
      if (to > from) context.fillRect(from, top, to - from, height);
      at += ns;
    }
  }

  /** Ticks for packets, one for each pixel; crosses where one was lost. */
  drawPackets() {
    const { context, page } = this, { packets } = page.trace, { axis, filter } = page;
    const first = firstAtLeast(packets.endMax, axis.from), last = firstAtLeast(packets.at, axis.to);
    const columns = Math.ceil(this.width), scale = (this.width - TIMELINE_LEFT) / axis.span;
    const drawn = new Uint8Array(columns * page.trace.queuePairs.length * 2);
    const crosses = new Set(), ticks = [[], [], []];
    // Where a queue pair's packets are; 0: it has no row.
    const tops = Int32Array.from(page.trace.queuePairs, (_, qp) => this.rowOf.get(qp)?.packets ?? 0);
    const tick = (qp, at, isReceived, i) => {
      const top = tops[qp], x = Math.floor(TIMELINE_LEFT + (at - axis.from) * scale);
      if (top === 0 || x < TIMELINE_LEFT || x >= columns) return;
      const isChosen = page.chosen >= 0 && packets.request[i] === page.chosen;
      const place = (qp * 2 + isReceived) * columns + x;
      const look = isChosen ? 2 : packets.transmission[i] > 1 ? 1 : 0;
      if (!drawn[place] || drawn[place] < look + 1) {
        drawn[place] = look + 1;
        ticks[look].push(x, top + isReceived * TICK_HEIGHT);
      }
      const isLost = packets.flags[i] & (isReceived ? DROPPED : LOST | NOT_ARRIVED);
      if (isLost) crosses.add(`${Math.round(x / 3) * 3} ${top + isReceived * TICK_HEIGHT}`);
    };
    for (let i = first; i < last; i++) {
      if (!filter.packets[i]) continue;
      if (packets.from[i] >= 0 && packets.tookNs[i] !== 0) tick(packets.from[i], packets.at[i], 0, i);
      if (packets.to[i] >= 0 && packets.tookNs[i] >= 0) tick(packets.to[i], packets.end[i], 1, i);
    }
    [page.colours.packet, page.colours.warn, page.colours.accent].forEach((colour, look) => {
      context.fillStyle = colour;
      const list = ticks[look], height = TICK_HEIGHT - 2;
      for (let n = 0; n < list.length; n += 2) context.fillRect(list[n], list[n + 1], look + 1, height);
    });
    context.strokeStyle = page.colours.bad;
    context.lineWidth = 2;
    for (const cross of crosses) {
      const [x, y] = cross.split(" ").map(Number);
      context.beginPath();
      context.moveTo(x - 4, y - 1);
      context.lineTo(x + 4, y + 7);
      context.moveTo(x - 4, y + 7);
      context.lineTo(x + 4, y - 1);
      context.stroke();
    }
  }

  drawMoments() {
    const { context, page } = this, { filter, axis } = page, until = new Map();
    this.marks = [];
    context.textAlign = "center";
    context.textBaseline = "middle";
    const { moments } = filter;
    let low = 0, high = moments.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (moments[middle].at_ns < axis.from) low = middle + 1;
      else high = middle;
    }
    for (let n = low; n < moments.length && moments[n].at_ns <= axis.to; n++) {
      const moment = moments[n], row = this.rowOf.get(moment.queue_pair);
      if (!row) continue;
      const x = this.x(moment.at_ns), sign = MOMENT_SIGNS.get(moment.kind) ?? "•", key = `${row.qp}${sign}`;
      if (x < (until.get(key) ?? 0)) continue;
      until.set(key, x + 9);
      const y = row.packets + 2 * TICK_HEIGHT + MARK_HEIGHT / 2 - 2;
      const isBad = sign !== "•" && sign !== "↻";
      context.fillStyle = isBad ? page.colours.bad : sign === "↻" ? page.colours.warn : page.colours.soft;
      context.fillText(sign, x, y);
      this.marks.push([moment, x, y]);
    }
  }

  /** The counter at a place of the canvas, and the time there; null: there is none. */
  counterAt(x, y) {
    const row = this.list?.find(({ top, height }) => y >= top && y < top + height);
    if (!row || x < TIMELINE_LEFT) return null;
    const counter = row.tracks[Math.floor((y - row.tracksTop) / TRACK_HEIGHT)];
    const perPixel = this.page.axis.span / (this.width - TIMELINE_LEFT);
    return counter ? { counter, at: this.page.axis.from + (x - TIMELINE_LEFT) * perPixel, perPixel } : null;
  }

  find(x, y) {
    const { page } = this, { requests } = page.trace;
    const mark = this.marks?.find(([, left, top]) => Math.abs(left - x) < 6 && Math.abs(top - y) < 7);
    if (mark) return { request: -1, moment: mark[0] };
    const row = this.list?.find(({ top, height }) => y >= top && y < top + height);
    if (!row || x < TIMELINE_LEFT) return { request: -1 };
    const lane = Math.floor((y - row.top - 2) / BAR_HEIGHT);
    const perPixel = page.axis.span / (this.width - TIMELINE_LEFT);
    const at = page.axis.from + (x - TIMELINE_LEFT) * perPixel;
    let found = -1;
    const first = firstAtLeast(requests.endMax, at - 3 * perPixel);
    const last = firstAtLeast(requests.at, at + perPixel);
    for (let i = first; i < last; i++) {
      if (requests.queue_pair[i] !== row.qp || !page.filter.requests[i]) continue;
      if (requests.end[i] < at - 3 * perPixel || (lane < row.lanes && requests.lane[i] !== lane)) continue;
      if (found < 0 || page.trace.hasTrouble(i) || !page.trace.hasTrouble(found)) found = i;
    }
    return { request: found };
  }

  hover(event) {
    if (event.buttons) return this.page.tip(null);
    const place = this.counterAt(event.offsetX, event.offsetY);
    if (place) return this.page.tip(this.page.counters.text(place), event);
    const { request, moment } = this.find(event.offsetX, event.offsetY);
    if (moment) this.page.tip(`${timeText(moment.at_ns)}: ${moment.text}`, event);
    else this.page.tip(request >= 0 ? this.page.requestText(request) : null, event);
  }
}
