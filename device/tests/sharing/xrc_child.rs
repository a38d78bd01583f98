//! The role "xrc": a process with an HCA that does what it is told with an XRC domain.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufRead;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{CqSetup, Hca, HcaConfig, HcaError, QpInit, SrqSetup, TargetRegistration, XrcdFile};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::table::Handle;
use pumice_device::sharing::{SharedPort, SharingCounters};
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::child::{config, say};

const RECEIVES: usize = 256;
const BUFFER_BYTES: usize = 8192;
const WINDOW: usize = 16;
const PATIENCE: Duration = Duration::from_secs(300);

struct XrcChildState {
    hca: Hca,
    sharing: Arc<SharingCounters>,
    send_cq: Arc<CompletionQueue>,
    srq_cq: Arc<CompletionQueue>,
    pd: Handle,
    memory: *mut u8,
    keys: pumice_device::memory::RegionKeys,
    xrcd: Option<Handle>,
    srqs: Vec<(Handle, u32)>,
    initiator: Option<Qpn>,
    opened: BTreeMap<u32, TargetRegistration>,
    received: u64,
}

pub(crate) fn run() {
    let config = config();
    let address = config.udp.address;
    let port = SharedPort::open(&config).unwrap_or_else(|error| panic!("{error}"));
    let (process_index, sharing) = (port.process(), Arc::clone(port.counters()));
    let gid = GidEntry::new(address, "test", 1, Mtu::Mtu1024);
    let hca_config = HcaConfig { process: process_index, ..HcaConfig::new("pumice0", vec![gid]) };
    let hca = Hca::open(hca_config, Box::new(port), Clock::monotonic()).unwrap();
    let cq = || hca.create_cq(CqSetup { depth: 4096, ..CqSetup::default() }).unwrap();
    let (send_cq, srq_cq) = (cq(), cq());
    let pd = hca.alloc_pd().unwrap();
    let bytes = (RECEIVES + WINDOW + 1) * BUFFER_BYTES;
    let memory = Box::leak(vec![0_u8; bytes].into_boxed_slice()).as_mut_ptr();
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    // SAFETY: the memory is leaked, so it stays.
    let keys = unsafe { hca.reg_mr(pd, memory as u64, bytes as u64, memory as u64, rights) }.unwrap();
    let mut process = XrcChildState {
        hca,
        sharing,
        send_cq,
        srq_cq,
        pd,
        memory,
        keys,
        xrcd: None,
        srqs: Vec::new(),
        initiator: None,
        opened: BTreeMap::new(),
        received: 0,
    };
    say(&format!("index {process_index}"));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<u64>().unwrap();
        let answer = match words[0] {
            "domain" => process.domain(words[1], words[2]),
            "undomain" => answer(process.hca.close_xrcd(process.xrcd.unwrap())),
            "srq" => process.srq(),
            "target" => process.target(),
            "ready" => process.ready(number(1) as u32, number(2) as u32, words[3]),
            "open" => process.open(number(1) as u32, number(2)),
            "close" => process.close(number(1) as u32),
            "destroy" => answer(process.hca.destroy_qp(Qpn::new(number(1) as u32))),
            "fail" => process.fail(number(1) as u32),
            "query" => process.query(number(1) as u32),
            "initiator" => process.make_initiator(),
            "connect" => process.connect(number(1) as u32, words[2]),
            "send" => process.send(number(1) as u32, number(2), number(3)),
            "rdma" => process.rdma(number(1) as u32, number(2), number(3) as u32),
            "receive" => process.receive(number(1), number(2) as u32),
            "flushed" => process.flushed(),
            "memory" => format!("{} {}", process.rdma_memory(), process.keys.rkey),
            "event" => process.event(),
            "quiet" => process.quiet(),
            "stats" => process.stats(),
            "quit" => break,
            other => panic!("{other}?"),
        };
        say(&format!("{} {answer}", words[0]));
    }
}

fn answer<T: std::fmt::Debug>(outcome: Result<T, HcaError>) -> String {
    outcome.map_or_else(|error| format!("errno {}", error.errno()), |_| "ok".to_owned())
}

