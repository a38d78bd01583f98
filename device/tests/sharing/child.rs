//! The role "hca": a process with an HCA that exchanges verified messages with its peers.

use std::io::BufRead;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{CqSetup, Hca, HcaConfig, QpInit};
use pumice_device::objects::completion_channel::CompletionChannel;
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::table::Handle;
use pumice_device::port::UdpConfig;
use pumice_device::sharing::{SharedPort, SharedPortConfig, SharingCounters};
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

/// Messages that a queue pair has on their way, and twice as many receives.
const WINDOW: usize = 8;
const BUFFER_BYTES: usize = 8192;
/// Buffers of one queue pair.
const BUFFERS: usize = 3 * WINDOW;
const MAX_QPS: usize = 8;

/// Whether the processes use UDP only. By default they use rings; with PUMICE_WIRE=udp the same tests run
/// without.
pub(crate) fn is_udp_only() -> bool {
    std::env::var("PUMICE_WIRE").as_deref() == Ok("udp")
}

/// What the parent wants of this process.
pub(crate) fn config() -> SharedPortConfig {
    let address: IpAddr = std::env::var("PUMICE_SHARING_ADDRESS").unwrap().parse().unwrap();
    // None: where a program's processes meet that is told nothing.
    let folder = std::env::var_os("PUMICE_SHARING_FOLDER").filter(|folder| !folder.is_empty());
    let folder = folder.map(PathBuf::from);
    SharedPortConfig { folder, udp_only: is_udp_only(), ..SharedPortConfig::new(UdpConfig::new(address)) }
}

pub(crate) fn say(text: &str) {
    // On a line of its own, whatever the test harness wrote before.
    println!("\n@{text}");
}

struct Link {
    qpn: Qpn,
    peer: u32,
    alive: bool,
    goal: usize,
    posted: usize,
    sent: usize,
    received: usize,
}

struct ChildState {
    hca: Hca,
    cq: Arc<CompletionQueue>,
    channel: Arc<CompletionChannel>,
    pd: Handle,
    memory: *mut u8,
    lkey: u32,
    links: Vec<Link>,
    socket: RawFd,
    sharing: Arc<SharingCounters>,
    commands: Receiver<String>,
}

pub(crate) fn run() {
    let config = config();
    let address = config.udp.address;
    let port = SharedPort::open(&config).unwrap_or_else(|error| panic!("{error}"));
    let (process_index, socket, sharing) =
        (port.process(), port.medium().as_raw_fd(), Arc::clone(port.counters()));
    let gid = GidEntry::new(address, "test", 1, Mtu::Mtu1024);
    let hca_config = HcaConfig { process: process_index, ..HcaConfig::new("pumice0", vec![gid]) };
    let hca = Hca::open(hca_config, Box::new(port), Clock::monotonic()).unwrap();
    let channel = Arc::new(CompletionChannel::new().unwrap());
    let setup = CqSetup { depth: 1024, channel: Some(Arc::clone(&channel)), ..CqSetup::default() };
    let cq = hca.create_cq(setup).unwrap();
    let pd = hca.alloc_pd().unwrap();
    let bytes = 4 * MAX_QPS * BUFFERS * BUFFER_BYTES;
    let memory = Box::leak(vec![0_u8; bytes].into_boxed_slice()).as_mut_ptr();
    // SAFETY: the memory is leaked, so it stays.
    let keys =
        unsafe { hca.reg_mr(pd, memory as u64, bytes as u64, memory as u64, Access::LOCAL_WRITE) }.unwrap();
    let (sender, commands) = mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let links = Vec::new();
    let mut process =
        ChildState { hca, cq, channel, pd, memory, lkey: keys.lkey, links, socket, sharing, commands };
    say(&format!("index {process_index}"));
    while let Ok(line) = process.commands.recv() {
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "create" => process.create(rest.parse().unwrap()),
            "connect" => process.connect(rest),
            "run" => process.exchange(rest.parse().unwrap()),
            "forget" => process.forget(rest),
            "missteer" => process.missteer(),
            "stats" => process.stats(),
            "quit" => break,
            other => panic!("{other}?"),
        }
    }
}

