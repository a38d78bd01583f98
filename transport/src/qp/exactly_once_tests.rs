//! Services that number their messages, on a network that loses, duplicates and reorders packets: each
//! message is executed once, for the number of messages that is asked for. A peer that is killed or restarted
//! leads to completions.

extern crate std;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::network_kit::{KEY, Random, SentPackets, TestHost, Weather, address_of, path};
use super::{Arrival, Progress, QueuePair, SrdOrder, Urgency, dc, srd};
use crate::path::Flow;
use crate::types::{
    DcDestination, QpType, RemoteTarget, SendOpcode, SendRequest, Sge, UdDestination, VendorService, WcStatus,
};
use crate::wire::{Packet, Qpn};

/// Number of messages of a run, where [`MESSAGES`] does not give another one.
const USUAL_MESSAGES: u64 = 20_000;
/// Variable with which `scripts/nightly` asks for more.
const MESSAGES: &str = "PUMICE_EXACTLY_ONCE";
/// Largest number of messages that are posted and not complete.
const MAX_POSTED: u64 = 128;
const MAX_BYTES: u64 = 2500;
const RECEIVES: usize = 512;
const QKEY: u32 = 0x1111_1111;
const ACCESS_KEY: u64 = 0x0123_4567_89ab_cdef;
/// Time after which the longest silence of a peer has ended everything that waits for it.
const LONGEST_WAIT_NS: u64 = 60_000_000_000;
/// Losses and duplicates: one packet in a hundred each.
const ROUGH: Weather = Weather { lost: 10, twice: 10, longest_ns: 20_000 };
/// Number of packets in a thousand that take longer than the others, which overtake them.
const LATE: u64 = 20;
const USUAL_NS: u64 = 5_000;

struct End {
    qp: QueuePair,
    device: TestHost,
}

/// Two queue pairs of a service, of which the first sends to the second.
struct Pair {
    service: VendorService,
    ends: [Option<End>; 2],
    under_way: BTreeMap<(u64, u64), (Flow, Vec<u8>)>,
    random: Random,
    weather: Weather,
    now_ns: u64,
    packets: u64,
    posted: u64,
    /// Messages that have been received, a bit for each.
    received: Vec<u64>,
    completed: Vec<(u64, WcStatus)>,
}

impl End {
    fn new(own: VendorService, index: usize) -> End {
        let mut device = TestHost::new((0..2).map(address_of));
        let qpn = Qpn::new(0x100 + index as u32);
        // Retries are endless: the test checks that no message is lost, and not how long a program waits.
        let rnr_retry = 7;
        let qp = match own.qp_type() {
            QpType::Srd => srd::tests::queue_pair(qpn, SrdOrder::Seed(1), Some(rnr_retry), &mut device),
            _ => dc::tests::queue_pair(qpn, own, rnr_retry, &mut device),
        };
        End { qp, device }
    }
}

impl Pair {
    fn new(service: VendorService, seed: u64, weather: Weather) -> Pair {
        let mut pair = Pair {
            service,
            ends: [None, None],
            under_way: BTreeMap::new(),
            random: Random(seed),
            weather,
            now_ns: 1_000_000,
            packets: 0,
            posted: 0,
            received: Vec::new(),
            completed: Vec::new(),
        };
        (0..2).for_each(|index| pair.start(index));
        pair
    }

    /// Creates an end, or creates it again without its earlier state.
    fn start(&mut self, index: usize) {
        let own = match self.service {
            VendorService::DcInitiator { .. } if index == 1 => {
                VendorService::DcTarget { access_key: ACCESS_KEY }
            }
            own => own,
        };
        self.ends[index] = Some(End::new(own, index));
    }

