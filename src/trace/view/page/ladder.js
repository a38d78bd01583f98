// The ladder: a lifeline for each queue pair, time downwards, packets between them, requests beside them.

const LADDER_TOP = 46, LADDER_LEFT = 84, LANE_WIDTH = 9;
/** Lifelines that are drawn at most; filters choose others. */
const MOST_LIFELINES = 16;
/** More packets than this are drawn as bands. */
const MOST_LINES = 2500;
/** Fewer packets than this have their names. */
const MOST_NAMES = 120;

/** What a packet looks like: a request, an answer, one that was sent again; and its end. */
function packetLook(flags, transmission) {
  return transmission > 1 ? "again" : flags & ANSWER ? "answer" : "request";
}

/** Lines: requests solid, answers dotted, repeated ones double. */
function strokeLook(context, look, colours, draw) {
  context.lineWidth = 1.2;
  context.setLineDash(look === "answer" ? [2, 3] : []);
  context.strokeStyle = { request: colours.packet, answer: colours.answer, again: colours.warn }[look];
  if (look === "again") {
    context.lineWidth = 4;
    context.beginPath();
    draw(context);
    context.stroke();
    context.lineWidth = 1.6;
    context.strokeStyle = colours.back;
  }
  context.beginPath();
  draw(context);
  context.stroke();
  context.setLineDash([]);
}

/** The end of a packet: an arrow, a cross for what was lost, a barred circle for what was dropped. */
function drawEnd(context, flags, x, y, side, colours) {
  context.lineWidth = 2;
  context.setLineDash([]);
  context.beginPath();
  if (flags & (LOST | NOT_ARRIVED)) {
    context.strokeStyle = colours.bad;
    context.moveTo(x - 5, y - 5);
    context.lineTo(x + 5, y + 5);
    context.moveTo(x - 5, y + 5);
    context.lineTo(x + 5, y - 5);
    if (flags & LOST) {
      context.moveTo(x + 9, y);
      context.arc(x, y, 9, 0, 7);
    }
  } else if (flags & DROPPED) {
    context.strokeStyle = colours.bad;
    context.arc(x, y, 5, 0, 7);
    context.moveTo(x - 4, y + 4);
    context.lineTo(x + 4, y - 4);
  } else {
    context.lineWidth = 1.4;
    context.strokeStyle = flags & ANSWER ? colours.answer : colours.packet;
    context.moveTo(x - side * 6, y - 3.5);
    context.lineTo(x, y);
    context.lineTo(x - side * 6, y + 3.5);
    if (flags & DOUBLED) {
      context.moveTo(x - side * 14, y - 4);
      context.lineTo(x - side * 14, y + 4);
      context.moveTo(x - side * 10, y);
      context.lineTo(x - side * 18, y);
    }
  }
  context.stroke();
}

class Ladder {
  constructor(canvas, page) {
    this.canvas = canvas;
    this.page = page;
    this.lineAt = new Map();
    moveByPointer(canvas, page.axis, true, () => ({ start: LADDER_TOP, length: this.height - LADDER_TOP }));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerleave", () => page.tip(null));
    canvas.addEventListener("click", (event) => {
      if (canvas.wasDragged) return;
      const found = this.find(event.offsetX, event.offsetY);
      if (found) page.choose(found.request);
    });
  }

  /** Queue pairs in an order in which peers are beside each other. */
  lifelines() {
    const { trace, filter } = this.page, order = [], taken = new Set();
    for (const qp of filter.queuePairs) {
      const peer = trace.queuePairs[qp].peer;
      for (const one of [qp, peer]) {
        if (one !== null && !taken.has(one) && filter.queuePairs.includes(one)) {
          taken.add(one);
          order.push(one);
        }
      }
    }
    this.leftOut = Math.max(0, order.length - MOST_LIFELINES);
    return order.slice(0, MOST_LIFELINES);
  }

  draw() {
    const { canvas, page } = this;
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    const context = this.context = prepareCanvas(canvas, this.width, this.height);
    context.fillStyle = page.colours.back;
    context.fillRect(0, 0, this.width, this.height);
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    this.order = this.lifelines();
    this.lineAt = new Map();
    const room = this.width - LADDER_LEFT, apart = room / Math.max(1, this.order.length);
    const at = (place) => Math.round(LADDER_LEFT + apart * (place + 0.5)) + 0.5;
    this.order.forEach((qp, place) => this.lineAt.set(qp, at(place)));
    this.apart = apart;
    this.drawAxis();
    context.save();
    context.beginPath();
    context.rect(0, LADDER_TOP, this.width, this.height);
    context.clip();
    this.drawRequests();
    this.drawPackets();
    context.restore();
    this.drawHeads();
  }

