// Puts the page together: the state that its parts share, and the order in which they are drawn.

class Page {
  constructor(trace) {
    this.trace = trace;
    this.chosen = -1;
    this.filter = new Filter(trace);
    this.frames = [];
    this.axis = new TimeAxis(trace.endNs, () => this.schedule());
    this.chooseTheme(matchMedia("(prefers-color-scheme: dark)").matches);
    this.counters = new Counters(this);
    this.timeline = new Timeline(byId("timeline-canvas"), this);
    this.ladder = new Ladder(byId("ladder-canvas"), this);
    this.table = new Table(this);
    this.detail = new Detail(this);
    this.keyboard = new Keyboard(this);
    this.controls();
    this.filtered();
    this.detail.draw();
    this.showPackets();
    new ResizeObserver(() => { this.schedule(); this.table.draw(); }).observe(byId("ladder"));
  }

  /** Draws both canvases before the next frame; how long that takes is kept for measuring. */
  schedule() {
    if (!this.table || this.isScheduled) return;
    this.isScheduled = true;
    requestAnimationFrame(() => {
      this.isScheduled = false;
      this.draw();
    });
  }

  draw() {
    const begun = performance.now();
    this.timeline.draw();
    this.ladder.draw();
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 1000) this.frames.shift();
  }

  controls() {
    const { trace } = this, { requests } = trace;
    const fill = (id, all, options) => {
      byId(id).replaceChildren(element("option", { value: "" }, all), ...options);
      byId(id).addEventListener("change", () => this.filterBy());
    };
    const option = (value, text) => element("option", { value: String(value) }, text);
    const group = (label, options) => options.length ? [element("optgroup", { label }, ...options)] : [];
    fill("process", "all", trace.processes.map((_, place) => option(place, trace.processName(place))));
    const used = trace.queuePairs.map((_, qp) => qp).filter((qp) => trace.used[qp]);
    fill("queue-pair", "all", used.map((qp) => option(qp, trace.queuePairName(qp))));
    fill("opcode", "all", [
      ...group("Requests", requests.operations.map((name, place) => option(`request:${place}`, name))),
      ...group("Packets", [...trace.opcodeNames].map(([byte, name]) => option(`packet:${byte}`, name))),
    ]);
    fill("status", "all", [
      ...group("Trouble", [option("failed", "failed"), option("open", "not completed"),
        option("lost", "lost or dropped a packet"), option("again", "sent again")]),
      ...group("Status", requests.statuses.map((name, place) => option(place, name))),
    ]);
    byId("search").addEventListener("input", () => this.filterBy());
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("clear").addEventListener("click", () => this.clearFilters());
    byId("theme").addEventListener("click", () => this.toggleTheme());
    byId("whole").addEventListener("click", () => this.axis.whole());
    byId("counters").addEventListener("click", () => this.counters.toggle());
    byId("trouble").addEventListener("click", () => this.nextTrouble(1));
    byId("remarks").hidden = trace.remarks.length === 0;
    byId("remarks").append(...trace.remarks.map((text) => element("li", {}, text)));
  }

  filterBy() {
    this.filter.set({
      process: byId("process").value, queuePair: byId("queue-pair").value, opcode: byId("opcode").value,
      status: byId("status").value, text: byId("search").value,
    });
    this.filtered();
  }

  clearFilters() {
    for (const id of ["process", "queue-pair", "opcode", "status", "search"]) byId(id).value = "";
    this.filterBy();
  }

  /** After a filter has changed. */
  filtered() {
    const { trace, filter } = this, number = (count) => count.toLocaleString("en");
    const share = (shown, all) => shown === all ? number(all) : `${number(shown)} of ${number(all)}`;
    byId("totals").textContent = [
      countText(trace.processes.length, "process", "processes"),
      `${share(filter.shownRequests, trace.requests.count)} requests`,
      `${share(filter.shownPackets, trace.packets.count)} packets`,
      `${trace.lostPackets.toLocaleString("en")} lost or dropped`,
      `${trace.repeatedPackets.toLocaleString("en")} sent again`,
      timeText(trace.endNs),
    ].join(" · ");
    this.table.update();
    this.schedule();
  }

  choose(request, by = "") {
    this.chosen = request;
    if (by === "table" || request < 0) this.seeChosen();
    this.table.reveal(request);
    this.detail.draw();
    this.schedule();
  }

  /** Moves the time so that the chosen request is in it. */
  seeChosen() {
    if (this.chosen < 0) return;
    const { at, end } = this.trace.requests, { axis, chosen } = this;
    if (end[chosen] < axis.from || at[chosen] > axis.to) {
      const middle = (at[chosen] + end[chosen]) / 2;
      axis.set(middle - axis.span / 2, middle + axis.span / 2);
    }
  }

  /** Zooms to the chosen request. */
  showChosen() {
    if (this.chosen < 0) return;
    const { at, end } = this.trace.requests;
    this.axis.show(at[this.chosen], end[this.chosen]);
  }

  nextTrouble(step) {
    const { trace, filter } = this, { count } = trace.requests;
    let i = this.chosen < 0 && step < 0 ? count : this.chosen;
    for (i += step; i >= 0 && i < count; i += step) {
      if (filter.requests[i] && trace.hasTrouble(i)) {
        this.choose(i);
        this.showChosen();
        return;
      }
    }
  }

  /** At first: the time in which packets were under way, without what programs waited before. */
  showPackets() {
    const { count, at, endMax } = this.trace.packets;
    if (count > 0) this.axis.show(at[0], endMax[count - 1]);
  }

  requestText(i) {
    const { trace } = this, { requests } = trace, took = timeText(requests.duration_ns[i]);
    return `${requests.is_receive[i] ? "Receive request" : "Request"} ${requests.number[i]} of ` +
      `${trace.queuePairName(requests.queue_pair[i])}: ${trace.operationName(i)} ${requests.bytes[i]} B, ` +
      `${trace.statusName(i)}, ${took}`;
  }

  packetWay(i) {
    const { packets } = this.trace;
    const name = (qp) => qp < 0 ? "not in these traces" : this.trace.queuePairName(qp);
    const took = packets.tookNs[i] > 0 ? `, ${timeText(packets.tookNs[i])}` : "";
    return `${name(packets.from[i])} → ${name(packets.to[i])}${took}`;
  }

  /** A note beside the pointer. */
  tip(text, event) {
    const tip = byId("tip");
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const { offsetWidth: width, offsetHeight: height } = tip;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - height - 8)}px`;
  }

  chooseTheme(isDark) {
    document.documentElement.classList.toggle("dark", isDark);
    byId("theme").textContent = isDark ? "Light" : "Dark";
    this.colours = readColours();
    this.schedule();
  }

  toggleTheme() {
    this.chooseTheme(!document.documentElement.classList.contains("dark"));
  }
}

window.page = new Page(new Trace(JSON.parse(byId("data").textContent)));
