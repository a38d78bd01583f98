//! What a benchmark prints and what a device in a world charges, computed from a performance model.
//!
//! What a device in a world charges: a performance model as a row of whole numbers, which fits a variable of
//! the environment.
//!
//! Latencies are those of perftest: SEND and WRITE one way, READ and atomics from post to completion. The
//! time between two messages is a smooth maximum of the time that a queue pair needs for each and of the
//! time of its bytes, because measured curves are round at their knee.

use super::{Key, PerformanceModel};

/// Share of the rate of PCIe that is left beside the headers of packets with 256 bytes: 256 of 288.
pub const PCIE_SHARE: f64 = 256.0 / 288.0;
/// Exponent of the smooth maximum: the fit of the published curves.
const KNEE: f64 = 5.0;

/// The quantity that a benchmark measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names of verbs
pub enum Measured {
    Send,
    Write,
    Read,
    Atomic,
}

/// Returns the smooth maximum of two times.
pub fn smooth_maximum(one: f64, other: f64) -> f64 {
    let most = one.max(other);
    if most <= 0.0 {
        return 0.0;
    }
    most * ((one / most).powf(KNEE) + (other / most).powf(KNEE)).powf(1.0 / KNEE)
}

impl PerformanceModel {
    /// Returns the time that the network takes one way, in ns.
    fn network_ns(&self) -> f64 {
        self.value(Key::Cable) + self.value(Key::Switch)
    }

    /// Returns the time from the post to the arrival of a request without data, in ns.
    fn request_ns(&self) -> f64 {
        [Key::Post, Key::Doorbell, Key::Send, Key::Virtual, Key::Receive]
            .map(|key| self.value(key))
            .iter()
            .sum::<f64>()
            + self.network_ns()
    }

    /// Returns the time that a packet with this payload takes where all packets of the adapter are in turn.
    fn packet_ns(&self, payload_bytes: f64, is_read: bool) -> f64 {
        let bits = |key: Key, bytes: f64| match self.value(key) {
            rate if rate > 0.0 => bytes * 8.0 / rate,
            _ => 0.0,
        };
        let link = bits(Key::RateGbit, payload_bytes + self.value(Key::HeaderBytes));
        let pcie = bits(Key::PcieGbit, payload_bytes) / PCIE_SHARE;
        let read = if is_read { bits(Key::ReadGbit, payload_bytes) } else { 0.0 };
        link.max(pcie).max(read).max(self.value(Key::Packet))
    }

    /// Returns the payload of the first packet, and the time of those behind it, in ns.
    fn packets(&self, bytes: u64, is_read: bool) -> (f64, f64) {
        let mtu = if self.value(Key::Mtu) > 0.0 { self.value(Key::Mtu) } else { 4096.0 };
        let (all, first) = (bytes as f64, (bytes as f64).min(mtu));
        let behind = (all - first).max(0.0);
        let (full, rest) = ((behind / mtu).floor(), behind % mtu);
        let last_ns = if rest > 0.0 { self.packet_ns(rest, is_read) } else { 0.0 };
        (first, full * self.packet_ns(mtu, is_read) + last_ns)
    }

    /// Returns the latency of a message of this length as perftest prints it, in ns.
    pub fn latency_ns(&self, measured: Measured, bytes: u64) -> f64 {
        let (first, behind_ns) = self.packets(bytes, measured == Measured::Read);
        let data_ns = self.value(Key::Byte) * first + behind_ns;
        let is_fetched = bytes as f64 > self.value(Key::InlineBytes);
        let sent_ns = data_ns + if is_fetched { self.value(Key::Fetch) } else { 0.0 };
        let request_ns = self.request_ns();
        let poll_ns = self.value(Key::Poll);
        match measured {
            Measured::Send => request_ns + sent_ns + poll_ns,
            Measured::Write => request_ns + sent_ns,
            Measured::Read => request_ns + self.network_ns() + self.value(Key::Read) + data_ns + poll_ns,
            Measured::Atomic => request_ns + self.network_ns() + self.value(Key::Atomic) + poll_ns,
        }
    }