    fn post(&mut self) {
        let length = self.random.below(MAX_BYTES + 1) as u32;
        let wr_id = self.posted;
        let list = [Sge { address: 0, length, lkey: KEY }];
        let request = SendRequest {
            sges: &list,
            ud: Some(UdDestination { path: path(0, 1), qpn: Qpn::new(0x101), qkey: QKEY }),
            dc: Some(DcDestination { access_key: ACCESS_KEY, stream: 0 }),
            imm_data: (wr_id as u32).to_be_bytes(),
            remote: RemoteTarget { address: 4096, rkey: KEY },
            ..SendRequest::new(wr_id, SendOpcode::SendWithImm)
        };
        let opcode = [SendOpcode::SendWithImm, SendOpcode::RdmaWriteWithImm][(wr_id & 1) as usize];
        let request = SendRequest { opcode, ..request };
        let Some(End { qp, device }) = &mut self.ends[0] else { return };
        qp.post_send(&request, device).unwrap();
        self.posted += 1;
    }

    /// Sends all packets that can leave now.
    fn send(&mut self) {
        for End { qp, device } in self.ends.iter_mut().flatten() {
            let mut out = SentPackets { packets: Vec::new(), room: 64 };
            if qp.response_urgency() > Urgency::None {
                assert_eq!(qp.transmit_responses(self.now_ns, device, &mut out), Progress::Idle);
            }
            out.room = usize::MAX;
            if qp.wants_to_send() {
                assert_eq!(qp.transmit_requests(self.now_ns, device, &mut out), Progress::Idle);
            }
            for (flow, bytes) in out.packets {
                if self.random.below(1000) < self.weather.lost {
                    continue;
                }
                let twice = self.random.below(1000) < self.weather.twice;
                for copy in vec![bytes; 1 + usize::from(twice)] {
                    let is_late = self.random.below(1000) < LATE;
                    let late_ns = if is_late { self.random.below(self.weather.longest_ns) } else { 0 };
                    let at = self.now_ns + USUAL_NS + late_ns;
                    self.packets += 1;
                    self.under_way.insert((at, self.packets), (flow, copy));
                }
            }
        }
    }

    /// Handles the next event; returns false if there is none.
    fn step(&mut self) -> bool {
        self.send();
        let arrives = self.under_way.keys().next().map(|(at, _)| *at);
        let expires = self.ends.iter().flatten().filter_map(|end| end.qp.deadline_ns()).min();
        let Some(next) = arrives.into_iter().chain(expires).min() else { return false };
        self.now_ns = self.now_ns.max(next);
        while let Some(entry) = self.under_way.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
            let (flow, bytes) = entry.remove();
            let to = (0..2).find(|index| address_of(*index) == flow.destination).unwrap();
            if let Some(End { qp, device }) = &mut self.ends[to] {
                let arrival = Arrival { flow: &flow, traffic_class: 0, hop_limit: 64 };
                qp.handle_packet(self.now_ns, &arrival, &Packet::parse(&bytes).unwrap(), device);
            }
        }
        for End { qp, device } in self.ends.iter_mut().flatten() {
            if qp.deadline_ns().is_some_and(|due| due <= self.now_ns) {
                qp.handle_timeout(self.now_ns, Default::default(), device);
            }
        }
        self.look();
        true
    }

    /// Handles the programs' side: completions of one end, messages of the other.
    fn look(&mut self) {
        if let Some(End { device, .. }) = &mut self.ends[0] {
            self.completed.extend(device.sent.drain(..).map(|done| (done.wr_id, done.status)));
        }
        let Some(End { device, .. }) = &mut self.ends[1] else { return };
        for done in device.received.drain(..) {
            assert_eq!(done.status, WcStatus::Success);
            let message = u64::from(u32::from_be_bytes(done.imm_data));
            let (word, bit) = ((message / 64) as usize, 1 << (message % 64));
            if self.received.len() <= word {
                self.received.resize(word + 1, 0);
            }
            assert_eq!(self.received[word] & bit, 0, "message {message} was received twice");
            self.received[word] |= bit;
        }
        while device.receives.len() < RECEIVES {
            device.receives.push_back((0, Sge { address: 8192, length: MAX_BYTES as u32, lkey: KEY }));
        }
    }

    /// Sends until this number of messages has been posted and all have ended.
    fn run_to(&mut self, messages: u64) {
        self.look();
        while (self.completed.len() as u64) < messages {
            while self.posted < messages && self.posted - (self.completed.len() as u64) < MAX_POSTED {
                self.post();
            }
            assert!(self.step(), "{} messages wait, and nothing is left to happen", self.posted);
        }
    }

    fn received_count(&self) -> u64 {
        self.received.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn ended_as(&self, status: WcStatus) -> usize {
        self.completed.iter().filter(|(_, ended)| *ended == status).count()
    }
}

