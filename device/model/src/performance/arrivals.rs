//! When packets arrive whose costs are known: the sum of `sum.rs`, packet by packet. Time is an argument.

use std::collections::BTreeMap;

use pumice_transport::wire::{OperationClass, Qpn, peek};

use super::sum::{Cost, Costs, smooth_maximum};

/// Length of the ICRC, in bytes.
const ICRC_BYTES: usize = 4;
/// Largest number of queue pairs whose latest message is known. Beyond it all are forgotten.
const MAX_QUEUE_PAIRS: usize = 1 << 16;

/// The facts that decide the time of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostedPacket {
    /// Effect of the packet.
    pub class: OperationClass,
    /// The packet begins its message.
    pub begins: bool,
    /// The packet is its whole message.
    pub is_whole: bool,
    /// Length of the payload, in bytes.
    pub payload_bytes: u64,
    /// Queue pair to which it goes.
    pub destination: Qpn,
}

impl CostedPacket {
    /// Returns what decides the time of a packet, from BTH to ICRC; `None` if it is no packet of RoCE.
    pub fn of(packet: &[u8]) -> Option<CostedPacket> {
        let info = peek::opcode(packet)?.info()?;
        Some(CostedPacket {
            class: info.class,
            begins: info.position.begins(),
            is_whole: info.position.begins() && info.position.ends(),
            payload_bytes: packet.len().saturating_sub(info.header_bytes + ICRC_BYTES) as u64,
            destination: peek::destination(packet)?,
        })
    }

    /// Reports whether the packet carries data of a SEND or a WRITE.
    fn has_data(&self) -> bool {
        matches!(self.class, OperationClass::Send | OperationClass::Write) && self.payload_bytes > 0
    }

    /// Reports whether the packet is a message that a doorbell carries if its request does (inline data).
    pub fn is_short(&self, costs: &Costs) -> bool {
        self.has_data() && self.is_whole && self.payload_bytes <= costs.get(Cost::InlineBytes)
    }
}

/// The arrivals of packets at one device. No packet overtakes another.
#[derive(Debug)]
pub struct ArrivalTimes {
    costs: Costs,
    /// Time of the latest arrival, in ps.
    last_ps: u64,
    /// Time at which the latest message began to arrive, for all queue pairs and for each.
    begun_ps: Option<u64>,
    begun_of_queue_pairs_ps: BTreeMap<Qpn, u64>,
    /// Time of the latest packet of a response of each queue pair.
    read_ps: BTreeMap<Qpn, u64>,
}

impl ArrivalTimes {
    /// Returns the arrivals at a device to which nothing has come.
    pub const fn new(costs: Costs) -> ArrivalTimes {
        ArrivalTimes {
            costs,
            last_ps: 0,
            begun_ps: None,
            begun_of_queue_pairs_ps: BTreeMap::new(),
            read_ps: BTreeMap::new(),
        }
    }

    /// Returns when a packet arrives that was sent at a time, in ns. A packet of another protocol arrives at
    /// once, but behind those before it.
    pub fn arrives_at_ns(&mut self, sent_ns: u64, packet: &[u8]) -> u64 {
        let sent_ps = sent_ns.saturating_mul(1000);
        let at_ps = CostedPacket::of(packet).map_or(sent_ps, |packet| self.arrives_at_ps(sent_ps, &packet));
        self.last_ps = self.last_ps.max(at_ps);
        self.last_ps.saturating_add(500) / 1000
    }

