// The trace as columns that are fast to walk through, and what is derived from them once.

/** Bits of a packet's flags, as in flights.rs. */
const LOST = 1, DROPPED = 2, NOT_ARRIVED = 4, ANSWER = 8, DOUBLED = 16;
const TROUBLE = LOST | DROPPED | NOT_ARRIVED;
/** Requests of a queue pair that are drawn beside each other; the last lane is of receive requests. */
const LANES = 4, SEND_LANES = 3;

class Trace {
  constructor(raw) {
    this.endNs = Math.max(1, raw.end_ns);
    this.remarks = raw.remarks;
    this.processes = raw.processes;
    this.queuePairs = raw.queue_pairs;
    this.parts = raw.parts;
    this.moments = raw.moments;
    this.stories = new Map(raw.stories);
    this.readPackets(raw.packets);
    this.readRequests(raw.requests);
    this.linkPackets();
    this.lanes();
    this.readCounters(raw.counters);
  }

  readPackets(raw) {
    const count = raw.after_ns.length;
    const packets = this.packets = {
      count, at: new Float64Array(count), end: new Float64Array(count), endMax: new Float64Array(count),
      from: Int32Array.from(raw.from), to: Int32Array.from(raw.to), opcode: Uint8Array.from(raw.opcode),
      psn: Uint32Array.from(raw.psn), bytes: Uint32Array.from(raw.bytes),
      transmission: Uint32Array.from(raw.transmission), request: Int32Array.from(raw.request),
      flags: Uint8Array.from(raw.flags), tookNs: raw.took_ns,
    };
    let at = 0, last = 0;
    for (let i = 0; i < count; i++) {
      at += raw.after_ns[i];
      packets.at[i] = at;
      packets.end[i] = at + Math.max(0, raw.took_ns[i]);
      packets.endMax[i] = last = Math.max(last, packets.end[i]);
    }
    this.opcodeNames = new Map(raw.opcodes);
    this.endNs = Math.max(this.endNs, last);
  }

  readRequests(raw) {
    const count = raw.number.length;
    this.requests = raw;
    raw.count = count;
    raw.at = Float64Array.from(raw.posted_ns);
    raw.end = new Float64Array(count);
    raw.endMax = new Float64Array(count);
    let last = 0;
    for (let i = 0; i < count; i++) {
      raw.end[i] = raw.at[i] + raw.duration_ns[i];
      raw.endMax[i] = last = Math.max(last, raw.end[i]);
    }
    const success = raw.statuses.indexOf("SUCCESS");
    raw.hasFailed = Uint8Array.from(raw.status, (status) => status >= 0 && status !== success ? 1 : 0);
  }

  /** Packets by request, and which requests had trouble. */
  linkPackets() {
    const { packets, requests } = this;
    const first = this.firstOf = new Uint32Array(requests.count + 1);
    for (let i = 0; i < packets.count; i++) if (packets.request[i] >= 0) first[packets.request[i] + 1]++;
    for (let i = 0; i < requests.count; i++) first[i + 1] += first[i];
    const next = first.slice();
    this.ofRequests = new Uint32Array(first[requests.count]);
    requests.hasLoss = new Uint8Array(requests.count);
    this.lostPackets = this.repeatedPackets = 0;
    for (let i = 0; i < packets.count; i++) {
      const isTrouble = packets.flags[i] & TROUBLE, request = packets.request[i];
      this.lostPackets += isTrouble ? 1 : 0;
      this.repeatedPackets += packets.transmission[i] > 1 ? 1 : 0;
      if (request < 0) continue;
      this.ofRequests[next[request]++] = i;
      if (isTrouble) requests.hasLoss[request] = 1;
    }
  }

  packetsOf(request) {
    return this.ofRequests.subarray(this.firstOf[request], this.firstOf[request + 1]);
  }

  hasTrouble(request) {
    const { hasLoss, hasFailed, transmissions, status } = this.requests;
    return hasLoss[request] || hasFailed[request] || transmissions[request] > 1 || status[request] < 0;
  }

  /** A lane for each request, so that few overlap: the one that is free first. */
  lanes() {
    const { requests } = this, until = this.queuePairs.map(() => new Float64Array(LANES));
    requests.lane = new Uint8Array(requests.count);
    this.used = new Uint8Array(this.queuePairs.length);
    for (let i = 0; i < requests.count; i++) {
      const qp = requests.queue_pair[i], of = until[qp];
      this.used[qp] = 1;
      let lane = requests.is_receive[i] ? SEND_LANES : 0;
      for (let other = 1; other < SEND_LANES && of[lane] > requests.at[i] && lane < SEND_LANES; other++) {
        if (of[other] < of[lane]) lane = other;
      }
      of[lane] = Math.max(of[lane], requests.end[i]);
      requests.lane[i] = lane;
    }
    for (const places of [this.packets.from, this.packets.to]) {
      for (const qp of places) if (qp >= 0) this.used[qp] = 1;
    }
  }

  /** Counters, and those of each queue pair; one of a completion queue is of several. */
  readCounters(raw) {
    this.countersOf = this.queuePairs.map(() => []);
    this.counters = raw.map(({ queue_pairs: queuePairs, name, unit, after_ns: after, value }) => {
      let last = 0;
      const at = Float64Array.from(after, (ns) => last += ns);
      const most = value.reduce((most, one) => Math.max(most, one), 1);
      const counter = { queuePairs, name, unit, at, value: Float64Array.from(value), most };
      for (const qp of queuePairs) this.countersOf[qp].push(counter);
      return counter;
    });
  }

  processName(place) {
    const { program, process, tag } = this.processes[place];
    return tag && !tag.startsWith(program) ? `${tag} (${program} ${process})` : `${program} ${process}`;
  }

  /** Short: what a plan calls the process, and the number of the queue pair. */
  queuePairName(place) {
    const { process, qpn } = this.queuePairs[place], { tag, program } = this.processes[process];
    return `${tag || program} ${hexText(qpn)}`;
  }

  opcodeName(byte) {
    return this.opcodeNames.get(byte) ?? hexText(byte);
  }

  statusName(request) {
    const status = this.requests.status[request];
    return status < 0 ? "not completed" : this.requests.statuses[status];
  }

  operationName(request) {
    return this.requests.operations[this.requests.operation[request]];
  }

  /** The parts of a request's time as pairs of kind and ns. */
  partsOf(request) {
    const flat = this.requests.parts[request], pairs = [];
    for (let i = 0; i < flat.length; i += 2) pairs.push([flat[i], flat[i + 1]]);
    return pairs;
  }

  packetText(i) {
    const { packets } = this, flags = packets.flags[i];
    const again = packets.transmission[i] > 1 ? `, sent for the ${packets.transmission[i]}. time` : "";
    const fate = flags & LOST ? ", lost by a fault plan" : flags & DROPPED ? ", dropped on arrival"
      : flags & NOT_ARRIVED ? ", did not arrive" : flags & DOUBLED ? ", doubled on its way" : "";
    const name = this.opcodeName(packets.opcode[i]);
    return `${name} PSN ${packets.psn[i]}, ${packets.bytes[i]} B${again}${fate}`;
  }
}

/** The first place whose value is at least `wanted`, in an array in ascending order. */
function firstAtLeast(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
