//! A process with an HCA on a shared port, and the role "node": one that does what it is told.

use std::collections::HashMap;
use std::io::BufRead as _;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::{Hca, HcaConfig, SrqSetup};
use pumice_device::objects::srq::SrqChange;
use pumice_device::platform::clock::Clock;
use pumice_device::platform::table::Handle;
use pumice_device::port::{Port as _, PortLayer, ReceivedBatch};
use pumice_device::sharing::{SharedPort, SharedPortConfig, SharingCounters, SharingError, inspect};
use pumice_transport::host::Counter;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::child::{self, say};
use crate::kit::{Connection, Node};

/// How long something that must happen may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// Partitions: the default one, and another one.
const PKEYS: [u16; 2] = [0xffff, 0x8123];
pub(crate) const SRQ_DEPTH: u32 = 512;

/// What is counted when a packet is refused or a queue pair fails, and does not depend on when: no traffic,
/// and nothing that a late answer can bring about.
const COUNTED: [Counter; 25] = [
    Counter::RxTooShort,
    Counter::RxBadVersion,
    Counter::RxBadOpcode,
    Counter::RxBadPad,
    Counter::RxBadLength,
    Counter::RxBadIcrc,
    Counter::RxUnknownQpn,
    Counter::RxWrongService,
    Counter::RxWrongState,
    Counter::RxBadPkey,
    Counter::RxBadQkey,
    Counter::RxWrongAddress,
    Counter::RxWrongPort,
    Counter::RxUnknownGroup,
    Counter::RxTruncated,
    Counter::RxReservedSyndrome,
    Counter::RxNoReceive,
    Counter::RxMessageDropped,
    Counter::TxNakSequence,
    Counter::TxNakInvalid,
    Counter::TxNakAccess,
    Counter::TxNakOperation,
    Counter::TxRnrNak,
    Counter::RxNakFatal,
    Counter::RxRnrNak,
];

/// A port whose process has only a part of a processor: behind each batch it loses the time of some more; or
/// which lives and does not look.
struct Slowed {
    below: SharedPort,
    /// How often the time of a batch passes.
    parts: u32,
    looks_away: Arc<AtomicBool>,
}

impl PortLayer for Slowed {
    type Below = SharedPort;

    fn below(&self) -> &SharedPort {
        &self.below
    }
    fn below_mut(&mut self) -> &mut SharedPort {
        &mut self.below
    }
    fn receive_through(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        if self.looks_away.load(Ordering::Relaxed) {
            return false;
        }
        let begun = Instant::now();
        let taken = self.below.receive(now_ns, handler);
        let lost = begun.elapsed() * (self.parts - 1);
        while taken && begun.elapsed() < lost {
            std::hint::spin_loop();
        }
        taken
    }
}

/// What a device is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) cq_depth: u32,
    pub(crate) memory_bytes: usize,
    /// Its process has one of so many parts of a processor.
    pub(crate) parts: u32,
}

impl Size {
    pub(crate) const DEFAULT: Size = Size { cq_depth: 4096, memory_bytes: 4 << 20, parts: 1 };

    /// What the parent wants: PUMICE_MEDIA_CQ, _BYTES and _PARTS.
    fn of_environment() -> Size {
        let number = |name: &str| {
            let text = std::env::var(format!("PUMICE_MEDIA_{name}")).ok();
            text.map(|text| text.parse::<u32>().expect("a number"))
        };
        let Size { cq_depth, memory_bytes, parts } = Size::DEFAULT;
        Size {
            cq_depth: number("CQ").unwrap_or(cq_depth),
            memory_bytes: number("BYTES").map_or(memory_bytes, |bytes| bytes as usize),
            parts: number("PARTS").unwrap_or(parts),
        }
    }
}