impl XrcChildState {
    fn domain(&mut self, path: &str, flags: &str) -> String {
        let file = File::open(path).unwrap();
        let (create, exclusive) = (flags.contains('c'), flags.contains('x'));
        let opened = self.hca.open_xrcd_of_file(&XrcdFile { fd: file.as_fd(), create, exclusive });
        self.xrcd = opened.as_ref().ok().copied().or(self.xrcd);
        answer(opened)
    }

    fn srq(&mut self) -> String {
        let xrc = Some((self.xrcd.unwrap(), self.srq_cq.handle()));
        let setup = SrqSetup { pd: self.pd, max_wr: RECEIVES as u32, max_sge: 1, cookie: 0, xrc, tags: None };
        let srq = self.hca.create_srq(&setup).unwrap();
        let number = self.hca.srq_number(srq).unwrap();
        self.srqs.push((srq, number));
        for buffer in 0..RECEIVES / 2 {
            self.post_receive(srq, buffer + (self.srqs.len() - 1) * RECEIVES / 2);
        }
        number.to_string()
    }

    fn buffer(&self, index: usize) -> *mut u8 {
        assert!(index <= RECEIVES + WINDOW);
        // SAFETY: there are that many buffers.
        unsafe { self.memory.add(index * BUFFER_BYTES) }
    }

    fn post_receive(&self, srq: Handle, buffer: usize) {
        let sge =
            Sge { address: self.buffer(buffer) as u64, length: BUFFER_BYTES as u32, lkey: self.keys.lkey };
        self.hca.post_srq_recv(srq, &RecvRequest { wr_id: buffer as u64, sges: &[sge] }).unwrap();
    }

    fn target(&mut self) -> String {
        let init = QpInit {
            qp_type: QpType::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: self.xrcd,
            capacity: QpCapacity::default(),
            signal_all: false,
            cookie: 1,
        };
        self.hca.create_qp(&init).unwrap().0.value().to_string()
    }

    /// INIT and RTR, by number: the target may be another process's.
    fn ready(&self, qpn: u32, peer: u32, address: &str) -> String {
        use AttributeMask as M;
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mut a =
            QpAttributes { qp_state: 1, port_num: 1, access: rights.bits(), ..QpAttributes::default() };
        let xrcd = self.xrcd.unwrap();
        let modify = |a: &QpAttributes, mask| self.hca.modify_target(xrcd, Qpn::new(qpn), a, mask);
        if let Err(error) = modify(&a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS) {
            return format!("errno {}", error.errno());
        }
        to_rtr(&mut a, peer, address);
        answer(modify(&a, RTR))
    }

    fn fail(&self, qpn: u32) -> String {
        let a = QpAttributes { qp_state: QpState::Err as u32, ..QpAttributes::default() };
        answer(self.hca.modify_target(self.xrcd.unwrap(), Qpn::new(qpn), &a, AttributeMask::STATE))
    }

    fn open(&mut self, qpn: u32, cookie: u64) -> String {
        let opened = self.hca.open_target(self.xrcd.unwrap(), Qpn::new(qpn), cookie);
        if let Ok(registration) = &opened {
            self.opened.insert(qpn, *registration);
        }
        answer(opened)
    }

    fn close(&mut self, qpn: u32) -> String {
        let registration = self.opened.remove(&qpn).expect("it is open");
        answer(self.hca.close_target(registration))
    }

    fn query(&self, qpn: u32) -> String {
        match self.hca.query_target(self.xrcd.unwrap(), Qpn::new(qpn)) {
            Ok(a) => format!("{} {} {}", a.qp_state, a.rq_psn, a.dest_qp_num),
            Err(error) => format!("errno {}", error.errno()),
        }
    }

    fn make_initiator(&mut self) -> String {
        if let Some(old) = self.initiator.take() {
            self.hca.destroy_qp(old).unwrap();
        }
        let capacity = QpCapacity { max_send_wr: WINDOW as u32, max_send_sge: 1, ..QpCapacity::default() };
        let init = QpInit {
            qp_type: QpType::XrcInitiator,
            pd: Some(self.pd),
            send_cq: Some(self.send_cq.handle()),
            recv_cq: None,
            srq: None,
            xrcd: None,
            capacity,
            signal_all: true,
            cookie: 2,
        };
        let (qpn, _) = self.hca.create_qp(&init).unwrap();
        self.initiator = Some(qpn);
        qpn.value().to_string()
    }

