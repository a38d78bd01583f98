//! Two queue pairs and a network with planes and paths, in virtual time: packets are lost, trimmed, marked,
//! repeated and overtaken, paths and planes die and come back.

use std::collections::{BTreeMap, VecDeque};

use pumice_transport::host::PeerProgress;
use pumice_transport::mrc::congestion::{CongestionControl, Nscc, NsccParameters, Unlimited};
use pumice_transport::mrc::entropy::{
    Entropy, MrcArrival, MrcOutgoingPacket, Plane, Planes, TrafficClass, Trim,
};
use pumice_transport::mrc::paths::EvProfile;
use pumice_transport::mrc::wire::MrcOpcode;
use pumice_transport::mrc::{
    MrcProgress, MrcQueuePair, MrcSettings, RequesterAttributes, ResponderAttributes,
};
use pumice_transport::types::{Mtu, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcStatus};
use pumice_transport::wire::{Psn, Qpn};

use crate::device::{Device, KEY, Out, context};

/// Messages of one side that are posted and not complete.
const MOST_POSTED: u64 = 128;
const MAX_BYTES: u64 = 900;
/// Where a message lies, here and at the peer: slots are not used again while they matter.
const SLOT_BYTES: u64 = 1024;
const SLOTS: u64 = 256;
const REMOTE: u64 = 1 << 19;
const RECEIVES: usize = 256;
const PLANES: u8 = 4;
const USUAL_NS: u64 = 5_000;
/// Epochs of a blackout, of so many.
const BLACKOUT: std::ops::Range<u64> = 5..30;
const BLACKOUTS: u64 = 60;
/// How long paths and planes stay as they are.
const EPOCH_NS: u64 = 1_000_000;

/// What the network does, in thousandths of packets.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) trimmed: u64,
    pub(crate) marked: u64,
    pub(crate) twice: u64,
    pub(crate) late: u64,
    pub(crate) longest_ns: u64,
    /// Paths that are dead, of a thousand, others in each epoch.
    pub(crate) dead_paths: u64,
    /// In every other epoch a plane is dead; and the queue pairs are told of it, or not.
    pub(crate) dies: Option<Told>,
    /// Everything is lost for longer than the local ACK timeout, now and then.
    pub(crate) has_blackouts: bool,
    /// The processor's time that a packet takes where it arrives.
    pub(crate) work_ns: u64,
    /// Begin and end of a time in which the second side has no processor.
    pub(crate) pause_ns: Option<[u64; 2]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Yes,
    No,
}

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

/// A number that follows from two others.
fn mixed(one: u64, other: u64) -> u64 {
    let mut random = Random(one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other);
    random.below(1 << 31) ^ random.below(1 << 31)
}

pub(crate) struct Side {
    pub(crate) qp: MrcQueuePair,
    pub(crate) device: Device,
    posted: u64,
    completed: u64,
    /// Messages of the peer that have been seen, and bytes of all of them.
    received: u64,
    posted_bytes: u64,
    with_imm: Vec<u64>,
    /// Packets that wait for the processor, which is free from a time on.
    inbox: VecDeque<(MrcArrival, Vec<u8>)>,
    free_ns: u64,
}

/// How the queue pairs are connected.
#[derive(Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) has_trimming: bool,
    pub(crate) has_nscc: bool,
    pub(crate) is_ipv4: bool,
    /// Exponent of the local ACK timeout.
    pub(crate) timeout: u8,
}

const LENGTH_SEED: u64 = 77;

/// Length and kind of a message follow from its number.
fn message(number: u64) -> (u64, bool) {
    let drawn = mixed(number, LENGTH_SEED);
    let most = if drawn.is_multiple_of(4) { MAX_BYTES } else { 256 };
    let has_imm = !(drawn / 4).is_multiple_of(3);
    (mixed(number, LENGTH_SEED + 1) % (most + 1), has_imm)
}

fn byte_of(number: u64, offset: u64) -> u8 {
    (number.wrapping_mul(31) + offset * 7 + (number >> 8)) as u8
}

impl Side {
    fn new(index: u32, connection: Connection, seed: u64) -> Side {
        let settings = MrcSettings {
            max_send_wr: 1024,
            ..MrcSettings::new(context(0x11 + index), Qpn::new(0x12 - index), Mtu::Mtu256)
        };
        let psns = [Psn::new(0xff_ff00), Psn::new(0x12_3456)];
        let mut qp = MrcQueuePair::new(settings);
        qp.to_rtr(&ResponderAttributes::new(psns[1 - index as usize]));
        let profile = EvProfile::automatic(seed, PLANES, connection.is_ipv4);
        let congestion: Box<dyn CongestionControl> = match connection.has_nscc {
            true => Box::new(Nscc::new(NsccParameters::new(256, 12.5, 12_000, connection.has_trimming))),
            false => Box::new(Unlimited),
        };
        qp.to_rts(RequesterAttributes {
            has_trimming: connection.has_trimming,
            congestion,
            base_rtt_ns: 12_000,
            timeout: connection.timeout,
            ..RequesterAttributes::new(psns[index as usize], profile, seed)
        });
        Side {
            qp,
            device: Device::new(),
            posted: 0,
            completed: 0,
            received: 0,
            posted_bytes: 0,
            with_imm: Vec::new(),
            inbox: VecDeque::new(),
            free_ns: 0,
        }
    }

