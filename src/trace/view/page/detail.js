// The chosen request in words; without one, what the whole trace tells and where to look first.

/** Packets and moments that are listed at most. */
const MOST_LISTED = 100;

class Detail {
  constructor(page) {
    this.page = page;
    this.place = byId("detail");
  }

  draw() {
    const { page } = this;
    this.place.replaceChildren(...(page.chosen < 0 ? this.overview() : this.request(page.chosen)));
    this.place.scrollTop = 0;
  }

  overview() {
    const { trace } = this.page, { requests } = trace, items = [];
    for (const [request, story] of [...trace.stories].slice(0, 30)) {
      const button = element("button", { type: "button" }, `${this.page.requestText(request)}`);
      button.title = story;
      button.addEventListener("click", () => { this.page.choose(request); this.page.showChosen(); });
      items.push(element("li", {}, button));
    }
    const counts = new Map();
    for (let i = 0; i < requests.count; i++) {
      counts.set(trace.statusName(i), (counts.get(trace.statusName(i)) ?? 0) + 1);
    }
    const statuses = [...counts].map(([name, count]) => `${count.toLocaleString("en")} ${name}`).join(", ");
    return [
      element("h2", {}, "Where to look first"),
      items.length > 0 ? element("h3", {}, "Failed, then the slowest") : "",
      element("ol", {}, ...items),
      element("p", {}, `Requests: ${statuses || "none"}. Choose one in the table, in the timeline or ` +
        "in the ladder; press n for the next with trouble, and ? for all keys and the signs of packets."),
      element("h3", {}, "Legend: where a request's time went"),
      element("ul", { class: "legend" }, ...trace.parts.map((words, kind) => element("li", {},
        element("span", { class: `swatch part-${kind}` }), words))),
    ];
  }

  request(request) {
    const { page } = this, { trace } = page;
    const zoom = element("button", { type: "button" }, "Zoom to it (z)");
    zoom.addEventListener("click", () => page.showChosen());
    const story = trace.stories.get(request);
    return [
      element("h2", { id: "detail-title" }, page.requestText(request)),
      element("p", { id: "story" }, story ?? this.composed(request)),
      element("p", {}, zoom),
      element("h3", {}, "Where its time went"), this.parts(request),
      ...this.packets(request),
      ...this.moments(request),
      ...this.counters(request),
    ];
  }

  /** A sentence or two of a request that has no story. */
  composed(request) {
    const { trace } = this.page, { requests } = trace, status = trace.statusName(request);
    const { peer } = trace.queuePairs[requests.queue_pair[request]];
    const to = peer === null || requests.is_receive[request] ? "" : ` to ${trace.queuePairName(peer)}`;
    const ended = requests.status[request] < 0 ? "has not completed" : `ended with ${status}`;
    const took = timeText(requests.duration_ns[request]);
    return `${trace.operationName(request)} of ${requests.bytes[request]} B${to}, ` +
      `wr_id ${requests.wr_id[request]}, posted at ${timeText(requests.at[request], 3)}; ` +
      `it ${ended} after ${took}.`;
  }

  parts(request) {
    const { trace } = this.page, whole = trace.requests.duration_ns[request] || 1;
    const rows = trace.partsOf(request).map(([kind, ns]) => element("tr", {},
      element("td", {}, element("span", { class: `swatch part-${kind}` }), trace.parts[kind]),
      element("td", { class: "number" }, timeText(ns)),
      element("td", { class: "number" }, `${(ns / whole * 100).toFixed(1)} %`)));
    return element("table", { id: "parts" }, element("tbody", {}, ...rows));
  }

  packets(request) {
    const { page } = this, { packets, requests } = page.trace, list = page.trace.packetsOf(request);
    if (list.length === 0) return [];
    const rows = [...list.slice(0, MOST_LISTED)].map((i) => {
      const isAgain = packets.transmission[i] > 1;
      const kind = packets.flags[i] & TROUBLE ? "failed" : isAgain ? "again" : "";
      return element("tr", {},
        element("td", { class: "number" }, `+${timeText(packets.at[i] - requests.at[request])}`),
        element("td", { class: kind }, page.trace.packetText(i)),
        element("td", {}, page.packetWay(i)));
    });
    const head = element("tr", {}, ...["after", "packet", "way"].map((name) => element("th", {}, name)));
    const more = list.length > MOST_LISTED ? `, the first ${MOST_LISTED}` : "";
    return [
      element("h3", {}, `Its ${countText(list.length, "packet")}${more}`),
      element("table", { id: "packets" }, element("thead", {}, head), element("tbody", {}, ...rows)),
    ];
  }

  /** What happened to its queue pair and the peer's while it was under way. */
  moments(request) {
    const { trace } = this.page, { requests } = trace, own = requests.queue_pair[request];
    const { peer } = trace.queuePairs[own], [from, to] = [requests.at[request], requests.end[request]];
    const during = trace.moments.filter((moment) => moment.at_ns >= from && moment.at_ns <= to &&
      (moment.queue_pair === own || (peer !== null && moment.queue_pair === peer)));
    if (during.length === 0) return [];
    const rows = during.slice(0, MOST_LISTED).map((moment) => element("tr", {},
      element("td", { class: "number" }, `+${timeText(moment.at_ns - from)}`),
      element("td", {}, trace.queuePairName(moment.queue_pair)),
      element("td", {}, moment.text)));
    return [
      element("h3", {}, "What happened meanwhile"),
      element("table", { id: "moments" }, element("tbody", {}, ...rows)),
    ];
  }

  /** What the counters of its queue pair were while it was under way. */
  counters(request) {
    const { trace } = this.page, { requests } = trace;
    const [from, to] = [requests.at[request], requests.end[request]];
    const rows = trace.countersOf[requests.queue_pair[request]].flatMap((counter) => {
      const found = counterOver(counter, from, to);
      if (!found) return [];
      const cells = [found.first, found.least, found.most, found.last].map((value) => {
        return element("td", { class: "number" }, valueText(counter, value));
      });
      return [element("tr", {}, element("td", {}, counter.name), ...cells)];
    });
    if (rows.length === 0) return [];
    const names = ["counter", "when it was posted", "least", "most", "at its end"];
    const head = element("tr", {}, ...names.map((name) => element("th", {}, name)));
    return [
      element("h3", {}, "Counters meanwhile"),
      element("table", { id: "counter-values" }, element("thead", {}, head), element("tbody", {}, ...rows)),
    ];
  }
}
