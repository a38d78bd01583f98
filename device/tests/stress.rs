//! Four threads on shared objects of one device with real sockets: posting, polling, arming, modifying,
//! making and destroying. No event is lost, no completion is lost or comes twice, nothing stands still, and
//! nothing is left over.
//!
//! `PUMICE_STRESS_SECONDS=60 cargo test -p pumice-device --test stress` runs it for a minute instead of two
//! seconds.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{CqSetup, Hca, HcaConfig, OwnedMemory, QpInit, SrqSetup};
use pumice_device::memory::WindowType;
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::objects::srq::SrqChange;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::table::Handle;
use pumice_device::port::{UdpConfig, UdpPort};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

/// How long anything may take that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    hca: Arc<Hca>,
    address: IpAddr,
    pd: Handle,
    memory: OwnedMemory,
}

impl Bench {
    fn new(number: u8) -> Bench {
        let [.., low] = std::process::id().to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, 108, low, number));
        let port = UdpPort::bind(&UdpConfig::new(address)).unwrap();
        let config = HcaConfig::new("pumice0", vec![GidEntry::new(address, "lo", 1, Mtu::Mtu4096)]);
        let hca = Arc::new(Hca::open(config, Box::new(port), Clock::monotonic()).unwrap());
        let pd = hca.alloc_pd().unwrap();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::MW_BIND;
        let memory = OwnedMemory::register(&hca, pd, 1 << 16, 0x1000, access).unwrap();
        Bench { hca, address, pd, memory }
    }

    fn cq(&self, depth: u32, channel: Option<&Arc<CompletionChannel>>) -> Arc<CompletionQueue> {
        let setup = CqSetup { depth, cookie: 1, channel: channel.cloned(), ..CqSetup::default() };
        self.hca.create_cq(setup).unwrap()
    }

    fn qp(&self, cq: &CompletionQueue, srq: Option<Handle>) -> Qpn {
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(self.pd),
            send_cq: Some(cq.handle()),
            recv_cq: Some(cq.handle()),
            srq,
            xrcd: None,
            capacity: QpCapacity {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            signal_all: false,
            cookie: 0,
        };
        self.hca.create_qp(&init).unwrap().0
    }

    /// From RESET to RTS, towards `peer` of the same device.
    fn connect(&self, qpn: Qpn, peer: Qpn) {
        use AttributeMask as M;
        let vector = AddressVector {
            is_global: true,
            dgid: Gid::from(self.address),
            port_num: 1,
            ..AddressVector::default()
        };
        let attributes = QpAttributes {
            address_vector: vector,
            path_mtu: Mtu::Mtu1024 as u32,
            dest_qp_num: peer.value(),
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            access: 15,
            port_num: 1,
            ..QpAttributes::default()
        };
        let to = |state: QpState, mask| {
            let attributes = QpAttributes { qp_state: state as u32, ..attributes.clone() };
            self.hca.modify_qp(qpn, &attributes, M::STATE | mask).unwrap();
        };
        to(QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS);
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        to(QpState::Rtr, rtr);
        to(QpState::Rts, M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC);
    }

    fn move_to(&self, qpn: Qpn, state: QpState) -> bool {
        let attributes = QpAttributes { qp_state: state as u32, ..QpAttributes::default() };
        self.hca.modify_qp(qpn, &attributes, AttributeMask::STATE).is_ok()
    }

    fn write(&self, qpn: Qpn, wr_id: u64, length: u32) -> bool {
        let request = SendRequest {
            sges: &[self.memory.sge(0, length)],
            remote: self.memory.target(8192),
            ..SendRequest::new(wr_id, SendOpcode::RdmaWrite)
        };
        match self.hca.post_send(qpn, &request) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.errno(), libc::ENOMEM, "{error}");
                false
            }
        }
    }
}

fn seconds() -> u64 {
    std::env::var("PUMICE_STRESS_SECONDS").map_or(2, |text| text.parse().expect("a number of seconds"))
}

