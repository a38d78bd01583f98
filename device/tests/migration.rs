//! Path migration (APM) in virtual time: two devices with two addresses each.

mod kit;

use kit::{Connection, Node, connect};
use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::faults::{Fault, FaultPlan, WirePlan};
use pumice_device::hca::HcaConfig;
use pumice_device::opening::Opening;
use pumice_device::port::FabricConfig;
use pumice_device::world::World;
use pumice_transport::qp::{
    AttributeMask, Congestion, DcqcnParameters, NotificationParameters, QpAttributes,
};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

const MIGRATED: u32 = 0;
const REARM: u32 = 1;
const ARMED: u32 = 2;
const MESSAGES: u64 = 12;
const BYTES: u32 = 5000;
const PATIENCE_NS: u64 = 60_000_000_000;
/// The addresses of the devices: the primary path leads between the first ones, the alternate one between the
/// others.
const ADDRESSES: [[&str; 2]; 2] = [["10.0.0.1", "10.0.1.1"], ["10.0.0.2", "10.0.1.2"]];
/// From the seventh message on nothing passes between the first addresses.
const CUT: &str = "partition peer=10.0.0.2 qp=0 message=6 side=requester";

/// Two connected queue pairs.
struct Pair {
    world: World,
    nodes: [Node; 2],
    qps: [Qpn; 2],
}

impl Pair {
    fn new(plan: Option<&str>, network_seed: u64) -> Pair {
        let network = FabricConfig {
            seed: network_seed,
            delay_ns: 1_000 * (1 + network_seed),
            faults: WirePlan::seeded(network_seed).by_chance(10_000 * network_seed as u32, Fault::Drop),
            ..FabricConfig::default()
        };
        Pair::on(network, plan, &Congestion::default())
    }

    fn on(network: FabricConfig, plan: Option<&str>, congestion: &Congestion) -> Pair {
        let mut world = World::new(network);
        let plan = plan.map_or_else(FaultPlan::new, |line| FaultPlan::seeded(1).with_line(line).unwrap());
        let plans = [plan, FaultPlan::new()];
        let nodes = [0, 1].map(|side| {
            let gids = ADDRESSES[side].map(|ip| GidEntry::new(ip.parse().unwrap(), "sim", 0, Mtu::Mtu4096));
            let config =
                HcaConfig { congestion: congestion.clone(), ..HcaConfig::new("pumice0", gids.to_vec()) };
            let opening = Opening { faults: plans[side].clone(), ..Opening::new(config) };
            let hca = opening.in_world(&mut world).unwrap();
            Node::on(hca, ADDRESSES[side][0].parse().unwrap(), 1 << 20, 256)
        });
        let qps = [0, 1].map(|side: usize| nodes[side].create_qp(QpType::Rc));
        let few = Connection { timeout: 8, retry_cnt: 3, ..Connection::default() };
        connect(&nodes[0], qps[0], &nodes[1], qps[1], true, few);
        Pair { world, nodes, qps }
    }

    /// Loads an alternate path to the peer's address with this number, and arms it.
    fn rearm(&self, side: usize, peer_address: usize) {
        let attributes = QpAttributes {
            path_mig_state: REARM,
            alt_address_vector: AddressVector {
                sgid_index: 1,
                ..kit::address_vector(ADDRESSES[1 - side][peer_address].parse().unwrap())
            },
            alt_port_num: 1,
            alt_timeout: 10,
            ..QpAttributes::default()
        };
        self.modify(side, &attributes, AttributeMask::ALT_PATH | AttributeMask::PATH_MIG_STATE).unwrap();
    }

    fn modify(&self, side: usize, to: &QpAttributes, mask: AttributeMask) -> Result<(), String> {
        self.nodes[side].hca.modify_qp(self.qps[side], to, mask).map_err(|error| error.to_string())
    }

    fn state(&self, side: usize) -> u32 {
        self.nodes[side].hca.query_qp(self.qps[side]).unwrap().path_mig_state
    }