    fn arrives_at_ps(&mut self, sent_ps: u64, packet: &CostedPacket) -> u64 {
        let cost = |cost| self.costs.get(cost);
        let is_response = packet.class == OperationClass::ReadResponse && packet.payload_bytes > 0;
        let turn_ps = self.turn_ps(packet.payload_bytes);
        let takes_ps = match packet.class {
            OperationClass::ReadResponse if packet.begins => cost(Cost::Read),
            OperationClass::Acknowledge => cost(Cost::Acknowledge),
            OperationClass::AtomicAnswer => cost(Cost::Atomic),
            _ if packet.begins => cost(Cost::Request) + self.fetch_ps(packet),
            _ => cost(Cost::Later),
        };
        let stored_ps = cost(Cost::Byte).saturating_mul(packet.payload_bytes) / 1000;
        let mut at_ps = (sent_ps + takes_ps + stored_ps).max(self.last_ps + turn_ps);
        if is_response {
            let own_ps = cost(Cost::ReadByte) * packet.payload_bytes / 1000;
            let read_ps = bounded(&mut self.read_ps).entry(packet.destination).or_insert(0);
            at_ps = at_ps.max(*read_ps + own_ps);
            *read_ps = at_ps;
        }
        if packet.begins && packet.class.is_request() {
            at_ps = self.begins_at_ps(at_ps, turn_ps, packet);
        }
        at_ps
    }

    /// Returns when a message begins to arrive, no earlier than `at_ps`: its queue pair and the adapter need
    /// a time for each.
    fn begins_at_ps(&mut self, mut at_ps: u64, turn_ps: u64, packet: &CostedPacket) -> u64 {
        let cost = |cost| self.costs.get(cost);
        let known = bounded(&mut self.begun_of_queue_pairs_ps);
        let (count, contexts) = (known.len() as u64, cost(Cost::Contexts));
        let is_atomic = packet.class == OperationClass::Atomic;
        let serial_ps = if is_atomic { cost(Cost::AtomicSerial) } else { 0 };
        let own_ps = smooth_maximum(cost(Cost::Message).max(serial_ps) as f64, turn_ps as f64) as u64;
        if let Some(begun_ps) = known.get(&packet.destination) {
            at_ps = at_ps.max(*begun_ps + own_ps);
        }
        if let Some(begun_ps) = self.begun_ps {
            let missed = if contexts > 0 { count.saturating_sub(contexts) } else { 0 };
            let miss_ps = (cost(Cost::ContextMiss) * missed).checked_div(count).unwrap_or(0);
            at_ps = at_ps.max(begun_ps + cost(Cost::AdapterMessage) + miss_ps);
        }
        known.insert(packet.destination, at_ps);
        self.begun_ps = Some(at_ps);
        at_ps
    }

    /// Returns the additional time of a message that no doorbell carries.
    fn fetch_ps(&self, packet: &CostedPacket) -> u64 {
        if packet.has_data() && !packet.is_short(&self.costs) { self.costs.get(Cost::Fetch) } else { 0 }
    }

    /// Returns the time that a packet takes where all packets are in turn.
    fn turn_ps(&self, payload_bytes: u64) -> u64 {
        let cost = |cost| self.costs.get(cost);
        let link_ps = cost(Cost::LinkByte) * (payload_bytes + cost(Cost::HeaderBytes)) / 1000;
        let pcie_ps = cost(Cost::PcieByte) * payload_bytes / 1000;
        link_ps.max(pcie_ps).max(cost(Cost::Packet))
    }
}

fn bounded(map: &mut BTreeMap<Qpn, u64>) -> &mut BTreeMap<Qpn, u64> {
    if map.len() >= MAX_QUEUE_PAIRS {
        map.clear();
    }
    map
}

#[cfg(test)]
mod tests {
    use super::super::{BUILT_IN_MODELS, PerformanceModel, sum::Measured};
    use super::*;

    const DESTINATION: Qpn = Qpn::new(17);

    fn times(model: &PerformanceModel) -> ArrivalTimes {
        ArrivalTimes::new(Costs::of(model))
    }

    /// Returns the packets of a message with this many bytes.
    fn message(class: OperationClass, bytes: u64, mtu: u64, destination: Qpn) -> Vec<CostedPacket> {
        let count = bytes.div_ceil(mtu).max(1);
        let packet = |index: u64| CostedPacket {
            class,
            begins: index == 0,
            is_whole: count == 1,
            payload_bytes: (bytes - index * mtu).min(mtu),
            destination,
        };
        (0..count).map(packet).collect()
    }