/// The HCA of this process, and what the tests know of it.
pub(crate) struct Local {
    pub(crate) node: Node,
    pub(crate) sharing: Arc<SharingCounters>,
    pub(crate) index: u8,
    looks_away: Arc<AtomicBool>,
    folder: std::path::PathBuf,
    srq: Handle,
    counted: [u64; COUNTED.len()],
}

impl Local {
    /// A device as big as that.
    pub(crate) fn open(config: &SharedPortConfig, size: Size) -> Result<Local, SharingError> {
        let (Size { cq_depth, memory_bytes, parts }, address) = (size, config.udp.address);
        let port = SharedPort::open(config)?;
        let (process, sharing) = (port.process(), Arc::clone(port.counters()));
        let gid = GidEntry::new(address, "test", 1, Mtu::Mtu4096);
        let mut hca = HcaConfig { process, ..HcaConfig::new("pumice0", vec![gid]) };
        hca.pkeys = PKEYS.to_vec();
        hca.limits.pkey_table_len = PKEYS.len() as u16;
        let looks_away = Arc::new(AtomicBool::new(false));
        let port = Box::new(Slowed { below: port, parts, looks_away: Arc::clone(&looks_away) });
        let hca = Arc::new(Hca::open(hca, port, Clock::monotonic()).unwrap());
        let node = Node::on(hca, address, memory_bytes, cq_depth);
        let setup = SrqSetup { pd: node.pd, max_wr: SRQ_DEPTH, max_sge: 1, cookie: 0, xrc: None, tags: None };
        let srq = node.hca.create_srq(&setup).unwrap();
        let folder = config.folder.clone().unwrap();
        let counted = [0; COUNTED.len()];
        Ok(Local { node, sharing, index: process.value(), looks_away, folder, srq, counted })
    }

    /// At least `count` completions, and all others that there are.
    pub(crate) fn poll(&self, count: usize) -> Vec<WorkCompletion> {
        let end = Instant::now() + PATIENCE;
        let mut all = Vec::new();
        let mut some = [WorkCompletion::default(); 64];
        loop {
            let taken = self.node.hca.poll_cq(&self.node.cq, &mut some);
            all.extend_from_slice(&some[..taken]);
            if taken == 0 && all.len() >= count {
                return all;
            }
            if taken == 0 {
                assert!(Instant::now() < end, "{} of {count} completions: {all:?}", all.len());
                std::thread::yield_now();
            }
        }
    }

    /// What carries the packets of a connected queue pair, in words.
    pub(crate) fn medium(&self, qpn: Qpn) -> String {
        let processes = inspect(4791, Some(&self.folder), PATIENCE).unwrap();
        let own =
            processes.iter().find(|one| one.sharer.process().value() == self.index).expect("this process");
        let qps = &own.objects.as_ref().expect("an answer").qps;
        let qp = qps.iter().find(|qp| qp.qpn == qpn.value()).expect("the queue pair");
        qp.medium.clone().unwrap_or_default()
    }

    /// Names of the asynchronous events so far.
    pub(crate) fn events(&self) -> String {
        let names: Vec<String> = self.node.event_types().iter().map(|event| format!("{event:?}")).collect();
        names.join(" ")
    }

    /// What was counted since the last call.
    pub(crate) fn counted(&mut self) -> String {
        // What was taken from the port before has been counted behind this.
        self.node.hca.drive();
        let now = COUNTED.map(|counter| self.node.counter(counter));
        let before = std::mem::replace(&mut self.counted, now);
        let changed = COUNTED.iter().zip(now.iter().zip(before)).filter(|(_, (now, before))| *now != before);
        let changed: Vec<String> =
            changed.map(|(counter, (now, before))| format!("{counter:?}+{}", now - before)).collect();
        changed.join(" ")
    }