    fn post(&mut self, most: u64) {
        let number = self.posted;
        let (length, mut has_imm) = message(number);
        // Only a WRITE with immediate tells that it has arrived.
        has_imm |= number + 1 == most || number % 16 == 15;
        let slot = number % SLOTS * SLOT_BYTES;
        let start = slot as usize;
        for offset in 0..length {
            self.device.memory[start + offset as usize] = byte_of(number, offset);
        }
        let list = [Sge { address: slot, length: length as u32, lkey: KEY }];
        let is_inline = number.is_multiple_of(5);
        let data = self.device.memory[start..start + length as usize].to_vec();
        let request = SendRequest {
            sges: &list,
            inline_data: &data,
            flags: SendFlags::SIGNALED | if is_inline { SendFlags::INLINE } else { SendFlags::empty() },
            imm_data: (number as u32).to_be_bytes(),
            remote: RemoteTarget { address: REMOTE + slot, rkey: KEY },
            ..SendRequest::new(
                number,
                if has_imm { SendOpcode::RdmaWriteWithImm } else { SendOpcode::RdmaWrite },
            )
        };
        self.qp.post_send(&request, &mut self.device).unwrap();
        self.posted += 1;
        self.posted_bytes += length;
        if has_imm {
            self.with_imm.push(number);
        }
    }

    fn wants_to_post(&self, most: u64) -> bool {
        self.posted < most && self.posted - self.completed < MOST_POSTED && self.qp.outstanding() < 1000
    }

    /// All messages up to this one are in memory, as they were sent.
    fn verify(&mut self, up_to: u64) {
        for number in self.received..=up_to {
            let slot = (REMOTE + number % SLOTS * SLOT_BYTES) as usize;
            for offset in 0..message(number).0 {
                let found = self.device.memory[slot + offset as usize];
                assert_eq!(found, byte_of(number, offset), "message {number}, byte {offset}");
            }
        }
        self.received = up_to + 1;
    }
}

struct Packet {
    to: usize,
    arrival: MrcArrival,
    bytes: Vec<u8>,
}

pub(crate) struct Simulation {
    pub(crate) sides: [Side; 2],
    weather: Weather,
    random: Random,
    under_way: BTreeMap<(u64, u64), Packet>,
    pub(crate) now_ns: u64,
    pub(crate) packets: u64,
    /// Of each side, how many of its messages with immediate the peer has seen.
    seen: [usize; 2],
    epoch: u64,
}

impl Simulation {
    pub(crate) fn new(weather: Weather, connection: Connection, seed: u64) -> Simulation {
        let side = |index| Side::new(index, connection, seed * 2 + u64::from(index));
        Simulation {
            sides: [side(0), side(1)],
            weather,
            random: Random(seed),
            under_way: BTreeMap::new(),
            now_ns: 1_000_000,
            packets: 0,
            seen: [0; 2],
            epoch: 0,
        }
    }

    fn dead_plane(&self) -> Option<Plane> {
        let epoch = self.now_ns / EPOCH_NS;
        (self.weather.dies.is_some() && epoch % 2 == 1).then(|| Plane((epoch / 2 % u64::from(PLANES)) as u8))
    }

    fn is_dead(&self, departure: &MrcOutgoingPacket) -> bool {
        let path = mixed(u64::from(departure.entropy.0), self.now_ns / EPOCH_NS) % 1000;
        let is_dark = self.weather.has_blackouts && BLACKOUT.contains(&(self.now_ns / EPOCH_NS % BLACKOUTS));
        is_dark || path < self.weather.dead_paths || self.dead_plane() == Some(departure.plane)
    }

    /// A packet is on its way, if it is not lost.
    fn forward(&mut self, to: usize, departure: MrcOutgoingPacket, mut bytes: Vec<u8>) {
        let mut chance = |share: u64| share > 0 && self.random.below(1000) < share;
        let weather = self.weather;
        let is_lost = chance(weather.lost);
        let is_trimmable =
            matches!(departure.class, TrafficClass::Trimmable | TrafficClass::TrimmableRetransmission)
                && MrcOpcode::from_byte(bytes[0]).is_some_and(MrcOpcode::is_write);
        let is_trimmed = is_trimmable && chance(weather.trimmed);
        let congested = departure.class != TrafficClass::Control && chance(weather.marked);
        let (is_twice, is_late) = (chance(weather.twice), chance(weather.late));
        if is_lost || self.is_dead(&departure) {
            return;
        }
        let trim = is_trimmed.then_some(if bytes[11] & 7 == 0 { Trim::LastHop } else { Trim::EarlierHop });
        if is_trimmed {
            bytes.truncate(12 + self.random.below(40) as usize);
        }
        let Entropy(entropy) = departure.entropy;
        // Paths are of different lengths.
        let length_ns = USUAL_NS + mixed(entropy.into(), 1) % 1000;
        let arrival = MrcArrival { entropy: departure.entropy, plane: departure.plane, congested, trim };
        for copy in vec![bytes; 1 + usize::from(is_twice)] {
            let late_ns = if is_late { self.random.below(weather.longest_ns) } else { 0 };
            self.packets += 1;
            let at = self.now_ns + length_ns + late_ns;
            self.under_way.insert((at, self.packets), Packet { to, arrival, bytes: copy });
        }
    }