    /// Returns the time between two messages in a long row, in ns, over this number of queue pairs.
    pub fn interval_ns(&self, measured: Measured, bytes: u64, queue_pairs: u32) -> f64 {
        let count = f64::from(queue_pairs.max(1));
        let (first, behind_ns) = self.packets(bytes, false);
        let first_ns = self.packet_ns(first, false);
        let contexts = self.value(Key::Contexts);
        let missing = if contexts > 0.0 { (1.0 - contexts / count).max(0.0) } else { 0.0 };
        let serial_ns = if measured == Measured::Atomic { self.value(Key::AtomicSerial) } else { 0.0 };
        let miss_ns = self.value(Key::ContextMiss) * missing;
        let own_ns = smooth_maximum(self.value(Key::Message).max(serial_ns) / count, first_ns);
        let all_ns = own_ns.max(first_ns + behind_ns).max(self.value(Key::AdapterMessage) + miss_ns);
        match measured {
            Measured::Read => {
                let (first, behind_ns) = self.packets(bytes, true);
                all_ns.max((self.packet_ns(first, true) + behind_ns) / count)
            }
            _ => all_ns,
        }
    }
}

/// A number of [`Costs`]. Times are in ps, those of a byte in fs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names of the keys of a model
pub enum Cost {
    Post,
    Poll,
    Register,
    /// The first packet of a message that carries data, from the beginning of the call that posts it.
    Request,
    InlineBytes,
    Fetch,
    /// A packet behind the first.
    Later,
    Byte,
    /// The first packet of the response of a READ.
    Read,
    /// The response of an atomic.
    Atomic,
    Acknowledge,
    Message,
    AdapterMessage,
    Packet,
    LinkByte,
    HeaderBytes,
    PcieByte,
    ReadByte,
    AtomicSerial,
    Contexts,
    ContextMiss,
}

const COUNT: usize = Cost::ContextMiss as usize + 1;
/// Largest number, which leaves room for sums.
const MAX_COST: u64 = 1 << 50;

/// The costs of calls and packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs([u64; COUNT]);

impl Costs {
    /// Returns a number.
    #[inline]
    pub fn get(&self, cost: Cost) -> u64 {
        self.0.get(cost as usize).copied().unwrap_or(0)
    }

    /// Returns the costs of a model.
    pub fn of(model: &PerformanceModel) -> Costs {
        let sum = |keys: &[Key]| keys.iter().map(|key| model.value(*key)).sum::<f64>();
        let network = [Key::Cable, Key::Switch];
        let network_ns = sum(&network);
        let request = [Key::Post, Key::Doorbell, Key::Send, Key::Virtual, Key::Receive];
        let byte_fs = |rate: f64| if rate > 0.0 { 8.0e6 / rate } else { 0.0 };
        let mut costs = Costs([0; COUNT]);
        let mut set = |cost: Cost, value: f64| {
            if let Some(place) = costs.0.get_mut(cost as usize) {
                *place = (value.round() as u64).min(MAX_COST);
            }
        };
        let in_ps = [
            (Cost::Post, model.value(Key::Post)),
            (Cost::Poll, model.value(Key::Poll)),
            (Cost::Register, model.value(Key::Register)),
            (Cost::Request, sum(&request) + network_ns),
            (Cost::Fetch, model.value(Key::Fetch)),
            (Cost::Later, sum(&[Key::Send, Key::Receive]) + network_ns),
            (Cost::Read, model.value(Key::Read) + network_ns),
            (Cost::Atomic, model.value(Key::Atomic) + network_ns),
            (Cost::Acknowledge, model.value(Key::Acknowledge) + network_ns),
            (Cost::Message, model.value(Key::Message)),
            (Cost::AdapterMessage, model.value(Key::AdapterMessage)),
            (Cost::Packet, model.value(Key::Packet)),
            (Cost::AtomicSerial, model.value(Key::AtomicSerial)),
            (Cost::ContextMiss, model.value(Key::ContextMiss)),
        ];
        in_ps.into_iter().for_each(|(cost, ns)| set(cost, ns * 1e3));
        set(Cost::Byte, model.value(Key::Byte) * 1e6);
        set(Cost::LinkByte, byte_fs(model.value(Key::RateGbit)));
        set(Cost::PcieByte, byte_fs(model.value(Key::PcieGbit)) / PCIE_SHARE);
        set(Cost::ReadByte, byte_fs(model.value(Key::ReadGbit)));
        set(Cost::InlineBytes, model.value(Key::InlineBytes));
        set(Cost::HeaderBytes, model.value(Key::HeaderBytes));
        set(Cost::Contexts, model.value(Key::Contexts));
        costs
    }