    fn create(&self, line: &CommandLine<'_>) -> Qpn {
        let qp_type = match line.text("type") {
            "rc" => QpType::Rc,
            "uc" => QpType::Uc,
            "ud" => QpType::Ud,
            "xrc" => QpType::XrcTarget,
            other => panic!("{other}?"),
        };
        let mut init = self.node.qp_init(qp_type);
        init.signal_all = true;
        init.capacity.max_recv_wr = line.number("recv").unwrap_or(16);
        init.capacity.max_send_wr = line.number("send").unwrap_or(16);
        if qp_type == QpType::XrcTarget {
            (init.pd, init.send_cq, init.recv_cq) = (None, None, None);
            init.xrcd = Some(self.node.hca.open_xrcd().unwrap());
        }
        if line.number::<u32>("srq").is_some() {
            init.srq = Some(self.srq);
            init.capacity.max_recv_wr = 0;
        }
        self.node.hca.create_qp(&init).unwrap().0
    }

    fn connect_line(&self, line: &CommandLine<'_>) {
        let (qpn, reliable) = (line.qpn("qp"), line.number::<u8>("unreliable").is_none());
        let c = numbers_of(line);
        let peer = line.number::<IpAddr>("ip").unwrap();
        self.node.to_rtr(qpn, reliable, peer, line.qpn("peer"), c);
        self.node.to_rts(qpn, reliable, c);
    }

    /// Changes the partition of a queue pair that is in RTS.
    pub(crate) fn to_partition(&self, qpn: Qpn, pkey_index: u16) {
        self.node.move_to(qpn, QpState::Sqd);
        let attributes = QpAttributes { pkey_index, ..QpAttributes::default() };
        self.node.hca.modify_qp(qpn, &attributes, AttributeMask::PKEY_INDEX).unwrap();
        self.node.move_to(qpn, QpState::Rts);
    }

    fn receive(&self, line: &CommandLine<'_>) {
        let mut sge = self.node.sge(line.number("offset").unwrap_or(0), line.number("length").unwrap());
        sge.lkey = line.number("lkey").unwrap_or(sge.lkey);
        let first: u64 = line.number("id").unwrap();
        for wr_id in first..first + line.number("count").unwrap_or(1) {
            let request = RecvRequest { wr_id, sges: &[sge] };
            match line.number::<u32>("srq") {
                Some(_) => self.node.hca.post_srq_recv(self.srq, &request).unwrap(),
                None => self.node.hca.post_recv(line.qpn("qp"), &request).unwrap(),
            }
        }
    }

    /// Sends so many messages, a few at a time, and waits for the completions of all.
    pub(crate) fn send_all(&self, qpn: Qpn, count: u64, length: u32) {
        let mut posted = 0;
        for done in 0..count {
            while posted < count && posted < done + 8 {
                self.node.send(qpn, posted, 0, length);
                posted += 1;
            }
            let [completion] = self.poll_one();
            assert_eq!((completion.wr_id, completion.status), (done, WcStatus::Success));
        }
    }