    fn send(&mut self) {
        for index in 0..2 {
            while self.sides[index].qp.wants_to_send() {
                let mut out = Out { packets: Vec::new(), room: 64 };
                let Side { qp, device, .. } = &mut self.sides[index];
                let progress = qp.transmit(self.now_ns, device, &mut out);
                assert_eq!(progress == MrcProgress::Blocked, out.packets.len() == 64 && qp.wants_to_send());
                for (departure, bytes) in out.packets {
                    self.forward(1 - index, departure, bytes);
                }
            }
        }
    }

    fn tell_of_planes(&mut self) {
        let epoch = self.now_ns / EPOCH_NS;
        if self.weather.dies == Some(Told::Yes) && epoch != self.epoch {
            self.epoch = epoch;
            let up = self.dead_plane().map_or(Planes::ALL, |plane| Planes::ALL.without(plane));
            self.sides[0].qp.set_local_planes(up);
            self.sides[1].qp.set_remote_planes(up);
        }
    }

    /// The next thing happens; false: nothing is left to happen.
    fn step(&mut self) -> bool {
        self.send();
        let arrives = self.under_way.keys().next().map(|(at, _)| *at);
        let expires = self.sides.iter().filter_map(|side| side.qp.deadline_ns()).min();
        let busy = self.sides.iter().filter(|side| !side.inbox.is_empty()).map(|side| side.free_ns).min();
        let Some(next) = arrives.into_iter().chain(expires).chain(busy).min() else { return false };
        self.now_ns = self.now_ns.max(next);
        self.tell_of_planes();
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let Packet { to, arrival, bytes } = entry.remove();
            self.sides[to].inbox.push_back((arrival, bytes));
        }
        (0..2).for_each(|index| self.work(index));
        for Side { qp, device, .. } in &mut self.sides {
            if qp.deadline_ns().is_some_and(|due| due <= self.now_ns) {
                qp.handle_timeout(self.now_ns, PeerProgress::Unknown, device);
            }
        }
        (0..2).for_each(|index| self.look(index));
        true
    }

    /// A side takes the packets that have arrived, as far as its processor is free.
    fn work(&mut self, index: usize) {
        let Weather { work_ns, pause_ns, .. } = self.weather;
        let Side { qp, device, inbox, free_ns, .. } = &mut self.sides[index];
        while *free_ns <= self.now_ns
            && let Some((arrival, bytes)) = inbox.pop_front()
        {
            qp.handle_datagram(self.now_ns, &arrival, &bytes, device).unwrap();
            *free_ns = self.now_ns + work_ns;
            if let Some([begin, end]) = pause_ns.filter(|_| index == 1)
                && (begin..end).contains(free_ns)
            {
                *free_ns = end;
            }
        }
    }

    /// What the program of a side sees.
    fn look(&mut self, index: usize) {
        let [one, other] = &mut self.sides;
        let (side, peer) = if index == 0 { (one, other) } else { (other, one) };
        for done in side.device.sent.drain(..) {
            assert_eq!((done.wr_id, done.status), (side.completed, WcStatus::Success));
            side.completed += 1;
        }
        for done in core::mem::take(&mut side.device.received) {
            let number = peer.with_imm[self.seen[1 - index]];
            self.seen[1 - index] += 1;
            assert_eq!(done.imm_data, (number as u32).to_be_bytes(), "immediates come once and in order");
            assert_eq!(u64::from(done.byte_len), message(number).0);
            side.verify(number);
        }
        while side.device.receives.len() < RECEIVES {
            side.device.receives.push_back(0);
        }
    }

    /// Sends until so many messages of each side have been posted and all have ended.
    pub(crate) fn run(&mut self, messages: [u64; 2]) {
        (0..2).for_each(|index| self.look(index));
        while (0..2).any(|index| self.sides[index].completed < messages[index]) {
            for (side, most) in self.sides.iter_mut().zip(messages) {
                while side.wants_to_post(most) {
                    side.post(most);
                }
            }
            assert!(self.step(), "messages wait, and nothing is left to happen");
        }
        for index in 0..2 {
            let [one, other] = &self.sides;
            let (side, peer) = if index == 0 { (one, other) } else { (other, one) };
            assert_eq!((side.received, self.seen[1 - index]), (messages[1 - index], peer.with_imm.len()));
            assert_eq!(side.device.written_bytes, peer.posted_bytes, "each byte is written once");
        }
    }
}