/// Ends the process if the test does not: threads that wait for each other cannot be stopped.
struct Watchdog(mpsc::Sender<()>);

impl Watchdog {
    fn start(limit: Duration) -> Watchdog {
        let (alive, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("stress: standing still after {limit:?}");
                std::process::abort();
            }
        });
        Watchdog(alive)
    }
}

#[test]
fn threads_on_shared_objects_lose_nothing_and_never_stand_still() {
    let duration = Duration::from_secs(seconds());
    let watchdog = Watchdog::start(duration + Duration::from_secs(120));
    let bench = Bench::new(1);
    let objects_before = bench.hca.object_counts();
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let watched = bench.cq(4096, Some(&channel));
    let polled = bench.cq(4096, None);
    // Both queue pairs of each pair are used by all threads.
    let pairs = [&watched, &polled].map(|cq| {
        let (one, other) = (bench.qp(cq, None), bench.qp(cq, None));
        bench.connect(one, other);
        bench.connect(other, one);
        (one, other)
    });
    let (posted, completed) = ([const { AtomicU64::new(0) }; 2], [const { AtomicU64::new(0) }; 2]);
    let stop = AtomicBool::new(false);
    let running = || !stop.load(Ordering::Acquire);
    std::thread::scope(|scope| {
        // Posts on both pairs, both ways.
        scope.spawn(|| {
            let mut wr_id = 0;
            while running() {
                let index = (wr_id % 2) as usize;
                let (one, other) = pairs[index];
                let qpn = if wr_id % 4 < 2 { one } else { other };
                // Counted first: the thread that waits for the last one must know of it when this thread was
                // told to stop meanwhile.
                posted[index].fetch_add(1, Ordering::AcqRel);
                if !bench.write(qpn, wr_id, 1 + (wr_id * 37 % 3000) as u32) {
                    posted[index].fetch_sub(1, Ordering::AcqRel);
                    std::thread::yield_now();
                }
                wr_id += 1;
            }
        });
        // Sleeps on events: arm, take what is there, wait. An event that does not come while something is
        // there is lost.
        scope.spawn(|| {
            let mut out = [WorkCompletion::default(); 16];
            let mut solicited = false;
            loop {
                bench.hca.req_notify_cq(&watched, false);
                solicited = !solicited;
                if solicited {
                    bench.hca.req_notify_cq(&watched, true);
                }
                let mut taken = 0;
                loop {
                    let count = bench.hca.poll_cq(&watched, &mut out);
                    for completion in &out[..count] {
                        assert_eq!(completion.status, WcStatus::Success, "{completion:?}");
                    }
                    taken += count as u64;
                    if count == 0 {
                        break;
                    }
                }
                completed[0].fetch_add(taken, Ordering::AcqRel);
                let (done, all) = (completed[0].load(Ordering::Acquire), posted[0].load(Ordering::Acquire));
                if !running() && done == all {
                    break;
                }
                match bench.hca.wait_cq_event(&channel, Some(Duration::from_millis(500))) {
                    Some(event) => {
                        assert_eq!(event.cq, watched.handle());
                        watched.ack_events(1);
                    }
                    None => assert!(watched.is_empty(), "completions wait, and no event came"),
                }
            }
        });
        // Polls by spinning, and stops and restarts the send queues that it polls for.
        scope.spawn(|| {
            let mut out = [WorkCompletion::default(); 4];
            let mut rounds = 0_u64;
            let end =
                || !running() && completed[1].load(Ordering::Acquire) == posted[1].load(Ordering::Acquire);
            while !end() {
                let count = bench.hca.poll_cq(&polled, &mut out);
                assert!(out[..count].iter().all(|completion| completion.status == WcStatus::Success));
                completed[1].fetch_add(count as u64, Ordering::AcqRel);
                rounds += 1;
                let qpn = pairs[1].0;
                if rounds.is_multiple_of(512) && bench.move_to(qpn, QpState::Sqd) {
                    let begun = Instant::now();
                    // Refused until it has drained, which polling lets happen.
                    while !bench.move_to(qpn, QpState::Rts) {
                        let count = bench.hca.poll_cq(&polled, &mut out);
                        completed[1].fetch_add(count as u64, Ordering::AcqRel);
                        assert!(begun.elapsed() < PATIENCE, "never drained");
                    }
                }
                if rounds.is_multiple_of(100) {
                    let depth = if rounds.is_multiple_of(200) { 4096 } else { 2048 };
                    let _ = bench.hca.resize_cq(polled.handle(), depth);
                    bench.hca.query_qp(qpn).unwrap();
                }
            }
        });
        // Makes and destroys everything, on the channel and the memory that the others use.
        scope.spawn(|| {
            while running() {
                churn(&bench, &channel);
            }
        });
        // No thread sends: the time of the run.
        let (_sender, nothing) = mpsc::channel::<()>();
        let _ = nothing.recv_timeout(duration);
        stop.store(true, Ordering::Release);
    });
    for index in 0..2 {
        let (sent, done) = (posted[index].load(Ordering::Acquire), completed[index].load(Ordering::Acquire));
        assert_eq!(sent, done, "pair {index}");
        assert!(done > 100, "pair {index} did almost nothing: {done}");
    }
    for (one, other) in pairs {
        bench.hca.destroy_qp(one).unwrap();
        bench.hca.destroy_qp(other).unwrap();
    }
    while let Some(event) = channel.try_event() {
        assert_eq!(event.cq, watched.handle());
        watched.ack_events(1);
    }
    bench.hca.destroy_cq(watched.handle()).unwrap();
    bench.hca.destroy_cq(polled.handle()).unwrap();
    while let Some(event) = bench.hca.async_events().try_event() {
        event.ack();
    }
    assert_eq!(bench.hca.object_counts(), objects_before);
    assert_eq!((channel.cq_count(), bench.hca.async_events().lost()), (0, 0));
    drop(watchdog.0);
}