    /// The next completion alone.
    fn poll_one(&self) -> [WorkCompletion; 1] {
        let end = Instant::now() + PATIENCE;
        let mut one = [WorkCompletion::default()];
        while self.node.hca.poll_cq(&self.node.cq, &mut one) == 0 {
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
        one
    }

    fn answer(&mut self, line: &CommandLine<'_>) -> String {
        let node = &self.node;
        match line.word {
            "qp" => return self.create(line).value().to_string(),
            "connect" => self.connect_line(line),
            "datagram" => node.to_rts_datagram(line.qpn("qp"), 0),
            "partition" => self.to_partition(line.qpn("qp"), line.number("index").unwrap()),
            "move" => {
                let state = QpState::from_verbs(line.number("state").unwrap()).unwrap();
                node.move_to(line.qpn("qp"), state);
            }
            "destroy" => node.hca.destroy_qp(line.qpn("qp")).unwrap(),
            "receive" => self.receive(line),
            "limit" => {
                let limit = line.number("limit");
                node.hca.modify_srq(self.srq, SrqChange { limit, ..SrqChange::default() }).unwrap();
            }
            "send" => {
                self.send_all(line.qpn("qp"), line.number("count").unwrap(), line.number("length").unwrap())
            }
            "register" => {
                let access = Access::from_bits_truncate(line.number("access").unwrap());
                let keys = node.memory.register(&node.hca, node.pd, access);
                self.node.region = keys.handle;
                return keys.rkey.to_string();
            }
            "deregister" => node.hca.dereg_mr(node.region).unwrap(),
            "state" => return node.state(line.qpn("qp")).name().to_owned(),
            "look-away" => self.looks_away.store(line.number::<u8>("yes").unwrap() > 0, Ordering::Relaxed),
            "init" => node.to_init(line.qpn("qp")),
            "tally" => return tally(&self.poll(line.number("count").unwrap())),
            "poll" => {
                return told(&self.poll(line.number("count").unwrap()));
            }
            "sum" => {
                let bytes = node.memory.read(line.number("offset").unwrap(), line.number("length").unwrap());
                return sum(&bytes).to_string();
            }
            "events" => return self.events(),
            "counted" => return self.counted(),
            "medium" => return self.medium(line.qpn("qp")),
            "held" => return held(),
            "lost" => return self.sharing.stats().ring_lost.to_string(),
            other => panic!("{other}?"),
        }
        String::new()
    }
}

/// Completions as tests compare them: everything but the numbers of queue pairs.
pub(crate) fn told(completions: &[WorkCompletion]) -> String {
    let told = |wc: &WorkCompletion| {
        let WorkCompletion { wr_id, status, opcode, vendor_err, byte_len, imm_data, .. } = wc;
        format!("{wr_id} {} {opcode:?} {vendor_err} {byte_len} {imm_data:?} {:?}", status.name(), wc.flags)
    };
    completions.iter().map(told).collect::<Vec<_>>().join(", ")
}

/// How many messages came to each queue pair.
fn tally(completions: &[WorkCompletion]) -> String {
    let mut counts = std::collections::BTreeMap::<u32, u32>::new();
    for wc in completions {
        assert_eq!((wc.status, wc.opcode), (WcStatus::Success, WcOpcode::Recv));
        *counts.entry(wc.qp_num).or_default() += 1;
    }
    counts.iter().map(|(qpn, count)| format!("{qpn}:{count}")).collect::<Vec<_>>().join(" ")
}

/// A number that other bytes do not have.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Descriptors, mapped rings, their KiB, and the KiB of this process that are in memory, rings apart.
fn held() -> String {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count() - 1;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let rings = maps.lines().filter(|line| line.contains("pumice-ring"));
    let bytes_of = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
    };
    let sizes: Vec<u64> = rings.filter_map(bytes_of).collect();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let anonymous = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let anonymous = anonymous.trim().trim_end_matches(" kB");
    format!("{descriptors} {} {} {anonymous}", sizes.len(), sizes.iter().sum::<u64>() >> 10)
}

/// A line that the parent says: a word, and `key=value` behind it.
struct CommandLine<'l> {
    word: &'l str,
    values: HashMap<&'l str, &'l str>,
}

impl<'l> CommandLine<'l> {
    fn new(line: &'l str) -> CommandLine<'l> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let values = rest.split(' ').filter_map(|pair| pair.split_once('=')).collect();
        CommandLine { word, values }
    }

    fn text(&self, key: &str) -> &'l str {
        self.values[key]
    }

    fn number<T: FromStr<Err: std::fmt::Debug>>(&self, key: &str) -> Option<T> {
        self.values.get(key).map(|text| text.parse().unwrap())
    }

    fn qpn(&self, key: &str) -> Qpn {
        Qpn::new(self.number(key).unwrap())
    }
}

