//! Peers whose processes live and do not run: starved ones are waited for, stopped and dead ones are not.
//! The peers here never take a ring, because they do not listen; `starved.rs` of the tests of both media has
//! the same on rings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{CqSetup, Hca, HcaConfig, QpInit};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::clock::Clock;
use pumice_device::port::{Peer, Port, ProcessGroup};
use pumice_device::sharing::SharedPort;
use pumice_transport::host::{Counter, PeerProgress};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::{ProcessIndex, Qpn};

use crate::bare::Bare;
use crate::fleet::Scene;

/// How long something that must happen may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const RETRY_CNT: u8 = 2;

#[test]
fn a_process_that_has_not_looked_is_starved_unless_it_is_stopped_or_dead() {
    let scene = Scene::new();
    let mut own = SharedPort::open(&scene.config(scene.address())).unwrap();
    let mut peer = Bare::start(&scene);
    let (index, address, clock) = (peer.index(), scene.address(), Clock::monotonic());
    let at = |address, index| Peer { address, process: ProcessIndex::new(index) };
    let ask =
        |own: &mut SharedPort, since_ns| own.peer_progress(clock.now_ns(), at(address, index), since_ns);
    // Both learn how their clocks lie to the one that they share.
    peer.ask("look 100");
    (0..100).for_each(|_| _ = ask(&mut own, 0));
    let before_ns = clock.now_ns();
    assert_eq!(ask(&mut own, before_ns), PeerProgress::Starved);
    peer.stop();
    assert_eq!(ask(&mut own, before_ns), PeerProgress::Unknown, "it is stopped");
    peer.resume();
    assert_eq!(ask(&mut own, before_ns), PeerProgress::Starved);
    // Once: what it took may not be answered yet.
    peer.ask("look 1");
    assert_eq!(ask(&mut own, before_ns), PeerProgress::Starved);
    peer.ask("look 2");
    assert_eq!(ask(&mut own, before_ns), PeerProgress::Unknown, "it has looked since");
    let after_ns = clock.now_ns();
    assert_eq!(ask(&mut own, after_ns), PeerProgress::Starved);
    let now_ns = clock.now_ns();
    assert_eq!(
        own.peer_progress(now_ns, at(address, index + 1), after_ns),
        PeerProgress::Absent,
        "no such index"
    );
    let elsewhere = [192, 0, 2, 1].into();
    assert_eq!(
        own.peer_progress(now_ns, at(elsewhere, index), after_ns),
        PeerProgress::Unknown,
        "another host"
    );
    let itself = at(address, own.process().value());
    assert_eq!(own.peer_progress(now_ns, itself, now_ns), PeerProgress::Starved, "itself");
    while own.receive(clock.now_ns(), &mut |_| {}) {}
    let now_ns = clock.now_ns();
    assert_eq!(own.peer_progress(now_ns, itself, after_ns), PeerProgress::Unknown, "itself has looked");
    let namesake = at(elsewhere, own.process().value());
    assert_eq!(own.peer_progress(now_ns, namesake, now_ns), PeerProgress::Unknown, "another host's");
    peer.kill();
    assert_eq!(ask(&mut own, after_ns), PeerProgress::Absent, "it is dead");
}

#[test]
fn a_request_waits_for_a_starved_peer_and_fails_when_it_has_looked_in_vain() {
    let scene = Scene::new();
    let sender = Sender::new(&scene);
    let mut peer = Bare::start(&scene);
    sender.connect(peer.index());
    sender.post(1);
    // The peer would have failed long before this.
    sender.wait_until("the peer is waited for", || sender.counter(Counter::StarvedPeer) >= 5);
    assert_eq!(sender.completion(), None);
    // All that were sent, and the last retry, which comes when it has looked.
    peer.ask(&format!("take {}", 1 + RETRY_CNT));
    assert_eq!(peer.ask("look 2"), "0");
    let mut failure = None;
    sender.wait_until("it fails", || {
        failure = sender.completion();
        failure.is_some()
    });
    assert_eq!(failure, Some((1, WcStatus::RetryExcErr)));
    assert_eq!(sender.counter(Counter::Timeout), 1 + u64::from(RETRY_CNT));
    assert_eq!(peer.ask("look 1"), "0", "no more transmissions than to a dead peer");
}