    /// Writes so many messages; their statuses.
    fn write(&mut self, first: u64, count: u64) -> Vec<WcStatus> {
        let [a, b] = &self.nodes;
        for k in first..first + count {
            let offset = k as usize * BYTES as usize;
            let request = SendRequest {
                sges: &[a.sge(offset, BYTES)],
                remote: b.target(offset),
                flags: SendFlags::SIGNALED,
                ..SendRequest::new(k, SendOpcode::RdmaWrite)
            };
            a.hca.post_send(self.qps[0], &request).unwrap();
        }
        let mut statuses = Vec::new();
        self.world.run_until(PATIENCE_NS, || {
            statuses.extend(a.drain().iter().map(|completion| completion.status));
            statuses.len() as u64 >= count
        });
        statuses
    }

    fn events(&self, side: usize) -> Vec<AsyncEventType> {
        let events = self.nodes[side].hca.async_events();
        std::iter::from_fn(|| events.try_event()).map(|event| (event.event, event.ack()).0).collect()
    }

    /// Where a side's packets go, and by which timeout.
    fn path(&self, side: usize) -> (AddressVector, u8) {
        let now = self.nodes[side].hca.query_qp(self.qps[side]).unwrap();
        (now.address_vector, now.timeout)
    }
}

fn first_failure(statuses: &[WcStatus]) -> Option<WcStatus> {
    statuses.iter().copied().find(|status| *status != WcStatus::Success)
}

#[test]
fn a_cut_path_is_left_for_the_alternate_one_and_every_byte_arrives() {
    for seed in 0..6 {
        let mut pair = Pair::new(Some(CUT), seed);
        let [a, b] = &pair.nodes;
        let bytes: Vec<u8> = (0..MESSAGES as usize * BYTES as usize).map(|k| (k * 7 % 251) as u8).collect();
        a.memory.write(0, &bytes);
        b.memory.write(0, &vec![0; bytes.len()]);
        pair.rearm(0, 1);
        pair.rearm(1, 1);
        assert_eq!([pair.state(0), pair.state(1)], [REARM; 2]);
        assert_eq!(pair.write(0, 3), [WcStatus::Success; 3]);
        assert_eq!([pair.state(0), pair.state(1)], [ARMED; 2], "seed {seed}");
        assert_eq!(
            pair.write(3, MESSAGES - 3),
            vec![WcStatus::Success; MESSAGES as usize - 3],
            "seed {seed}"
        );
        assert_eq!(pair.nodes[1].memory.read(0, bytes.len()), bytes);
        for side in 0..2 {
            let told = pair.events(side).into_iter().filter(|event| *event != AsyncEventType::CommEst);
            assert_eq!(told.collect::<Vec<_>>(), [AsyncEventType::PathMig], "side {side}, seed {seed}");
            assert_eq!(pair.state(side), MIGRATED);
            let (vector, timeout) = pair.path(side);
            let there: std::net::IpAddr = ADDRESSES[1 - side][1].parse().unwrap();
            assert_eq!((vector.dgid, vector.sgid_index, timeout), (Gid::from(there), 1, 10));
        }
    }
}

#[test]
fn a_program_asks_and_both_sides_move_then_back() {
    for seed in 0..4 {
        let mut pair = Pair::new(None, seed);
        pair.rearm(0, 1);
        pair.rearm(1, 1);
        assert_eq!(pair.write(0, 2), [WcStatus::Success; 2]);
        let back = QpAttributes { path_mig_state: MIGRATED, ..QpAttributes::default() };
        pair.modify(0, &back, AttributeMask::PATH_MIG_STATE).unwrap();
        assert_eq!((pair.state(0), pair.events(0)), (MIGRATED, vec![AsyncEventType::PathMig]));
        assert_eq!(pair.state(1), ARMED);
        assert_eq!(pair.write(2, 4), [WcStatus::Success; 4]);
        assert_eq!(pair.state(1), MIGRATED);
        assert!(pair.events(1).contains(&AsyncEventType::PathMig));
        // The old path is the alternate one now: the other side asks.
        for side in 0..2 {
            let attributes = QpAttributes {
                path_mig_state: ARMED,
                alt_address_vector: kit::address_vector(ADDRESSES[1 - side][0].parse().unwrap()),
                alt_port_num: 1,
                alt_timeout: 8,
                ..QpAttributes::default()
            };
            let mask = AttributeMask::ALT_PATH | AttributeMask::PATH_MIG_STATE;
            pair.modify(side, &attributes, mask).unwrap();
            assert_eq!(pair.state(side), REARM);
        }
        assert_eq!(pair.write(6, 2), [WcStatus::Success; 2]);
        pair.modify(1, &back, AttributeMask::PATH_MIG_STATE).unwrap();
        assert_eq!(pair.write(8, 4), [WcStatus::Success; 4], "seed {seed}");
        assert_eq!([pair.state(0), pair.state(1)], [MIGRATED; 2]);
        assert_eq!(pair.path(0).0.dgid, Gid::from(ADDRESSES[1][0].parse::<std::net::IpAddr>().unwrap()));
    }
}