  y(ns) {
    return LADDER_TOP + this.page.axis.place(ns, this.height - LADDER_TOP);
  }

  drawAxis() {
    const { context, page } = this, [ticks, step] = page.axis.ticks(this.height - LADDER_TOP, 48);
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const at of ticks) {
      const y = Math.round(this.y(at)) + 0.5;
      context.strokeStyle = page.colours.line;
      context.lineWidth = 0.6;
      context.beginPath();
      context.moveTo(LADDER_LEFT - 4, y);
      context.lineTo(this.width, y);
      context.stroke();
      context.fillStyle = page.colours.soft;
      context.fillText(axisText(at, step), LADDER_LEFT - 8, y);
    }
  }

  drawHeads() {
    const { context, page } = this;
    context.fillStyle = page.colours.panel;
    context.fillRect(0, 0, this.width, LADDER_TOP);
    context.textAlign = "center";
    for (const [qp, x] of this.lineAt) {
      const { process, qpn, service } = page.trace.queuePairs[qp];
      const { tag, program } = page.trace.processes[process];
      context.fillStyle = page.colours.text;
      context.font = "600 12px system-ui, 'DejaVu Sans', sans-serif";
      context.fillText(this.cut(tag || program), x, 14);
      context.fillStyle = page.colours.soft;
      context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
      context.fillText(this.cut(`QP ${hexText(qpn)} ${service}`), x, 31);
    }
    if (this.leftOut > 0) {
      context.textAlign = "left";
      context.fillText(`+${this.leftOut} QPs: filter`, 4, 14);
    }
    context.strokeStyle = page.colours.line;
    context.strokeRect(-1, -1, this.width + 2, LADDER_TOP + 0.5);
  }

  /** A text that fits between lifelines. */
  cut(text) {
    const letters = Math.max(4, Math.floor(this.apart / 7));
    return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
  }

  /** On which side of its lifeline a queue pair's requests are: away from its peer. */
  outside(qp) {
    const { peer } = this.page.trace.queuePairs[qp];
    const own = this.order.indexOf(qp), other = peer === null ? -1 : this.order.indexOf(peer);
    return other >= 0 && other < own ? 1 : -1;
  }

  drawRequests() {
    const { context, page } = this, { requests } = page.trace, { axis, filter } = page;
    this.bars = [];
    const first = firstAtLeast(requests.endMax, axis.from), last = firstAtLeast(requests.at, axis.to);
    const filled = new Map(this.order.map((qp) => [qp, new Float64Array(LANES)]));
    for (let i = first; i < last; i++) {
      const qp = requests.queue_pair[i], lanes = filled.get(qp);
      if (!lanes || !filter.requests[i] || requests.end[i] < axis.from) continue;
      const lane = requests.lane[i], top = Math.max(LADDER_TOP, this.y(requests.at[i]));
      const bottom = Math.ceil(Math.min(this.height + 2, Math.max(this.y(requests.end[i]), top + 1)));
      // A bar that another one hides is not drawn, unless something went wrong.
      const isSeen = i === page.chosen || page.trace.hasTrouble(i);
      if (bottom <= lanes[lane] && !isSeen) continue;
      const from = isSeen ? top : Math.max(top, lanes[lane]);
      lanes[lane] = Math.max(lanes[lane], bottom);
      const x = this.lineAt.get(qp) + this.outside(qp) * (7 + lane * LANE_WIDTH) - (LANE_WIDTH - 2) / 2;
      this.drawBar(i, x, from, bottom);
    }
    context.lineWidth = 1;
    for (const x of this.lineAt.values()) {
      context.strokeStyle = page.colours.soft;
      context.beginPath();
      context.moveTo(x, LADDER_TOP);
      context.lineTo(x, this.height);
      context.stroke();
    }
  }

  drawBar(request, x, top, bottom) {
    const { context, page } = this, { requests } = page.trace, width = LANE_WIDTH - 2;
    if (bottom - top < 4) {
      context.fillStyle = page.trace.hasTrouble(request) ? page.colours.bad : page.colours.parts[1];
      context.fillRect(x, top, width, bottom - top);
    } else {
      let at = requests.at[request];
      for (const [kind, ns] of page.trace.partsOf(request)) {
        const [from, to] = [Math.max(top, this.y(at)), Math.min(this.height, this.y(at + ns))];
        context.fillStyle = page.colours.parts[kind];
        if (to > from) context.fillRect(x, from, width, to - from);
        at += ns;
      }
    }
    if (request === page.chosen) {
      context.strokeStyle = page.colours.accent;
      context.lineWidth = 2;
      context.strokeRect(x - 1, top - 1, width + 2, bottom - top + 2);
    }
    if (this.bars.length < 4000) this.bars.push([request, x, top, bottom]);
  }

  /** Where a packet is on the ladder: both ends, and whether its end is known. */
  ends(i) {
    const { packets } = this.page.trace, flags = packets.flags[i];
    let from = this.lineAt.get(packets.from[i]), to = this.lineAt.get(packets.to[i]);
    if (from === undefined && to === undefined) return null;
    const stub = Math.min(60, this.apart * 0.4);
    if (from === undefined) from = to - stub * this.towards(packets.to[i]);
    if (to === undefined) to = from + stub * this.towards(packets.from[i]);
    if (from === to) to = from + stub;
    if (flags & (LOST | NOT_ARRIVED)) to = from + (to - from) * 0.6;
    return [from, this.y(packets.at[i]), to, this.y(packets.end[i])];
  }

  towards(qp) {
    return -this.outside(qp);
  }

  drawPackets() {
    const { page } = this, { packets } = page.trace, { axis, filter } = page;
    const first = firstAtLeast(packets.endMax, axis.from), last = firstAtLeast(packets.at, axis.to);
    const shown = [], chosen = [];
    this.lines = shown;
    let count = 0;
    for (let i = first; i < last; i++) {
      if (filter.packets[i] && packets.end[i] >= axis.from) count++;
    }
    if (count > MOST_LINES) {
      this.drawBands(first, last, shown);
    } else {
      for (let i = first; i < last; i++) {
        if (filter.packets[i] && packets.end[i] >= axis.from) shown.push(i);
      }
    }
    for (const i of shown) if (page.chosen >= 0 && packets.request[i] === page.chosen) chosen.push(i);
    if (page.chosen >= 0 && count > MOST_LINES) {
      for (const i of page.trace.packetsOf(page.chosen).slice(0, MOST_LINES)) chosen.push(i);
    }
    this.context.globalAlpha = page.chosen >= 0 && chosen.length > 0 ? 0.45 : 1;
    this.drawLines(shown);
    this.context.globalAlpha = 1;
    if (chosen.length > 0) this.drawChosen(chosen);
    if (count <= MOST_NAMES) this.drawNames(shown);
    this.shownCount = count;
  }

  /** Each row of pixels is a band whose strength is the number of its packets; trouble stays apart. */
  drawBands(first, last, apart) {
    const { context, page } = this, { packets } = page.trace, { filter } = page;
    const rows = Math.ceil(this.height / 2) + 1, bands = new Map(), troubles = new Set();
    const perRow = (rows - LADDER_TOP / 2) / page.axis.span, origin = page.axis.from;
    const lines = page.trace.queuePairs.length + 1;
    let band = null, bandOf = -1;
    for (let i = first; i < last; i++) {
      if (!filter.packets[i]) continue;
      const row = Math.floor(LADDER_TOP / 2 + (packets.at[i] - origin) * perRow);
      if (row < 0 || row >= rows) continue;
      const pair = (packets.from[i] + 1) * lines + packets.to[i] + 1;
      if (pair !== bandOf) {
        if (!bands.has(pair)) bands.set(pair, new Uint32Array(rows));
        [band, bandOf] = [bands.get(pair), pair];
      }
      band[row]++;
      if (!(packets.flags[i] & TROUBLE) && packets.transmission[i] < 2) continue;
      const place = (pair * rows + row) * 2 + (packets.flags[i] & TROUBLE ? 1 : 0);
      if (troubles.size < MOST_LINES && !troubles.has(place)) {
        troubles.add(place);
        apart.push(i);
      }
    }
    for (const [pair, band] of bands) {
      const [from, to] = [Math.floor(pair / lines) - 1, pair % lines - 1];
      const [left, right] = [this.lineAt.get(from), this.lineAt.get(to)];
      if (left === undefined || right === undefined) continue;
      const most = band.reduce((most, count) => Math.max(most, count), 1);
      context.fillStyle = page.colours.packet;
      const [x, width] = [Math.min(left, right), Math.abs(right - left) || 20];
      for (let row = 0; row < rows; row++) {
        if (band[row] === 0) continue;
        context.globalAlpha = 0.12 + 0.4 * band[row] / most;
        // Each direction has its half, so that both are seen.
        context.fillRect(left < right ? x : x + width / 2, row * 2, width / 2, 2);
      }
    }
    context.globalAlpha = 1;
  }

  drawLines(shown) {
    const { context, page } = this, { packets } = page.trace;
    const looks = { request: [], answer: [], again: [] };
    for (const i of shown) {
      const ends = this.ends(i);
      if (ends) looks[packetLook(packets.flags[i], packets.transmission[i])].push([i, ends]);
    }
    for (const [look, list] of Object.entries(looks)) {
      strokeLook(context, look, page.colours, () => {
        for (const [, [x0, y0, x1, y1]] of list) {
          context.moveTo(x0, y0);
          context.lineTo(x1, y1);
        }
      });
    }
    const all = Object.values(looks).flat();
    this.drawEnds(all, 0, 4);
    this.drawEnds(all, TROUBLE, 10);
  }

  /** The ends of packets with or without trouble; those that would be on one another are drawn once. */
  drawEnds(list, trouble, apart) {
    const { packets } = this.page.trace, taken = new Set();
    for (const [i, [x0, , x1, y1]] of list) {
      const flags = packets.flags[i], place = x1 * 10000 + Math.round(y1 / apart);
      if ((trouble === 0) !== ((flags & TROUBLE) === 0) || taken.has(place)) continue;
      taken.add(place);
      drawEnd(this.context, flags, x1, y1, Math.sign(x1 - x0), this.page.colours);
    }
  }

  drawChosen(chosen) {
    const { context, page } = this, { packets } = page.trace;
    for (const i of chosen) {
      const ends = this.ends(i);
      if (!ends) continue;
      const [x0, y0, x1, y1] = ends;
      context.setLineDash(packets.flags[i] & ANSWER ? [2, 3] : []);
      context.strokeStyle = page.colours.accent;
      context.lineWidth = packets.transmission[i] > 1 ? 4 : 2.4;
      context.beginPath();
      context.moveTo(x0, y0);
      context.lineTo(x1, y1);
      context.stroke();
      drawEnd(context, packets.flags[i], x1, y1, Math.sign(x1 - x0), page.colours);
    }
  }

  drawNames(shown) {
    const { context, page } = this, { packets } = page.trace, taken = new Map();
    context.textAlign = "center";
    context.textBaseline = "bottom";
    const letters = Math.floor((this.apart - 30) / 6);
    for (const i of shown) {
      const ends = this.ends(i);
      if (!ends) continue;
      const [x0, y0, x1, y1] = ends, [x, y] = [(x0 + x1) / 2, (y0 + y1) / 2 - 2];
      const key = Math.round(Math.min(x0, x1) / 20);
      if (Math.abs((taken.get(key) ?? -99) - y) < 13) continue;
      const again = packets.transmission[i] > 1 ? ` (${packets.transmission[i]}×)` : "";
      const fate = packets.flags[i] & LOST ? " lost" : packets.flags[i] & DROPPED ? " dropped"
        : packets.flags[i] & NOT_ARRIVED ? " did not arrive" : "";
      const long = `${page.trace.opcodeName(packets.opcode[i])} PSN ${packets.psn[i]} ${packets.bytes[i]} B`;
      const short = `PSN ${packets.psn[i]}`;
      const space = letters - again.length - fate.length;
      const text = [long, short, ""].find((text) => text.length <= space || !text);
      if (!text) continue;
      taken.set(key, y);
      const whole = text + again + fate, width = context.measureText(whole).width;
      context.fillStyle = page.colours.back;
      context.globalAlpha = 0.8;
      context.fillRect(x - width / 2 - 2, y - 12, width + 4, 12);
      context.globalAlpha = 1;
      context.fillStyle = fate ? page.colours.bad : again ? page.colours.warn : page.colours.text;
      context.fillText(whole, x, y);
    }
  }

  /** The packet or the request at a place. */
  find(x, y) {
    const { packets } = this.page.trace;
    const bar = this.bars?.find(([, left, top, bottom]) => {
      return x >= left - 1 && x <= left + LANE_WIDTH && y >= top - 2 && y <= bottom + 2;
    });
    if (bar) return { request: bar[0], packet: -1 };
    let best = null, least = 6;
    for (const i of this.lines ?? []) {
      const ends = this.ends(i);
      if (!ends) continue;
      const [x0, y0, x1, y1] = ends, share = (x - x0) / (x1 - x0 || 1);
      if (share < -0.02 || share > 1.05) continue;
      const away = Math.abs(y0 + (y1 - y0) * share - y);
      if (away < least) [best, least] = [i, away];
    }
    return best === null ? null : { request: packets.request[best], packet: best };
  }

  hover(event) {
    const { page } = this, found = this.find(event.offsetX, event.offsetY);
    if (!found || event.buttons) return page.tip(null);
    const lines = [];
    if (found.packet >= 0) lines.push(page.trace.packetText(found.packet), page.packetWay(found.packet));
    if (found.request >= 0) lines.push(page.requestText(found.request));
    page.tip(lines.join("\n"), event);
  }
}