#[test]
fn a_stopped_peer_costs_what_a_dead_one_does() {
    let scene = Scene::new();
    for stop in [Bare::stop, Bare::kill] {
        let sender = Sender::new(&scene);
        let mut peer = Bare::start(&scene);
        sender.connect(peer.index());
        stop(&mut peer);
        sender.post(1);
        let mut failure = None;
        sender.wait_until("it fails", || {
            failure = sender.completion();
            failure.is_some()
        });
        assert_eq!(failure, Some((1, WcStatus::RetryExcErr)));
        assert_eq!(sender.counter(Counter::Timeout), 1 + u64::from(RETRY_CNT));
        assert_eq!(sender.counter(Counter::TxPackets), 1 + u64::from(RETRY_CNT));
        assert_eq!(sender.counter(Counter::StarvedPeer), 0);
    }
}

/// A queue pair that sends.
struct Sender {
    hca: Hca,
    cq: Arc<CompletionQueue>,
    qpn: Qpn,
    address: std::net::IpAddr,
}

impl Sender {
    fn new(scene: &Scene) -> Sender {
        let port = SharedPort::open(&scene.config(scene.address())).unwrap();
        let gid = GidEntry::new(scene.address(), "test", 1, Mtu::Mtu1024);
        let config = HcaConfig { process: port.process(), ..HcaConfig::new("pumice0", vec![gid]) };
        let hca = Hca::open(config, Box::new(port), Clock::monotonic()).unwrap();
        let cq = hca.create_cq(CqSetup { depth: 16, ..CqSetup::default() }).unwrap();
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(hca.alloc_pd().unwrap()),
            send_cq: Some(cq.handle()),
            recv_cq: Some(cq.handle()),
            srq: None,
            xrcd: None,
            capacity: QpCapacity { max_send_wr: 4, max_send_sge: 1, ..QpCapacity::default() },
            signal_all: true,
            cookie: 0,
        };
        let (qpn, _) = hca.create_qp(&init).unwrap();
        Sender { hca, cq, qpn, address: scene.address() }
    }

    /// To a queue pair of the process of `index` that does not exist.
    fn connect(&self, index: u8) {
        use AttributeMask as M;
        let mut a = QpAttributes { qp_state: QpState::Init as u32, port_num: 1, ..QpAttributes::default() };
        let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
        self.hca.modify_qp(self.qpn, &a, init).unwrap();
        a.qp_state = QpState::Rtr as u32;
        let dgid = Gid::from(self.address);
        a.address_vector =
            AddressVector { is_global: true, dgid, hop_limit: 64, port_num: 1, ..AddressVector::default() };
        a.path_mtu = Mtu::Mtu1024 as u32;
        a.dest_qp_num = ProcessIndex::new(index).number_base() | 99;
        let rtr = M::STATE | M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC;
        self.hca.modify_qp(self.qpn, &a, rtr | M::MIN_RNR_TIMER).unwrap();
        a.qp_state = QpState::Rts as u32;
        // 1 ms.
        a.timeout = 8;
        a.retry_cnt = RETRY_CNT;
        let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        self.hca.modify_qp(self.qpn, &a, rts).unwrap();
    }

    fn post(&self, wr_id: u64) {
        self.hca.post_send(self.qpn, &SendRequest::new(wr_id, SendOpcode::Send)).unwrap();
    }

    fn completion(&self) -> Option<(u64, WcStatus)> {
        let mut completions = [WorkCompletion::default()];
        let count = self.hca.poll_cq(&self.cq, &mut completions);
        (count > 0).then(|| (completions[0].wr_id, completions[0].status))
    }

    fn counter(&self, counter: Counter) -> u64 {
        self.hca.counters().value(counter)
    }

    /// Drives the adapter until `happened`.
    fn wait_until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !happened() {
            assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
            self.hca.drive();
            std::thread::yield_now();
        }
    }
}