/// A life of each kind of object, with traffic in the middle of it.
fn churn(bench: &Bench, channel: &Arc<CompletionChannel>) {
    let hca = &bench.hca;
    let cq = bench.cq(64, None);
    let setup = SrqSetup { pd: bench.pd, max_wr: 16, max_sge: 1, cookie: 3, xrc: None, tags: None };
    let srq = hca.create_srq(&setup).unwrap();
    let window = hca.alloc_mw(bench.pd, WindowType::Type2).unwrap();
    let (one, other) = (bench.qp(&cq, Some(srq)), bench.qp(&cq, None));
    bench.connect(one, other);
    bench.connect(other, one);
    hca.modify_srq(srq, SrqChange { limit: Some(1), max_wr: Some(8) }).unwrap();
    for wr_id in 0..4 {
        hca.post_srq_recv(srq, &RecvRequest { wr_id, sges: &[bench.memory.sge(32, 8)] }).unwrap();
        assert!(bench.write(one, wr_id, 2000));
    }
    bench.move_to(one, QpState::Err);
    // A queue on the shared channel whose event no thread takes goes with it.
    let armed = bench.cq(8, Some(channel));
    let doomed = bench.qp(&armed, None);
    bench.connect(doomed, other);
    hca.post_recv(doomed, &RecvRequest { wr_id: 1, sges: &[] }).unwrap();
    hca.destroy_qp(doomed).unwrap();
    hca.destroy_cq(armed.handle()).unwrap();
    hca.destroy_qp(one).unwrap();
    hca.destroy_qp(other).unwrap();
    hca.destroy_srq(srq).unwrap();
    hca.dealloc_mw(window.handle).unwrap();
    hca.destroy_cq(cq.handle()).unwrap();
    // LAST_WQE_REACHED and its kin of queue pairs that are gone went with them.
    assert!(hca.async_events().try_event().is_none());
}