    /// Returns how long the adapter reads a message from memory, in ns.
    pub fn fetch_ns(&self) -> u64 {
        self.get(Cost::Fetch).saturating_add(500) / 1000
    }

    /// Returns the numbers as a text without spaces.
    pub fn text(&self) -> String {
        let numbers: Vec<String> = self.0.iter().map(u64::to_string).collect();
        numbers.join(",")
    }

    /// Reads what [`Costs::text`] has written; `None` for another text.
    pub fn parse(text: &str) -> Option<Costs> {
        let mut costs = Costs([0; COUNT]);
        let mut numbers = text.split(',');
        for place in &mut costs.0 {
            *place = numbers.next()?.parse().ok().filter(|number| *number <= MAX_COST)?;
        }
        numbers.next().is_none().then_some(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(numbers: &str) -> PerformanceModel {
        let figures: String = numbers
            .split_whitespace()
            .map(|one| one.split_once('=').expect("name=value"))
            .map(|(name, value)| format!("{name} = {{ value = {value}, source = \"test\" }}\n"))
            .collect();
        PerformanceModel::parse(&format!("[model]\nname = \"x\"\n{figures}")).expect("it is right")
    }

    #[test]
    fn a_latency_is_the_sum_of_its_parts() {
        let parts = model(
            "post_ns=1 doorbell_ns=2 send_ns=4 receive_ns=8 poll_ns=16 cable_ns=32 switch_ns=64 \
                           fetch_ns=1000 inline_bytes=100 byte_ns=0.5 read_ns=128 atomic_ns=256",
        );
        assert_eq!(parts.latency_ns(Measured::Send, 100), 127.0 + 50.0);
        assert_eq!(parts.latency_ns(Measured::Send, 102), 127.0 + 51.0 + 1000.0);
        assert_eq!(parts.latency_ns(Measured::Write, 0), 111.0);
        assert_eq!(parts.latency_ns(Measured::Read, 0), 127.0 + 96.0 + 128.0);
        assert_eq!(parts.latency_ns(Measured::Atomic, 8), 127.0 + 96.0 + 256.0);
    }

    #[test]
    fn packets_behind_the_first_take_their_turn() {
        let link = model("rate_gbit=8 header_bytes=10 mtu_bytes=1000 byte_ns=2");
        // The first 1000 bytes at 2 ns, a full packet of 1010 bytes, and one of 510, at 1 ns a byte.
        assert_eq!(link.latency_ns(Measured::Write, 2500), 2000.0 + 1010.0 + 510.0);
        assert_eq!(link.interval_ns(Measured::Write, 2500, 1), 2.0 * 1010.0 + 510.0);
        let slot = model("rate_gbit=800 pcie_gbit=8 mtu_bytes=1000");
        assert!((slot.interval_ns(Measured::Write, 1000, 1) - 1125.0).abs() < 1e-9);
    }

    #[test]
    fn more_queue_pairs_carry_more_messages_up_to_what_the_adapter_does() {
        let adapter = model("message_ns=100 adapter_message_ns=30 contexts=4 context_miss_ns=40");
        assert_eq!(
            [1, 2, 4].map(|count| adapter.interval_ns(Measured::Write, 8, count)),
            [100.0, 50.0, 30.0]
        );
        assert_eq!(adapter.interval_ns(Measured::Write, 8, 8), 50.0, "half of them miss");
        let reads = model("rate_gbit=400 read_gbit=200");
        let (one, two) =
            (reads.interval_ns(Measured::Read, 4096, 1), reads.interval_ns(Measured::Read, 4096, 2));
        assert!((one / two - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_text_of_costs_is_read_again() {
        for built_in in super::super::BUILT_IN_MODELS {
            let model = PerformanceModel::parse(built_in.text).expect("it is right");
            let costs = Costs::of(&model);
            assert_eq!(Costs::parse(&costs.text()), Some(costs), "{}", model.name);
        }
        assert_eq!([Costs::parse("1"), Costs::parse(""), Costs::parse("x")], [None; 3]);
        let long = format!("{},1", Costs([0; COUNT]).text());
        assert_eq!(Costs::parse(&long), None);
    }
}
