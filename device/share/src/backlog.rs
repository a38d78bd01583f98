//! How much of UC and UD waits in the socket buffers of the processes that share a port.
//!
//! Receivers do not acknowledge unreliable packets, so a sender cannot know that a receiver on the same host
//! is not running and its socket's buffer full; hardware would stop the sender through the link, here the
//! kernel drops. Hence a table in memory that the processes of a user share, with an entry per process:
//! senders add to `offered` what they send, the owner of the entry adds to `taken` what it takes from its
//! socket. The difference is the backlog, and a sender holds unreliable batches back while that is more than
//! half a socket buffer.
//!
//! It is an estimate, and corrects itself: an owner that finds its socket empty has taken all that was
//! offered before it looked. What is in the memory is a claim of other processes, so waiting is bounded: a
//! sender ignores a backlog that its owner does not work off after [`PATIENCE_NS`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pumice_ports::Peer;
use pumice_transport::wire::peek;

use super::backlog_table::BacklogTable;
use super::member_index::MemberIndex;
use super::neighbours::Neighbours;
use super::system::{self, File};

/// How long a sender waits for an owner that takes nothing.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long a sender waits without having sent anything, also if the table tells it to wait longer.
const LONGEST_WAIT_NS: u64 = 2_000_000_000;
/// The longest batch, as it is charged.
const BATCH_CHARGE_BYTES: u64 = 68 * 1024;

/// Destinations whose patience is remembered.
const MAX_DESTINATIONS: usize = 4096;

/// What a receive buffer is charged for a batch that arrives whole: about its bytes. A lone packet's room is
/// rounded up to a power of two (measured: 832 bytes for 64, 2304 for 1056, 8448 for 4128).
fn charge_bytes(length_bytes: usize, segment_bytes: usize) -> u64 {
    let length_bytes = length_bytes as u64;
    if length_bytes <= segment_bytes as u64 { 2 * length_bytes + 832 } else { length_bytes + 1024 }
}

/// Whether a batch is of UC or UD: its first packet tells.
fn is_unreliable(batch: &[u8]) -> bool {
    peek::opcode(batch).is_some_and(|opcode| opcode.service().is_sent_once())
}

/// How a sender gets on with one process.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    /// Since when nothing was sent, if something waits.
    waits_since_ns: Option<u64>,
    /// What had been taken when that last changed, and when that was.
    taken: u64,
    progress_ns: u64,
    /// The owner took nothing for too long: ignored until `taken` changes, or for a time.
    ignored_until_ns: Option<u64>,
}

/// The table, seen by the process that owns one of its entries.
#[derive(Debug)]
pub(super) struct Backlog {
    own: Arc<BacklogTable>,
    neighbours: Neighbours,
    member: MemberIndex,
    pid: u32,
    limit_bytes: u64,
    /// Addresses of this host: those that a wildcard socket takes.
    local: Vec<IpAddr>,
    patience: HashMap<Peer, Patience>,
    /// Where room was added for a batch that is being made.
    reserved: Option<Charge>,
}

/// The process that begins an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnEntry {
    pub(super) member: MemberIndex,
    /// What its socket is bound to.
    pub(super) address: IpAddr,
    /// A number that no owner of this process index had before.
    pub(super) incarnation: u64,
}

/// Something added to an entry.
#[derive(Debug)]
pub(super) struct Charge {
    table: Arc<BacklogTable>,
    member: MemberIndex,
    bytes: u64,
}

impl Charge {
    fn make(table: Arc<BacklogTable>, member: MemberIndex, bytes: u64) -> (Charge, u64) {
        let before = table.offered(member).fetch_add(bytes, Ordering::Relaxed);
        (Charge { table, member, bytes }, before)
    }