#[test]
fn packets_on_the_alternate_path_can_be_marked_too() {
    let network = FabricConfig {
        rate_bits_per_second: Some(10_000_000_000),
        ecn_mark_queue_bytes: Some(0),
        ..FabricConfig::default()
    };
    let dcqcn = Congestion::dcqcn(DcqcnParameters::CONNECTX, NotificationParameters::default());
    let mut pair = Pair::on(network, None, &dcqcn);
    let marked = |pair: &Pair| pair.nodes[1].hca.counters().value(Counter::RxCongestionMarked);
    assert_eq!(first_failure(&pair.write(0, MESSAGES)), None);
    let before = marked(&pair);
    assert!(before > 0);
    for side in [0, 1] {
        pair.rearm(side, 1);
    }
    assert_eq!(first_failure(&pair.write(MESSAGES, MESSAGES)), None);
    let migrated = QpAttributes { path_mig_state: MIGRATED, ..QpAttributes::default() };
    pair.modify(0, &migrated, AttributeMask::PATH_MIG_STATE).unwrap();
    let at_migration = marked(&pair);
    assert_eq!(first_failure(&pair.write(2 * MESSAGES, MESSAGES)), None);
    assert_eq!((pair.state(0), pair.state(1)), (MIGRATED, MIGRATED));
    assert!(marked(&pair) > at_migration, "{before} marks before, {at_migration} at the migration");
}

#[test]
fn a_path_that_is_not_the_alternate_one_is_refused_with_an_event() {
    let mut pair = Pair::new(Some(CUT), 0);
    pair.rearm(0, 1);
    // The peer believes that the alternate path begins at another address.
    pair.rearm(1, 0);
    assert_eq!(pair.write(0, 3), [WcStatus::Success; 3]);
    assert_eq!([pair.state(0), pair.state(1)], [ARMED; 2]);
    let statuses = pair.write(3, MESSAGES - 3);
    assert_eq!(first_failure(&statuses), Some(WcStatus::RetryExcErr));
    assert_eq!(pair.events(0), [AsyncEventType::PathMig]);
    assert!(pair.events(1).ends_with(&[AsyncEventType::PathMigErr]));
    assert_eq!(pair.state(1), ARMED);
}

#[test]
fn without_an_armed_alternate_path_there_is_no_migration() {
    let arm = QpAttributes { path_mig_state: REARM, ..QpAttributes::default() };
    let mut pair = Pair::new(Some(CUT), 0);
    let refused = pair.modify(0, &arm, AttributeMask::PATH_MIG_STATE).unwrap_err();
    assert!(refused.contains("path_mig_state 1 needs an alternate path"), "{refused}");
    // Only one side has one: it never learns that the other one is ready.
    pair.rearm(0, 1);
    assert_eq!(pair.write(0, 3), [WcStatus::Success; 3]);
    assert_eq!([pair.state(0), pair.state(1)], [REARM, MIGRATED]);
    let statuses = pair.write(3, MESSAGES - 3);
    assert_eq!(first_failure(&statuses), Some(WcStatus::RetryExcErr));
    assert_eq!(pair.events(0), []);
}
