// Which requests, packets and moments are shown.

const NO_FILTER = { process: "", queuePair: "", opcode: "", status: "", text: "" };

class Filter {
  constructor(trace) {
    this.trace = trace;
    this.wanted = { ...NO_FILTER };
    this.requests = new Uint8Array(trace.requests.count);
    this.packets = new Uint8Array(trace.packets.count);
    this.texts = new Array(trace.requests.count);
    this.apply();
  }

  set(changes) {
    Object.assign(this.wanted, changes);
    this.apply();
  }

  apply() {
    const { trace, wanted } = this;
    this.words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    const [side, byte] = wanted.opcode.split(":");
    this.packetOpcode = side === "packet" ? Number(byte) : -1;
    this.operation = side === "request" ? Number(byte) : -1;
    this.shownRequests = this.shownPackets = 0;
    for (let i = 0; i < trace.requests.count; i++) this.requests[i] = this.hasRequest(i) ? 1 : 0;
    for (let i = 0; i < trace.packets.count; i++) this.packets[i] = this.hasPacket(i) ? 1 : 0;
    for (const one of this.requests) this.shownRequests += one;
    for (const one of this.packets) this.shownPackets += one;
    this.moments = trace.moments.filter((moment) => this.hasMoment(moment));
    this.queuePairs = trace.queuePairs.map((_, qp) => qp).filter((qp) => this.hasQueuePair(qp));
  }

  isOfChosen(queuePair) {
    const { process, queuePair: chosen } = this.wanted;
    if (chosen !== "" && queuePair !== Number(chosen)) return false;
    return process === "" || (queuePair >= 0 && this.trace.queuePairs[queuePair].process === Number(process));
  }

  hasRequest(i) {
    const { trace, wanted } = this, { requests } = trace;
    if (!this.isOfChosen(requests.queue_pair[i])) return false;
    if (this.operation >= 0 && requests.operation[i] !== this.operation) return false;
    if (wanted.status !== "" && !this.hasStatus(i)) return false;
    if (this.packetOpcode >= 0) {
      const isIt = (packet) => trace.packets.opcode[packet] === this.packetOpcode;
      if (!trace.packetsOf(i).some(isIt)) return false;
    }
    return this.words.every((word) => this.requestHas(i, word));
  }

  hasStatus(i) {
    const { requests } = this.trace;
    switch (this.wanted.status) {
      case "failed": return requests.hasFailed[i];
      case "open": return requests.status[i] < 0;
      case "again": return requests.transmissions[i] > 1;
      case "lost": return requests.hasLoss[i];
      default: return requests.status[i] === Number(this.wanted.status);
    }
  }

  /** A number means the request's number, one of its PSNs or its wr_id; other words are parts of its text. */
  requestHas(i, word) {
    const { trace } = this, { requests } = trace;
    if (/^\d+$/.test(word)) {
      const number = Number(word), ahead = (number - requests.psn[i]) & 0xffffff;
      return requests.number[i] === number || (requests.packets[i] > 0 && ahead < requests.packets[i]);
    }
    this.texts[i] ??= [
      trace.queuePairName(requests.queue_pair[i]), trace.processName(this.processOf(i)),
      trace.operationName(i), trace.statusName(i), requests.wr_id[i],
    ].join(" ").toLowerCase();
    return this.texts[i].includes(word);
  }

  processOf(request) {
    return this.trace.queuePairs[this.trace.requests.queue_pair[request]].process;
  }

  hasPacket(i) {
    const { packets } = this.trace, request = packets.request[i];
    if (this.packetOpcode >= 0 && packets.opcode[i] !== this.packetOpcode) return false;
    if (request >= 0) return this.requests[request] === 1;
    if (this.wanted.status !== "" || this.operation >= 0) return false;
    if (!this.isOfChosen(packets.from[i]) && !this.isOfChosen(packets.to[i])) return false;
    return this.words.every((word) => {
      return /^\d+$/.test(word) ? packets.psn[i] === Number(word)
        : this.trace.packetText(i).toLowerCase().includes(word);
    });
  }

  /** Moments stay while requests are searched, unless a word of theirs is meant. */
  hasMoment(moment) {
    const { process, queuePair } = this.wanted;
    if (process !== "" && moment.process !== Number(process)) return false;
    return queuePair === "" || moment.queue_pair === Number(queuePair);
  }

  /** Queue pairs that are chosen, and the peers of those. */
  hasQueuePair(qp) {
    const { trace } = this, peer = trace.queuePairs[qp].peer;
    return trace.used[qp] && (this.isOfChosen(qp) || (peer !== null && this.isOfChosen(peer)));
  }
}