#[expect(clippy::print_stdout, reason = "what a night has measured")]
fn exactly_once(service: VendorService, seed: u64) {
    let wanted = std::env::var(MESSAGES).map(|text| text.parse().unwrap());
    let messages = wanted.unwrap_or(USUAL_MESSAGES);
    let mut pair = Pair::new(service, seed, ROUGH);
    pair.run_to(messages);
    assert_eq!(pair.ended_as(WcStatus::Success) as u64, messages);
    assert_eq!(pair.received_count(), messages);
    std::println!(
        "{}: {messages} messages once each, {} packets arrived, {} ms of the network's time",
        service.qp_type().name(),
        pair.packets,
        pair.now_ns / 1_000_000
    );
}

const SRD: VendorService = VendorService::Srd { takes_unsolicited: false };
const DC: VendorService = VendorService::DcInitiator { streams: None };

#[test]
fn srd_delivers_each_message_once() {
    exactly_once(SRD, 1);
}

#[test]
fn dc_delivers_each_message_once() {
    exactly_once(DC, 2);
}

/// The peer dies in the middle: outstanding messages end with an error, in bounded time.
fn ends_with(service: VendorService, expected: WcStatus) {
    let mut pair = Pair::new(service, 3, ROUGH);
    pair.run_to(1000);
    for _ in 0..40 {
        pair.post();
    }
    pair.step();
    pair.ends[1] = None;
    let killed_ns = pair.now_ns;
    pair.run_to(1040);
    assert_eq!(pair.ended_as(WcStatus::Success), 1000);
    assert!(pair.ended_as(expected) >= 1, "{:?}", pair.completed.last());
    assert_eq!(pair.ended_as(expected) + pair.ended_as(WcStatus::WrFlushErr), 40);
    assert!(pair.now_ns - killed_ns < LONGEST_WAIT_NS);
}

#[test]
fn what_is_under_way_to_a_peer_that_was_killed_ends_with_an_error() {
    ends_with(SRD, WcStatus::RespTimeoutErr);
    ends_with(DC, WcStatus::RetryExcErr);
}

/// The peer restarts in the middle, without its state: each message ends, as received or with an error.
fn goes_on(service: VendorService, seed: u64) {
    let mut pair = Pair::new(service, seed, ROUGH);
    pair.run_to(1000);
    for _ in 0..40 {
        pair.post();
    }
    for _ in 0..1 + pair.random.below(60) {
        pair.step();
    }
    pair.start(1);
    // Messages that it receives again were received by the one before.
    pair.received.clear();
    let restarted_ns = pair.now_ns;
    pair.run_to(1040);
    assert!(pair.now_ns - restarted_ns < LONGEST_WAIT_NS, "seed {seed}");
    let ended: Vec<u64> = pair.completed.iter().map(|(message, _)| *message).collect();
    let mut sorted = ended.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1040).collect::<Vec<u64>>(), "seed {seed}");
}

#[test]
fn every_message_ends_when_the_peer_is_restarted() {
    for seed in 0..40 {
        goes_on(SRD, seed);
        goes_on(DC, seed);
    }
}

/// The sender restarts with the number that it had: its new messages are not taken for the earlier ones.
fn begins_anew(service: VendorService) {
    let mut pair = Pair::new(service, 5, ROUGH);
    pair.run_to(1000);
    for _ in 0..40 {
        pair.post();
    }
    pair.step();
    pair.start(0);
    (pair.posted, pair.completed, pair.received) = (0, Vec::new(), Vec::new());
    pair.run_to(1000);
    // Packets of the former sender that are under way may arrive first.
    assert_eq!(pair.ended_as(WcStatus::Success), 1000);
}

#[test]
fn messages_of_a_restarted_sender_are_new() {
    begins_anew(SRD);
    begins_anew(DC);
}