/// The numbers of a connection as [`numbers_of`] reads them.
pub(crate) fn words(c: Connection) -> String {
    let Connection { timeout, retry_cnt, rnr_retry, min_rnr_timer, rd_atomic, .. } = c;
    format!(
        "timeout={timeout} retry={retry_cnt} rnr={rnr_retry} rnr_timer={min_rnr_timer} rd_atomic={rd_atomic}"
    )
}

fn numbers_of(line: &CommandLine<'_>) -> Connection {
    let or = |key, default| line.number(key).unwrap_or(default);
    let c = Connection::default();
    Connection {
        timeout: or("timeout", c.timeout),
        retry_cnt: or("retry", c.retry_cnt),
        rnr_retry: or("rnr", c.rnr_retry),
        min_rnr_timer: or("rnr_timer", c.min_rnr_timer),
        rd_atomic: or("rd_atomic", c.rd_atomic),
        ..c
    }
}

/// The role "node".
pub(crate) fn run() {
    let config = child::config();
    let local = match Local::open(&config, Size::of_environment()) {
        Ok(local) => local,
        Err(error) => return say(&format!("refused {error}")),
    };
    apply_command(local, std::io::stdin().lock().lines().map_while(Result::ok), &config);
}

/// Does what each line says, until the last one.
fn apply_command(mut local: Local, lines: impl Iterator<Item = String>, config: &SharedPortConfig) {
    say(&format!("index {} {}", local.index, local.node.rkey));
    let mut to_child = None;
    let mut many = Vec::new();
    for text in lines {
        let line = CommandLine::new(&text);
        match line.word {
            "quit" => return,
            // A child of this process without a program of its own.
            "fork" => to_child = fork(line.text("child"), config),
            "child" => {
                use std::io::Write as _;
                let pipe: &mut std::fs::File = to_child.as_mut().expect("a child");
                writeln!(pipe, "{}", text.strip_prefix("child ").unwrap()).unwrap();
            }
            "many" => {
                many = (0..line.number("count").unwrap()).map(|_| local.create(&line)).collect();
                let numbers: Vec<String> = many.iter().map(|qpn: &Qpn| qpn.value().to_string()).collect();
                say(&format!("done {}", numbers.join(",")));
            }
            "connect-many" => {
                let peers = line.text("peers").split(',').map(|peer| peer.parse().unwrap());
                let ip = line.number("ip").unwrap();
                for (qpn, peer) in many.iter().zip(peers) {
                    local.node.to_rtr(*qpn, true, ip, Qpn::new(peer), numbers_of(&line));
                    local.node.to_rts(*qpn, true, numbers_of(&line));
                    local.node.post_recv(*qpn, 1, 0, 64);
                }
                say("done");
            }
            "send-many" => {
                many.iter().for_each(|qpn| local.node.send(*qpn, 0, 0, 64));
                say("done");
            }
            "poll-many" => {
                let all = local.poll(line.number("count").unwrap());
                let failed = all.iter().find(|wc| wc.status != WcStatus::Success);
                say(&format!("done {} {failed:?}", all.len()));
            }
            _ => {
                let answer = local.answer(&line);
                say(&format!("done {answer}"));
            }
        }
    }
}

/// Forks. The child leaves at once ("exit"), or has a device of its own ("open") and does what comes through
/// the pipe that is the result.
fn fork(child: &str, config: &SharedPortConfig) -> Option<std::fs::File> {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child uses what it copied of this process's memory, and no thread of it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(writer);
        if child == "open" {
            let own = Local::open(config, Size::DEFAULT).unwrap();
            apply_command(own, std::io::BufReader::new(reader).lines().map_while(Result::ok), config);
        }
        // SAFETY: ends this process; what it has of the parent's device is not closed, like in most programs.
        unsafe { libc::_exit(0) };
    }
    if child == "open" {
        return Some(std::fs::File::from(std::os::fd::OwnedFd::from(writer)));
    }
    let mut status = 0;
    // SAFETY: the status is a live C int.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    say("done");
    None
}
