//! Devices with lanes and without them: random programs in virtual time, on a network that loses packets. The
//! same packets leave at the same times; completions, memory and counts are the same.

use std::net::IpAddr;
use std::sync::Arc;

use pumice_fabric::FabricConfig;
use pumice_faults::{Fault, WirePlan};
use pumice_model::addresses::gid_table::GidEntry;
use pumice_platform::clock::Random;
use pumice_transport::qp::{AttributeMask as Mask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::hca::{CqSetup, Hca, HcaConfig, LanePackets, OwnedMemory, QpInit};
use crate::objects::completion_queue::CompletionQueue;
use crate::world::World;

const SEEDS: u64 = 2000;
const TURNS: usize = 50;
const MEMORY_BYTES: usize = 1 << 14;
const LONGEST: u32 = 5000;

/// A device with one completion queue, one region and one queue pair.
struct End {
    hca: Arc<Hca>,
    ip: IpAddr,
    cq: Arc<CompletionQueue>,
    memory: OwnedMemory,
    qpn: Qpn,
}

impl End {
    fn new(world: &mut World, number: u8, lanes: bool) -> End {
        let ip = IpAddr::from([10, 0, 0, number]);
        let gids = vec![GidEntry::new(ip, "sim", 0, Mtu::Mtu4096)];
        let config = HcaConfig { lanes, ..HcaConfig::new(&format!("pumice{number}"), gids) };
        let hca = world.add_hca_with(config, |port| Box::new(port)).unwrap();
        let pd = hca.alloc_pd().unwrap();
        let cq = hca.create_cq(CqSetup { depth: 1024, ..CqSetup::default() }).unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let memory = OwnedMemory::register(&hca, pd, MEMORY_BYTES, 0x7000_0000, access).unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(cq.handle()),
            recv_cq: Some(cq.handle()),
            srq: None,
            xrcd: None,
            capacity: QpCapacity {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 64,
            },
            signal_all: false,
            cookie: 0,
        };
        let qpn = hca.create_qp(&init).unwrap().0;
        End { hca, ip, cq, memory, qpn }
    }

    fn modify(&self, state: QpState, attributes: QpAttributes, mask: Mask) {
        let attributes = QpAttributes { qp_state: state as u32, ..attributes };
        self.hca.modify_qp(self.qpn, &attributes, mask | Mask::STATE).unwrap();
    }

    /// RESET → RTS, connected to a peer.
    fn connect(&self, peer: &End) {
        let of_init = QpAttributes { port_num: 1, access: 15, ..QpAttributes::default() };
        self.modify(QpState::Init, of_init, Mask::PKEY_INDEX | Mask::PORT | Mask::ACCESS_FLAGS);
        let dgid = Gid::from(peer.ip);
        let of_rtr = QpAttributes {
            address_vector: AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() },
            path_mtu: Mtu::Mtu1024 as u32,
            dest_qp_num: peer.qpn.value(),
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ..QpAttributes::default()
        };
        let rtr = Mask::AV | Mask::PATH_MTU | Mask::DEST_QPN | Mask::RQ_PSN;
        self.modify(QpState::Rtr, of_rtr, rtr | Mask::MAX_DEST_RD_ATOMIC | Mask::MIN_RNR_TIMER);
        let of_rts = QpAttributes {
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..QpAttributes::default()
        };
        let rts = Mask::TIMEOUT | Mask::RETRY_CNT | Mask::RNR_RETRY | Mask::SQ_PSN | Mask::MAX_QP_RD_ATOMIC;
        self.modify(QpState::Rts, of_rts, rts);
    }

    /// Polls until nothing is there, and appends what came.
    fn drain(&self, into: &mut Vec<String>) {
        let mut some = [WorkCompletion::default(); 4];
        loop {
            let count = self.hca.poll_cq(&self.cq, &mut some);
            into.extend(some.iter().take(count).map(|completion| format!("{completion:?}")));
            if count == 0 {
                return;
            }
        }
    }
}

/// What a run leaves.
#[derive(Debug, PartialEq)]
struct Outcome {
    digest: u64,
    end_ns: u64,
    completions: [Vec<String>; 2],
    memory: [Vec<u8>; 2],
    counts: [Vec<u64>; 2],
}

/// Posts one to three requests of one kind, most often one, each with a receive request where it needs one.
fn post(random: &mut Random, wr_id: u64, from: &End, to: &End) {
    let mut below = |bound: u64| random.below(bound);
    use SendOpcode::*;
    let opcodes = [Send, Send, SendWithImm, RdmaWrite, RdmaWrite, RdmaWriteWithImm, RdmaRead];
    let opcode = opcodes[below(opcodes.len() as u64) as usize];
    let length = [0, 3, 8, 8, 8, 100, 1024, LONGEST][below(8) as usize];
    let count = [1, 1, 1, 1, 2, 3][below(6) as usize];
    let here = below((MEMORY_BYTES as u64 - u64::from(LONGEST)) / 8) * 8;
    let there = below((MEMORY_BYTES as u64 - u64::from(LONGEST)) / 8) * 8;
    let data = [wr_id as u8; 64];
    let is_inline = length <= 64 && opcode != RdmaRead && below(2) == 0;
    let is_ready = below(20) != 0;
    let sges = [from.memory.sge(here, length)];
    let requests: Vec<SendRequest<'_>> = (0..count)
        .map(|number| {
            if opcode.info().class == WrClass::Send || opcode == RdmaWriteWithImm {
                let sges = [to.memory.sge(there, LONGEST)];
                // Without it, or with a full queue, the peer says that it is not ready.
                let _ = is_ready && to.hca.post_recv(to.qpn, &RecvRequest { wr_id, sges: &sges }).is_ok();
            }
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, number + 1 == count);
            flags.set(SendFlags::INLINE, is_inline);
            SendRequest {
                sges: if is_inline { &[] } else { &sges },
                inline_data: if is_inline { &data[..length as usize] } else { &[] },
                imm_data: (wr_id as u32).to_be_bytes(),
                remote: to.memory.target(there),
                flags,
                ..SendRequest::new(wr_id, opcode)
            }
        })
        .collect();
    // A full send queue refuses the rest.
    let _ = match &requests[..] {
        [only] => from.hca.post_send(from.qpn, only).is_ok(),
        several => from.hca.post_sends(from.qpn, several).is_ok(),
    };
}