    /// Takes it back: nothing was sent.
    pub(super) fn retract(self) {
        self.table.offered(self.member).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Backlog {
    /// Opens the table in `file` and begins the entry of a process. `local` are the host's addresses.
    ///
    /// # Errors
    /// What the system says: then there is no table, and nothing waits.
    pub(super) fn open(
        file: &File,
        neighbours: Neighbours,
        own: OwnEntry,
        local: Vec<IpAddr>,
        receive_buffer_bytes: usize,
    ) -> std::io::Result<Backlog> {
        let OwnEntry { member, address, incarnation } = own;
        let own = BacklogTable::map(file)?;
        own.incarnation(member).store(incarnation, Ordering::Relaxed);
        let reachable: Vec<IpAddr> = local.iter().copied().filter(|each| !each.is_loopback()).collect();
        own.begin(member, address, &reachable);
        Ok(Backlog {
            own: Arc::new(own),
            neighbours,
            member,
            pid: system::process_id(),
            limit_bytes: (receive_buffer_bytes as u64 / 2).max(BATCH_CHARGE_BYTES),
            local,
            patience: HashMap::new(),
            reserved: None,
        })
    }

    /// The member that `peer` is, if it is in this namespace and keeps its entry.
    #[inline]
    pub(super) fn find(&self, peer: Peer) -> Option<MemberIndex> {
        self.own.find(peer, |address| self.is_local(address))
    }

    /// Whether an unreliable batch may be sent to `peer` now. If so, room for it is reserved until
    /// [`offer`](Backlog::offer).
    pub(super) fn admits(&mut self, now_ns: u64, peer: Peer) -> bool {
        self.release();
        if peer.address.is_multicast() {
            return true;
        }
        let (table, member) = if let Some(member) = self.find(peer) {
            (Arc::clone(&self.own), member)
        } else if self.is_local(peer.address) {
            return true;
        } else if let Some(found) = self.neighbours.find(now_ns, peer) {
            found
        } else {
            return true;
        };
        let taken = table.taken(member).load(Ordering::Relaxed);
        let (charge, offered) = Charge::make(table, member, BATCH_CHARGE_BYTES);
        // More taken than offered is no backlog: the sum went astray and will be repaired.
        let backlog_bytes = (offered.wrapping_sub(taken) as i64).max(0) as u64;
        if self.patience.len() >= MAX_DESTINATIONS {
            self.patience.clear();
        }
        let patience = self.patience.entry(peer).or_default();
        if backlog_bytes < self.limit_bytes || patience.is_over(now_ns, taken) {
            patience.waits_since_ns = None;
            self.reserved = Some(charge);
            return true;
        }
        charge.retract();
        false
    }

    /// A batch is about to be sent to `peer`: what it was charged.
    pub(super) fn offer(&mut self, peer: Peer, batch: &[u8], segment_bytes: usize) -> Option<Charge> {
        let charge = is_unreliable(batch).then(|| {
            let here = self.find(peer).map(|member| (Arc::clone(&self.own), member));
            let (table, member) = here.or_else(|| self.neighbours.found(peer))?;
            Some(Charge::make(table, member, charge_bytes(batch.len(), segment_bytes)).0)
        });
        self.release();
        charge.flatten()
    }

    /// Takes back what was reserved.
    fn release(&mut self) {
        if let Some(charge) = self.reserved.take() {
            charge.retract();
        }
    }

    /// What was offered to this process so far: to be read before the socket is.
    #[inline]
    pub(super) fn offered(&self) -> u64 {
        self.own.offered(self.member).load(Ordering::Acquire)
    }

    /// A batch for this process was taken.
    #[inline]
    pub(super) fn took(&self, batch: &[u8], segment_bytes: usize) {
        if is_unreliable(batch) {
            let taken = self.own.taken(self.member);
            let charge_bytes = charge_bytes(batch.len(), segment_bytes);
            // The owner alone writes it.
            taken.store(taken.load(Ordering::Relaxed).wrapping_add(charge_bytes), Ordering::Relaxed);
        }
    }

    /// By this time, on the clock that all processes share, this process had dealt with everything that had
    /// come.
    #[inline]
    pub(super) fn looked(&self, at_ns: u64) {
        self.own.looked_ns(self.member).store(at_ns, Ordering::Release);
    }

    /// Notes that a process is stopped and others serve in its place.
    pub(super) fn note_bypassed(&self, member: MemberIndex) {
        self.own.bypassed(member).store(1, Ordering::Release);
    }

    /// Whether others noted that of this process, which runs.
    #[inline]
    pub(super) fn was_bypassed(&self) -> bool {
        let bypassed = self.own.bypassed(self.member);
        bypassed.load(Ordering::Relaxed) != 0 && bypassed.swap(0, Ordering::AcqRel) != 0
    }

    /// The number that the owner of a member index has written down.
    #[inline]
    pub(super) fn incarnation(&self, member: MemberIndex) -> u64 {
        self.own.incarnation(member).load(Ordering::Relaxed)
    }

    /// Ends the entry of a process that has gone and whose index this one has adopted.
    pub(super) fn end_of_adopted(&self, peer: Peer) {
        if let Some(member) = self.find(peer) {
            self.own.end(member);
        }
    }

    /// As if another process had the index.
    #[cfg(test)]
    pub(super) fn set_incarnation(&self, member: MemberIndex, incarnation: u64) {
        self.own.incarnation(member).store(incarnation, Ordering::Relaxed);
    }

    /// Whether a destination is on this host, in this network namespace.
    pub(super) fn is_local(&self, destination: IpAddr) -> bool {
        destination.is_loopback() || self.local.contains(&destination)
    }

    /// When `peer` had last dealt with everything; nothing if it keeps no entry here.
    pub(super) fn last_look_ns(&self, peer: Peer) -> Option<u64> {
        self.find(peer).map(|member| self.own.looked_ns(member).load(Ordering::Acquire))
    }

    /// The socket was found empty after this much had been offered.
    #[inline]
    pub(super) fn all_taken(&self, offered: u64) {
        let taken = self.own.taken(self.member);
        if taken.load(Ordering::Relaxed) != offered {
            taken.store(offered, Ordering::Relaxed);
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.release();
        // A fork child's copy says nothing about its parent.
        if self.pid == system::process_id() {
            self.own.end(self.member);
        }
    }
}

impl Patience {
    /// Notes that a batch cannot be sent at `now_ns`, when `taken` had been taken; whether that has lasted
    /// too long.
    fn is_over(&mut self, now_ns: u64, taken: u64) -> bool {
        let progress = self.taken != taken;
        self.taken = taken;
        if let Some(until_ns) = self.ignored_until_ns {
            if now_ns < until_ns && !progress {
                return true;
            }
            self.ignored_until_ns = None;
            self.waits_since_ns = None;
        }
        let since_ns = *self.waits_since_ns.get_or_insert_with(|| {
            self.progress_ns = now_ns;
            now_ns
        });
        if progress {
            self.progress_ns = now_ns;
        }
        let stuck = now_ns.saturating_sub(self.progress_ns) >= PATIENCE_NS;
        if stuck || now_ns.saturating_sub(since_ns) >= LONGEST_WAIT_NS {
            self.ignored_until_ns =
                Some(if stuck { u64::MAX } else { now_ns.saturating_add(LONGEST_WAIT_NS) });
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::wire::ProcessIndex;

    use super::*;

    const BUFFER_BYTES: usize = 1 << 20;
    /// A UC batch of 60 packets.
    static BATCH: [u8; 60 * 1024] = [0x20; 60 * 1024];
    const DATAGRAM: [u8; 64] = [0x64; 64];

    /// A file without a name, as often as wanted.
    struct TableFile(File);

    impl TableFile {
        fn new(name: &str) -> TableFile {
            let path = std::env::temp_dir().join(format!("pumice-backlog-{name}-{}", std::process::id()));
            let mut options = std::fs::File::options();
            let file = File::from(options.read(true).write(true).create_new(true).open(&path).unwrap());
            std::fs::remove_file(path).unwrap();
            TableFile(file)
        }

        fn of(&self, process: u16, address: &str) -> Backlog {
            let local = vec![address_of("192.0.2.1")];
            let none = Neighbours::new("/nowhere".into(), 4791);
            Backlog::open(&self.0, none, own_entry(process, address), local, BUFFER_BYTES).unwrap()
        }
    }

    fn nth(number: u16) -> MemberIndex {
        MemberIndex::of_number(number).unwrap()
    }

    fn own_entry(process: u16, address: &str) -> OwnEntry {
        OwnEntry { member: nth(process), address: address_of(address), incarnation: 1 }
    }

    fn address_of(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn peer(address: IpAddr, process: u8) -> Peer {
        Peer { address, process: ProcessIndex::new(process) }
    }

    /// Offers batches while they are admitted: how many were.
    fn fill(sender: &mut Backlog, now_ns: u64, to: &str, process: u8) -> usize {
        let to = peer(address_of(to), process);
        (0..1000)
            .take_while(|_| {
                let admitted = sender.admits(now_ns, to);
                if admitted {
                    sender.offer(to, &BATCH, 1024);
                }
                admitted
            })
            .count()
    }

    #[test]
    fn a_sender_waits_while_half_a_buffer_is_full() {
        let table = TableFile::new("half");
        let mut sender = table.of(1, "127.0.0.1");
        let receiver = table.of(2, "127.0.0.2");
        let half = BUFFER_BYTES / 2 / BATCH.len() + 1;
        assert!((half - 1..=half).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        receiver.took(&BATCH, 1024);
        receiver.took(&BATCH, 1024);
        assert!((1..=2).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        // What it lost without knowing is made good when the socket is empty.
        receiver.all_taken(receiver.offered());
        assert!((half - 1..=half).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        assert_eq!(fill(&mut sender, 0, "127.0.0.9", 2), 1000, "somewhere else");
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 3), 1000, "no process has the index");
        drop(receiver);
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), 1000, "gone");
    }

    #[test]
    fn all_senders_share_the_room_and_small_packets_cost_what_their_buffers_do() {
        let table = TableFile::new("share");
        let mut senders: Vec<Backlog> = (1..5).map(|process| table.of(process, "127.0.0.1")).collect();
        let _receiver = table.of(9, "0.0.0.0");
        let to = peer(address_of("192.0.2.1"), 9);
        let mut charged_bytes = 0;
        while let Some(sender) = senders.iter_mut().find_map(|sender| sender.admits(0, to).then_some(sender))
        {
            charged_bytes += sender.offer(to, &DATAGRAM, DATAGRAM.len()).unwrap().bytes;
            assert!(charged_bytes < BUFFER_BYTES as u64, "it has to end");
        }
        assert!(charged_bytes > BUFFER_BYTES as u64 / 3, "{charged_bytes}");
        assert!(!senders[0].admits(0, peer(address_of("127.3.3.3"), 9)), "all of loopback is the wildcard's");
        assert!(senders[0].admits(0, peer(address_of("192.0.2.2"), 9)), "another host's address is not");
        let reliable = [0x0a; 2048];
        assert!(senders[0].offer(to, &reliable, 1024).is_none(), "RC has windows");
        let offered = |of: &Backlog| of.own.offered(nth(9)).load(Ordering::Relaxed);
        let before = offered(&senders[0]);
        senders[0].offer(to, &DATAGRAM, DATAGRAM.len()).unwrap().retract();
        assert_eq!(offered(&senders[0]), before);
    }

    #[test]
    fn no_sender_waits_for_ever() {
        let table = TableFile::new("patience");
        let mut sender = table.of(1, "127.0.0.1");
        let receiver = table.of(2, "127.0.0.2");
        let count = fill(&mut sender, 5, "127.0.0.2", 2);
        assert!(count < 1000);
        assert_eq!(fill(&mut sender, PATIENCE_NS, "127.0.0.2", 2), 0);
        assert_eq!(fill(&mut sender, PATIENCE_NS + 5, "127.0.0.2", 2), 1000, "it is dead");
        assert_eq!(fill(&mut sender, 100 * PATIENCE_NS, "127.0.0.2", 2), 1000, "and stays so");
        receiver.took(&BATCH, 1024);
        assert_eq!(fill(&mut sender, 101 * PATIENCE_NS, "127.0.0.2", 2), 0, "but then it is not");
        receiver.all_taken(receiver.offered());
        assert_eq!(fill(&mut sender, 102 * PATIENCE_NS, "127.0.0.2", 2), count);
    }

    #[test]
    fn nonsense_in_the_memory_delays_but_does_not_stop() {
        let table = TableFile::new("nonsense");
        let mut sender = table.of(1, "127.0.0.1");
        let receiver = table.of(2, "127.0.0.2");
        let to = peer(address_of("127.0.0.2"), 2);
        let mut random = 7_u64;
        let (mut now_ns, mut sent_ns) = (0, 0);
        for _ in 0..20_000 {
            for word in [receiver.own.offered(nth(2)), receiver.own.taken(nth(2))] {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                word.store(random, Ordering::Relaxed);
            }
            now_ns += PATIENCE_NS / 100;
            if sender.admits(now_ns, to) {
                sender.offer(to, &BATCH, 1024);
                assert!(now_ns - sent_ns <= LONGEST_WAIT_NS + PATIENCE_NS);
                sent_ns = now_ns;
            }
            receiver.took(&BATCH, 1024);
        }
        assert!(now_ns - sent_ns <= LONGEST_WAIT_NS + PATIENCE_NS);
    }

    #[test]
    fn members_with_one_process_index_are_told_apart_by_their_addresses() {
        let table = TableFile::new("banks");
        let mut sender = table.of(1, "127.0.0.1");
        let (two, three) = (table.of(0x002, "127.0.0.2"), table.of(0x302, "127.0.0.3"));
        let found = |backlog: &Backlog, address: &str| backlog.find(peer(address_of(address), 2));
        assert_eq!(found(&sender, "127.0.0.2"), Some(nth(0x002)));
        assert_eq!((found(&two, "127.0.0.3"), found(&three, "127.0.0.4")), (Some(nth(0x302)), None));
        let count = fill(&mut sender, 0, "127.0.0.2", 2);
        assert_eq!((fill(&mut sender, 0, "127.0.0.2", 2), fill(&mut sender, 0, "127.0.0.3", 2)), (0, count));
        // What a killed owner has left does not hide the next one.
        std::mem::forget(three);
        let _next = table.of(0x102, "127.0.0.3");
        assert_eq!(found(&sender, "127.0.0.3"), Some(nth(0x102)));
    }

    #[test]
    fn the_entry_of_a_killed_owner_begins_anew() {
        let table = TableFile::new("killed");
        let mut sender = table.of(1, "127.0.0.1");
        let receiver = table.of(2, "127.0.0.2");
        let count = fill(&mut sender, 0, "127.0.0.2", 2);
        std::mem::forget(receiver);
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), 0);
        let _next = table.of(2, "127.0.0.2");
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), count);
    }

    #[test]
    fn a_process_in_another_namespace_is_found_by_its_address_and_its_lock() {
        use crate::{folder, lock};
        let top = std::env::temp_dir().join(format!("pumice-neighbours-{}", std::process::id()));
        let port = 4791;
        // As if they were of namespaces 1 and 2; those of this process's namespace would have its number.
        let [near, far] = [1, 2].map(|net| format!("udp{port}-net{net}"));
        let open = |name: &str| folder::open(&top, name).unwrap();
        let at = |name: &str, process, address: &str| {
            let file = open(&format!("{name}-backlog"));
            let neighbours = Neighbours::new(top.clone(), port);
            Backlog::open(&file, neighbours, own_entry(process, address), Vec::new(), BUFFER_BYTES).unwrap()
        };
        let live = open(&far);
        let mut sender = at(&near, 1, "192.0.2.1");
        let receiver = at(&far, 7, "192.0.2.2");
        assert_eq!(fill(&mut sender, 0, "192.0.2.2", 7), 1000, "no process has the index");
        assert!(lock::try_lock(&live, ProcessIndex::new(7)).unwrap());
        assert_eq!(fill(&mut sender, 1, "192.0.2.2", 7), 1000, "that is remembered for a while");
        let count = fill(&mut sender, 1_000_000_000, "192.0.2.2", 7);
        assert!(count < 20, "{count}");
        assert_eq!(fill(&mut sender, 1_000_000_000, "192.0.2.2", 8), 1000);
        assert_eq!(fill(&mut sender, 1_000_000_000, "192.0.2.3", 7), 1000);
        receiver.all_taken(receiver.offered());
        assert_eq!(fill(&mut sender, 1_000_000_001, "192.0.2.2", 7), count);
        // Another network with the same addresses.
        let (other, twin) = (format!("udp{port}-net3"), at(&format!("udp{port}-net3"), 7, "192.0.2.2"));
        let alive = open(&other);
        assert!(lock::try_lock(&alive, ProcessIndex::new(7)).unwrap());
        assert_eq!(fill(&mut sender, 2_000_000_001, "192.0.2.2", 7), 1000);
        drop(twin);
        std::fs::remove_dir_all(&top).unwrap();
    }
}