    /// Lets packets arrive that leave at one time, and returns when the last one is there.
    fn arrive(times: &mut ArrivalTimes, sent_ps: u64, packets: &[CostedPacket]) -> u64 {
        for packet in packets {
            let at_ps = times.arrives_at_ps(sent_ps, packet);
            assert!(at_ps >= times.last_ps, "no packet overtakes another");
            times.last_ps = at_ps;
        }
        times.last_ps
    }

    fn models() -> impl Iterator<Item = PerformanceModel> {
        BUILT_IN_MODELS.iter().map(|model| PerformanceModel::parse(model.text).expect("it is right"))
    }

    #[test]
    fn packets_of_a_message_arrive_when_the_sum_says() {
        for model in models() {
            let mtu = (model.value(super::super::Key::Mtu) as u64).max(256);
            for bytes in [0, 2, 64, 256, 1024, 4096, 5000, 65536, 1 << 20] {
                let packets = message(OperationClass::Write, bytes, mtu, DESTINATION);
                let at_ns = arrive(&mut times(&model), 0, &packets) as f64 / 1e3;
                let sum_ns = model.latency_ns(Measured::Write, bytes);
                let rounded_ns = 0.01 * packets.len() as f64 + 0.01;
                let late_ns = at_ns - sum_ns;
                assert!(late_ns.abs() <= rounded_ns, "{} {bytes} B: {at_ns} and {sum_ns} ns", model.name);
            }
        }
    }

    #[test]
    fn a_read_comes_back_when_the_sum_says() {
        for model in models() {
            let mut there = times(&model);
            let mut back = times(&model);
            let asked = message(OperationClass::Read, 0, 4096, DESTINATION);
            let at_ps = arrive(&mut there, 0, &asked);
            let answer = message(OperationClass::ReadResponse, 64, 4096, DESTINATION);
            let at_ns = arrive(&mut back, at_ps, &answer) as f64 / 1e3 + model.value(super::super::Key::Poll);
            assert!((at_ns - model.latency_ns(Measured::Read, 64)).abs() < 0.1, "{}", model.name);
        }
    }

    #[test]
    fn messages_in_a_row_arrive_at_the_interval_of_the_sum() {
        const MESSAGES: u64 = 200;
        for model in models() {
            let mtu = (model.value(super::super::Key::Mtu) as u64).max(256);
            for (bytes, pairs) in [(2, 1), (1024, 1), (65536, 1), (8, 4), (8, 32)] {
                let mut times = times(&model);
                let mut at_ps = Vec::new();
                for number in 0..MESSAGES {
                    let to = Qpn::new(17 + (number % u64::from(pairs)) as u32);
                    at_ps.push(arrive(&mut times, 0, &message(OperationClass::Write, bytes, mtu, to)));
                }
                let (half, end) = (at_ps[MESSAGES as usize / 2 - 1], at_ps[MESSAGES as usize - 1]);
                let interval_ns = (end - half) as f64 / 1e3 / (MESSAGES / 2) as f64;
                let sum_ns = model.interval_ns(Measured::Write, bytes, pairs);
                let off = (interval_ns - sum_ns).abs() / sum_ns.max(1.0);
                assert!(off < 0.16, "{} {bytes} B, {pairs}: {interval_ns} and {sum_ns} ns", model.name);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_packet_come_behind_those_before_them() {
        let model = PerformanceModel::built_in("connectx-6").expect("it is there");
        let mut times = times(&model);
        assert_eq!(times.arrives_at_ns(5, &[]), 5);
        arrive(&mut times, 7_000, &message(OperationClass::Write, 8, 4096, DESTINATION));
        let last_ns = times.last_ps.div_ceil(1000);
        assert!(times.arrives_at_ns(8, &[0xff; 3]) >= last_ns - 1);
    }
}