fn run(seed: u64, lanes: bool) -> (Outcome, LanePackets) {
    let faults =
        WirePlan::seeded(seed).by_chance(if seed.is_multiple_of(2) { 0 } else { 20_000 }, Fault::Drop);
    let mut world = World::new(FabricConfig { seed, faults, ..FabricConfig::default() });
    let ends = [1, 2].map(|number| End::new(&mut world, number, lanes));
    let [a, b] = &ends;
    a.connect(b);
    b.connect(a);
    for (offset, end) in ends.iter().enumerate() {
        let noise: Vec<u8> = (0..MEMORY_BYTES).map(|index| (index * 7 + offset) as u8).collect();
        assert!(end.memory.write(0, &noise));
    }
    let mut random = Random::new(seed);
    let mut completions = [Vec::new(), Vec::new()];
    for turn in 0..TURNS {
        let from = random.below(2) as usize;
        post(&mut random, turn as u64, &ends[from], &ends[1 - from]);
        world.run_for(random.below(30_000));
        ends.iter().zip(&mut completions).for_each(|(end, into)| end.drain(into));
    }
    // What still waits for receive requests gets them.
    for end in &ends {
        let sges = [end.memory.sge(0, LONGEST)];
        while end.hca.post_recv(end.qpn, &RecvRequest { wr_id: u64::MAX, sges: &sges }).is_ok() {}
    }
    world.run_for(2_000_000_000);
    ends.iter().zip(&mut completions).for_each(|(end, into)| end.drain(into));
    let memory = ends.each_ref().map(|end| {
        let mut bytes = vec![0; MEMORY_BYTES];
        assert!(end.memory.read(0, &mut bytes));
        bytes
    });
    let counts = ends.each_ref().map(|end| end.hca.counters().snapshot().map(|(_, count)| count).to_vec());
    let [of_a, of_b] = ends.each_ref().map(|end| end.hca.lane_packets());
    let by_lane = LanePackets { sent: of_a.sent + of_b.sent, received: of_a.received + of_b.received };
    let (digest, end_ns) = (world.fabric().digest(), world.now_ns());
    (Outcome { digest, end_ns, completions, memory, counts }, by_lane)
}

#[test]
fn a_device_does_the_same_with_lanes_and_without() {
    let mut by_lane = LanePackets::default();
    for seed in 0..SEEDS {
        let ((with, took), (without, took_none)) = (run(seed, true), run(seed, false));
        assert_eq!(took_none, LanePackets::default());
        assert_eq!(with.counts, without.counts, "seed {seed}");
        assert_eq!(with.completions, without.completions, "seed {seed}");
        assert!(with == without, "seed {seed}: other packets, times or bytes");
        by_lane = LanePackets { sent: by_lane.sent + took.sent, received: by_lane.received + took.received };
    }
    // Else the comparison says nothing.
    let some = SEEDS * TURNS as u64 / 4;
    assert!(by_lane.sent > some && by_lane.received > some, "{by_lane:?}");
}

/// Each completion frees the entries that it stands for, whether it comes out of its queue or passes over it.
#[test]
fn a_completion_that_passes_over_its_queue_frees_one_entry() {
    let mut world = World::new(FabricConfig::default());
    let [a, b] = [1, 2].map(|number| End::new(&mut world, number, true));
    a.connect(&b);
    b.connect(&a);
    let post = |wr_id: u64| {
        let sges = [a.memory.sge(0, 8)];
        let flags = SendFlags::SIGNALED;
        let remote = b.memory.target(0);
        let write =
            SendRequest { sges: &sges, flags, remote, ..SendRequest::new(wr_id, SendOpcode::RdmaWrite) };
        a.hca.post_send(a.qpn, &write).is_ok()
    };
    let mut one = [WorkCompletion::default()];
    let (mut posted, mut polled) = (0, 0);
    while post(posted) {
        posted += 1;
    }
    assert!(posted >= 16);
    for _ in 0..100 {
        // The packets arrive, and the polls below are what takes them.
        for end in [&b, &a] {
            world.pass_time(world.now_ns() + 1_000_000);
            assert_eq!(end.hca.poll_cq(&end.cq, &mut one), usize::from(end.ip == a.ip));
        }
        loop {
            assert_eq!(one[0].wr_id, polled);
            polled += 1;
            assert!(post(posted) && !post(posted + 1), "a polled completion frees one entry");
            posted += 1;
            if a.hca.poll_cq(&a.cq, &mut one) == 0 {
                break;
            }
        }
    }
    let engine = a.hca.core.lock();
    let counted = engine.resources.completions.cq_common.freed_send_slots.count(a.qpn.value());
    assert_eq!(u64::from(counted), polled);
}
