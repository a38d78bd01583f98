// The table of work requests. Only the rows that are seen are on the page.

const ROW_HEIGHT = 24;

class Table {
  constructor(page) {
    this.page = page;
    this.body = byId("requests-body");
    this.space = byId("requests-space");
    this.grid = byId("requests");
    this.sorting = { column: "posted", isDown: false };
    this.rows = [];
    const { trace } = page, { requests } = trace;
    const queuePair = (i) => trace.queuePairs[requests.queue_pair[i]];
    this.columns = [
      { name: "number", title: "No.", isNumber: true, value: (i) => requests.number[i] },
      { name: "process", title: "Process", value: (i) => this.shortName(queuePair(i).process) },
      { name: "qp", title: "QP", value: (i) => hexText(queuePair(i).qpn) },
      { name: "opcode", title: "Opcode", value: (i) => trace.operationName(i) },
      { name: "status", title: "Status", value: (i) => trace.statusName(i) },
      { name: "bytes", title: "Bytes", isNumber: true, value: (i) => requests.bytes[i] },
      { name: "posted", title: "Posted", isNumber: true, value: (i) => requests.at[i],
        text: (i) => timeText(requests.at[i], 2) },
      { name: "latency", title: "Latency", isNumber: true, value: (i) => requests.duration_ns[i],
        text: (i) => timeText(requests.duration_ns[i]) },
      { name: "parts", title: "Parts", value: (i) => this.mainPart(i) },
      { name: "sent", title: "Sent", isNumber: true, value: (i) => requests.transmissions[i],
        text: (i) => requests.transmissions[i] ? `${requests.transmissions[i]}×` : "" },
    ];
    this.makeHead();
    this.body.addEventListener("scroll", () => this.draw());
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest(".request");
      if (row) page.choose(Number(row.dataset.request), "table");
    });
    this.space.addEventListener("dblclick", () => page.showChosen());
    this.grid.addEventListener("keydown", (event) => this.key(event));
  }

  shortName(process) {
    const { tag, program } = this.page.trace.processes[process];
    return tag || program;
  }

  /** The kind of the part that took longest, for sorting. */
  mainPart(i) {
    return this.page.trace.partsOf(i).reduce((most, part) => part[1] > most[1] ? part : most, [99, -1])[0];
  }

  makeHead() {
    const head = byId("requests-head");
    for (const column of this.columns) {
      const button = element("button", { type: "button", tabindex: "0" }, column.title);
      button.addEventListener("click", () => this.sortBy(column.name));
      column.head = element("div", { role: "columnheader", class: column.isNumber ? "number" : "" }, button);
      column.head.dataset.column = column.name;
      head.append(column.head);
    }
    this.grid.setAttribute("aria-colcount", String(this.columns.length));
  }

  sortBy(name) {
    const { column, isDown } = this.sorting;
    // What is long or often is looked for first.
    const first = ["latency", "sent", "bytes"].includes(name);
    this.sorting = { column: name, isDown: column === name ? !isDown : first };
    this.update();
  }

  /** Rows anew after a filter or the order has changed. */
  update() {
    const { page } = this, { column: name, isDown } = this.sorting;
    const column = this.columns.find((one) => one.name === name);
    const rows = [];
    for (let i = 0; i < page.trace.requests.count; i++) if (page.filter.requests[i]) rows.push(i);
    if (name !== "posted") {
      const keys = new Map(rows.map((i) => [i, column.value(i)]));
      const compare = (a, b) => a < b ? -1 : a > b ? 1 : 0;
      rows.sort((a, b) => compare(keys.get(a), keys.get(b)) * (isDown ? -1 : 1) || a - b);
    } else if (isDown) {
      rows.reverse();
    }
    this.rows = rows;
    for (const one of this.columns) {
      const sign = one.name !== name ? "" : isDown ? " ▾" : " ▴";
      one.head.firstChild.textContent = one.title + sign;
      one.head.setAttribute("aria-sort", one.name !== name ? "none" : isDown ? "descending" : "ascending");
    }
    this.grid.setAttribute("aria-rowcount", String(rows.length + 1));
    this.space.style.height = `${rows.length * ROW_HEIGHT}px`;
    this.draw();
  }

  draw() {
    const { body, rows, page } = this;
    const first = Math.max(0, Math.floor(body.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(rows.length, Math.ceil((body.scrollTop + body.clientHeight) / ROW_HEIGHT) + 4);
    this.space.replaceChildren(...rows.slice(first, last).map((request, n) => this.row(request, first + n)));
    const isSeen = page.chosen >= 0 && byId(`request-${page.chosen}`);
    if (isSeen) this.grid.setAttribute("aria-activedescendant", `request-${page.chosen}`);
    else this.grid.removeAttribute("aria-activedescendant");
  }

  row(request, place) {
    const { page } = this, { requests } = page.trace;
    const row = element("div", {
      class: "request", role: "row", id: `request-${request}`, "aria-rowindex": String(place + 2),
      "aria-selected": String(request === page.chosen),
    });
    row.dataset.request = String(request);
    row.style.top = `${place * ROW_HEIGHT}px`;
    for (const column of this.columns) {
      const text = column.name === "parts" ? "" : String((column.text ?? column.value)(request));
      const cell = element("div", { role: "gridcell", class: column.isNumber ? "number" : "" }, text);
      if (column.name === "parts") this.bar(request, cell);
      const isBad = column.name === "status" && (requests.hasFailed[request] || requests.status[request] < 0);
      if (isBad) cell.classList.add("failed");
      if (column.name === "sent" && requests.transmissions[request] > 1) cell.classList.add("again");
      row.append(cell);
    }
    return row;
  }

  bar(request, cell) {
    const { trace } = this.page, whole = trace.requests.duration_ns[request] || 1, words = [];
    cell.classList.add("bar");
    for (const [kind, ns] of trace.partsOf(request)) {
      const piece = element("i", { class: `part-${kind}` });
      piece.style.width = `${ns / whole * 100}%`;
      cell.append(piece);
      words.push(`${timeText(ns)} ${trace.parts[kind]}`);
    }
    cell.setAttribute("aria-label", words.join("; "));
    cell.title = words.join("\n");
  }

  /** Scrolls so that a request is seen. */
  reveal(request) {
    const place = this.rows.indexOf(request), { body } = this;
    if (place < 0) return this.draw();
    const top = place * ROW_HEIGHT;
    if (top < body.scrollTop || top + ROW_HEIGHT > body.scrollTop + body.clientHeight) {
      body.scrollTop = Math.max(0, top - body.clientHeight / 2);
    }
    this.draw();
  }

  key(event) {
    if (event.target.closest("#requests-head")) return;
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW_HEIGHT) - 1), end = this.rows.length;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -end, End: end };
    const step = steps[event.key];
    if (event.key === "Enter") this.page.showChosen();
    else if (step !== undefined) this.move(step);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  move(step) {
    const now = this.rows.indexOf(this.page.chosen);
    const next = now < 0 ? (step > 0 ? 0 : this.rows.length - 1) : now + step;
    const place = Math.min(this.rows.length - 1, Math.max(0, next));
    if (place >= 0) this.page.choose(this.rows[place], "table");
  }
}