    fn connect(&self, peer: u32, address: &str) -> String {
        use AttributeMask as M;
        let qpn = self.initiator.unwrap();
        let mut a = QpAttributes { qp_state: 1, port_num: 1, ..QpAttributes::default() };
        self.hca.modify_qp(qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS).unwrap();
        to_rtr(&mut a, peer, address);
        self.hca.modify_qp(qpn, &a, RTR).unwrap();
        a.qp_state = QpState::Rts as u32;
        a.sq_psn = PSN;
        // A quarter of a second; with retries the silence after a death is bridged.
        a.timeout = 16;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        a.max_rd_atomic = 4;
        let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        answer(self.hca.modify_qp(qpn, &a, rts))
    }

    /// Sends the messages `first..first + count` to an SRQ; how the first failed one ended.
    fn send(&mut self, srqn: u32, first: u64, count: u64) -> String {
        let (mut posted, mut done) = (0, 0);
        let deadline = Instant::now() + PATIENCE;
        while done < count {
            while posted < count && posted - done < WINDOW as u64 {
                let bytes = message(srqn, first + posted);
                let buffer = self.buffer(RECEIVES + posted as usize % WINDOW);
                // SAFETY: the buffer is free, as fewer than WINDOW messages are on their way, and long
                // enough.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, bytes.len()) };
                self.post(SendOpcode::Send, buffer as u64, bytes.len() as u32, srqn, RemoteTarget::default());
                posted += 1;
            }
            match self.sent(deadline) {
                WcStatus::Success => done += 1,
                status => {
                    // The rest is flushed.
                    for _ in done + 1..posted {
                        assert_eq!(self.sent(deadline), WcStatus::WrFlushErr);
                    }
                    return format!("{} after {done}", status.name());
                }
            }
        }
        "ok".to_owned()
    }

    fn post(&self, opcode: SendOpcode, address: u64, length: u32, srqn: u32, remote: RemoteTarget) {
        let sge = Sge { address, length, lkey: self.keys.lkey };
        let request = SendRequest { sges: &[sge], xrc_srqn: srqn, remote, ..SendRequest::new(0, opcode) };
        self.hca.post_send(self.initiator.unwrap(), &request).unwrap();
    }

    fn sent(&self, deadline: Instant) -> WcStatus {
        loop {
            let mut done = [WorkCompletion::default()];
            if self.hca.poll_cq(&self.send_cq, &mut done) == 1 {
                return done[0].status;
            }
            assert!(Instant::now() < deadline, "nothing completed");
        }
    }

    fn rdma_memory(&self) -> u64 {
        self.buffer(RECEIVES + WINDOW) as u64
    }

    /// WRITE, FETCH_ADD and READ to the memory of an SRQ's owner.
    fn rdma(&self, srqn: u32, address: u64, rkey: u32) -> String {
        let deadline = Instant::now() + PATIENCE;
        let buffer = self.buffer(RECEIVES).cast::<u64>();
        let remote = RemoteTarget { address, rkey };
        let step = |opcode| {
            self.post(opcode, buffer as u64, 8, srqn, remote);
            self.sent(deadline)
        };
        // SAFETY: aligned, ours, and nothing is on its way.
        let (set, get) =
            (|value| unsafe { buffer.write_volatile(value) }, || unsafe { buffer.read_volatile() });
        set(u64::from(srqn) << 8);
        for opcode in [SendOpcode::RdmaWrite, SendOpcode::RdmaRead] {
            let status = step(opcode);
            if status != WcStatus::Success {
                return status.name().to_owned();
            }
        }
        assert_eq!(get(), u64::from(srqn) << 8);
        let sge = Sge { address: buffer as u64, length: 8, lkey: self.keys.lkey };
        let add = SendRequest {
            sges: &[sge],
            xrc_srqn: srqn,
            remote,
            atomic: Some(AtomicOperation::FetchAdd { add: 7 }),
            ..SendRequest::new(0, SendOpcode::FetchAdd)
        };
        self.hca.post_send(self.initiator.unwrap(), &add).unwrap();
        assert_eq!((self.sent(deadline), get()), (WcStatus::Success, u64::from(srqn) << 8));
        assert_eq!((step(SendOpcode::RdmaRead), get()), (WcStatus::Success, (u64::from(srqn) << 8) + 7));
        "ok".to_owned()
    }