impl ChildState {
    fn create(&mut self, count: usize) {
        assert!(count <= MAX_QPS);
        for link in self.links.drain(..) {
            self.hca.destroy_qp(link.qpn).unwrap();
        }
        // What the old ones left.
        while self.cq.poll(&mut [WorkCompletion::default(); 16]) > 0 {}
        let capacity = QpCapacity {
            max_send_wr: WINDOW as u32,
            max_recv_wr: 2 * WINDOW as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        for cookie in 0..count as u64 {
            let init = QpInit {
                qp_type: QpType::Rc,
                pd: Some(self.pd),
                send_cq: Some(self.cq.handle()),
                recv_cq: Some(self.cq.handle()),
                srq: None,
                xrcd: None,
                capacity,
                signal_all: true,
                cookie,
            };
            let (qpn, _) = self.hca.create_qp(&init).unwrap();
            self.links.push(Link { qpn, peer: 0, alive: true, goal: 0, posted: 0, sent: 0, received: 0 });
        }
        let qpns: Vec<String> = self.links.iter().map(|link| link.qpn.value().to_string()).collect();
        say(&format!("qpns {}", qpns.join(" ")));
    }

    fn connect(&mut self, peers: &str) {
        for (index, peer) in peers.split(' ').enumerate() {
            let (peer, address) = peer.split_once('@').unwrap();
            self.links[index].peer = peer.parse().unwrap();
            self.connect_one(index, address.parse().unwrap());
            for buffer in 0..2 * WINDOW {
                self.post_recv(index, WINDOW + buffer);
            }
        }
        say("connected");
    }

    fn connect_one(&self, index: usize, address: IpAddr) {
        use AttributeMask as M;
        let link = &self.links[index];
        let dgid = Gid::from(address);
        let mut a = QpAttributes { qp_state: QpState::Init as u32, port_num: 1, ..QpAttributes::default() };
        let init = M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS;
        self.hca.modify_qp(link.qpn, &a, init).unwrap();
        a.qp_state = QpState::Rtr as u32;
        a.address_vector =
            AddressVector { is_global: true, dgid, hop_limit: 64, port_num: 1, ..AddressVector::default() };
        a.path_mtu = Mtu::Mtu1024 as u32;
        a.dest_qp_num = link.peer;
        a.rq_psn = 7;
        a.min_rnr_timer = 12;
        let rtr = M::STATE
            | M::AV
            | M::PATH_MTU
            | M::DEST_QPN
            | M::RQ_PSN
            | M::MAX_DEST_RD_ATOMIC
            | M::MIN_RNR_TIMER;
        self.hca.modify_qp(link.qpn, &a, rtr).unwrap();
        a.qp_state = QpState::Rts as u32;
        a.sq_psn = 7;
        // Half a second, so that a busy machine does not look like a dead peer.
        a.timeout = 17;
        a.retry_cnt = 7;
        a.rnr_retry = 7;
        let rts = M::STATE | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        self.hca.modify_qp(link.qpn, &a, rts).unwrap();
    }

    fn buffer(&self, index: usize, buffer: usize) -> *mut u8 {
        // SAFETY: there are BUFFERS buffers for each of MAX_QPS queue pairs.
        unsafe { self.memory.add((index * BUFFERS + buffer) * BUFFER_BYTES) }
    }

    fn post_recv(&self, index: usize, buffer: usize) {
        let address = self.buffer(index, buffer) as u64;
        let sge = Sge { address, length: BUFFER_BYTES as u32, lkey: self.lkey };
        let request = RecvRequest { wr_id: (index << 16 | buffer) as u64, sges: &[sge] };
        self.hca.post_recv(self.links[index].qpn, &request).unwrap();
    }

    fn post_send(&mut self, index: usize) {
        let link = &self.links[index];
        let message = message(link.qpn.value(), link.peer, link.posted);
        let buffer = link.posted % WINDOW;
        let address = self.buffer(index, buffer);
        // SAFETY: the buffer is free, as fewer than WINDOW messages are on their way, and long enough.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), address, message.len()) };
        let sge = Sge { address: address as u64, length: message.len() as u32, lkey: self.lkey };
        let request =
            SendRequest { sges: &[sge], ..SendRequest::new((index << 16 | buffer) as u64, SendOpcode::Send) };
        self.hca.post_send(link.qpn, &request).unwrap();
        self.links[index].posted += 1;
    }

    /// Each link sends `count` messages and receives as many.
    fn exchange(&mut self, count: usize) {
        for link in self.links.iter_mut().filter(|link| link.alive) {
            link.goal += count;
        }
        let done = |links: &[Link]| links.iter().map(|link| link.received).sum::<usize>();
        let progress = done(&self.links) + self.links.iter().filter(|link| link.alive).count() * count / 4;
        let mut told = false;
        while self.links.iter().any(|link| link.alive && link.sent.min(link.received) < link.goal) {
            for index in 0..self.links.len() {
                loop {
                    let link = &self.links[index];
                    if !link.alive || link.posted >= link.goal || link.posted - link.sent >= WINDOW {
                        break;
                    }
                    self.post_send(index);
                }
            }
            self.complete();
            while let Ok(command) = self.commands.try_recv() {
                self.forget(command.strip_prefix("forget ").expect("nothing else comes during a run"));
            }
            if !told && done(&self.links) >= progress {
                told = true;
                say("progress");
            }
        }
        if !told {
            say("progress");
        }
        say("ran");
    }

    /// Waits a little for completions and handles what there is.
    fn complete(&mut self) {
        let mut completions = [WorkCompletion::default(); 32];
        let mut count = self.hca.poll_cq(&self.cq, &mut completions);
        if count == 0 {
            self.hca.req_notify_cq(&self.cq, false);
            count = self.hca.poll_cq(&self.cq, &mut completions);
        }
        if count == 0 && self.hca.wait_cq_event(&self.channel, Some(Duration::from_millis(50))).is_some() {
            self.cq.ack_events(1);
        }
        for completion in &completions[..count] {
            self.completed(completion);
        }
    }

    fn completed(&mut self, completion: &WorkCompletion) {
        let (index, buffer) = (completion.wr_id as usize >> 16, completion.wr_id as usize & 0xffff);
        let Some(link) = self.links.get_mut(index) else { panic!("{completion:?}") };
        if completion.qp_num != link.qpn.value() {
            return; // left over from a queue pair that was destroyed
        }
        if completion.status != WcStatus::Success {
            // Its peer was killed: the parent says so soon, or has said it.
            link.alive = false;
            return;
        }
        if buffer < WINDOW {
            link.sent += 1;
            return;
        }
        let expected = message(link.peer, link.qpn.value(), link.received);
        link.received += 1;
        let length = completion.byte_len as usize;
        assert!(length <= BUFFER_BYTES);
        // SAFETY: the message was completed, so nothing writes there until the buffer is posted again.
        let got = unsafe { std::slice::from_raw_parts(self.buffer(index, buffer), length) };
        assert!(got == expected, "queue pair {} got another message than was sent", completion.qp_num);
        self.post_recv(index, buffer);
    }

    fn forget(&mut self, index: &str) {
        self.links[index.parse::<usize>().unwrap()].alive = false;
    }

    fn missteer(&self) {
        missteer(self.socket);
        say("missteered");
    }

    fn stats(&self) {
        let sharing = self.sharing.stats();
        let unknown_qpn = self.hca.counters().value(Counter::RxUnknownQpn);
        let [forwarded, taken_over] = [sharing.forwarded, sharing.taken_over];
        say(&format!(
            "stats {forwarded} {taken_over} {} {} {unknown_qpn}",
            sharing.rejected, sharing.repaired
        ));
    }
}

/// Makes the kernel give everything to the first socket of a group.
pub(crate) fn missteer(socket: RawFd) {
    let mut program = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
    let whole = libc::sock_fprog { len: 1, filter: &raw mut program };
    // SAFETY: the program lives through the call, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const whole).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
}

/// The message number `sequence` from one queue pair to another: no two are alike.
fn message(from: u32, to: u32, sequence: usize) -> Vec<u8> {
    let length = 16 + (sequence * 397 + from as usize * 11) % 6000;
    let mut bytes = Vec::with_capacity(length + 8);
    bytes.extend(from.to_le_bytes());
    bytes.extend(to.to_le_bytes());
    bytes.extend((sequence as u64).to_le_bytes());
    let mut state = u64::from(from) << 40 ^ u64::from(to) << 16 ^ sequence as u64 | 1;
    while bytes.len() < length {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