    /// Waits until `count` more messages have come, all of them right and in order, through the target `qpn`.
    fn receive(&mut self, count: u64, qpn: u32) -> String {
        let (srq, number) = *self.srqs.last().unwrap();
        let deadline = Instant::now() + PATIENCE;
        let goal = self.received + count;
        while self.received < goal {
            let mut done = [WorkCompletion::default()];
            if self.hca.poll_cq(&self.srq_cq, &mut done) == 0 {
                assert!(Instant::now() < deadline, "{} of {goal} messages came", self.received);
                continue;
            }
            let [done] = done;
            assert_eq!((done.status, done.qp_num), (WcStatus::Success, qpn), "{done:?}");
            let expected = message(number, self.received);
            // SAFETY: the message was completed, so nothing writes there until the buffer is posted again.
            let got = unsafe {
                std::slice::from_raw_parts(self.buffer(done.wr_id as usize), done.byte_len as usize)
            };
            assert!(got == expected, "message {} of SRQ {number:#x} is another one", self.received);
            self.received += 1;
            self.post_receive(srq, done.wr_id as usize);
        }
        "ok".to_owned()
    }

    /// The status of the next completion of a receive.
    fn flushed(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut done = [WorkCompletion::default()];
            if self.hca.poll_cq(&self.srq_cq, &mut done) == 1 {
                return done[0].status.name().to_owned();
            }
            assert!(Instant::now() < deadline, "nothing was flushed");
        }
    }

    fn event(&self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.hca.async_events().try_event() {
                let text = format!("{:?} {:?}", event.event, event.element);
                event.ack();
                return text;
            }
            assert!(Instant::now() < deadline, "no event came");
            self.hca.drive();
        }
    }

    fn quiet(&self) -> String {
        let mut done = [WorkCompletion::default()];
        let nothing =
            self.hca.poll_cq(&self.srq_cq, &mut done) == 0 && self.hca.async_events().try_event().is_none();
        if nothing { "ok".to_owned() } else { "not".to_owned() }
    }

    fn stats(&self) -> String {
        let sharing = self.sharing.stats();
        let count = |counter| self.hca.counters().value(counter);
        format!(
            "forwarded {} dropped {} taken_over {} unknown {} retransmitted {}",
            sharing.forwarded,
            sharing.forward_dropped,
            sharing.taken_over,
            count(Counter::RxUnknownQpn),
            count(Counter::RetransmittedPackets)
        )
    }
}

const PSN: u32 = 0xff_fff0;
const RTR: AttributeMask = AttributeMask::STATE
    .union(AttributeMask::AV)
    .union(AttributeMask::PATH_MTU)
    .union(AttributeMask::DEST_QPN)
    .union(AttributeMask::RQ_PSN)
    .union(AttributeMask::MAX_DEST_RD_ATOMIC)
    .union(AttributeMask::MIN_RNR_TIMER);

fn to_rtr(a: &mut QpAttributes, peer: u32, address: &str) {
    let dgid = Gid::from(address.parse::<std::net::IpAddr>().unwrap());
    a.qp_state = QpState::Rtr as u32;
    a.address_vector =
        AddressVector { is_global: true, dgid, hop_limit: 64, port_num: 1, ..AddressVector::default() };
    a.path_mtu = Mtu::Mtu1024 as u32;
    a.dest_qp_num = peer;
    a.rq_psn = PSN;
    a.min_rnr_timer = 1;
    a.max_dest_rd_atomic = 4;
}

/// The message number `sequence` to an SRQ: no two are alike, and many take several packets.
fn message(srqn: u32, sequence: u64) -> Vec<u8> {
    let length = 16 + (sequence as usize * 397 + srqn as usize * 11) % 6000;
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend(srqn.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    let mut state = u64::from(srqn) << 40 ^ sequence << 8 | 1;
    while bytes.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
