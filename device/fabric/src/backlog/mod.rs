//! Estimate of how many bytes of UC and UD wait in the socket buffers of the processes that share a port.
//!
//! Receivers do not acknowledge unreliable packets, so a sender cannot know that a receiver on the same host
//! is not running and that the buffer of its socket is full. Hardware would stop the sender through the link;
//! here the kernel drops packets. Hence a table in memory that the processes of a user share, with an entry
//! per process: senders add to `offered` what they send, and the owner of the entry adds to `taken` what it
//! takes from its socket. The difference is the backlog. A sender holds unreliable batches back while the
//! backlog is more than half a socket buffer.
//!
//! The estimate corrects itself: an owner that finds its socket empty has taken all that was offered before
//! it polled the socket. The memory is written by other processes and not trusted, so waiting is bounded: a
//! sender ignores a backlog that its owner does not reduce within [`PATIENCE_NS`].

pub(crate) mod backlog_table;
pub(crate) mod neighbours;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pumice_model::port::batch::Peer;
use pumice_transport::wire::peek;

use super::system::{self, File};
use crate::backlog::backlog_table::BacklogTable;
use crate::backlog::neighbours::NeighbourTables;
use crate::members::member_index::MemberIndex;

/// Time that a sender waits for an owner that takes nothing, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Longest time that a sender waits without having sent anything, even if the table demands a longer wait, in
/// nanoseconds.
const LONGEST_WAIT_NS: u64 = 2_000_000_000;
/// Charge of the longest possible batch, in bytes.
const BATCH_CHARGE_BYTES: u64 = 68 * 1024;

/// Number of destinations whose [`SenderWait`] is remembered.
const MAX_DESTINATIONS: usize = 4096;

/// Returns how many bytes a receive buffer is charged for a batch that arrives whole: about its length. The
/// room of a lone packet is rounded up to a power of two (measured: 832 bytes for 64, 2304 for 1056, 8448 for
/// 4128).
fn charge_bytes(length_bytes: usize, segment_bytes: usize) -> u64 {
    let length_bytes = length_bytes as u64;
    if length_bytes <= segment_bytes as u64 { 2 * length_bytes + 832 } else { length_bytes + 1024 }
}

/// Reports whether a batch is of UC or UD, by the opcode of its first packet.
fn is_unreliable(batch: &[u8]) -> bool {
    peek::opcode(batch).is_some_and(|opcode| opcode.service().is_sent_once())
}

/// A sender's waiting state for one destination process.
#[derive(Debug, Clone, Copy, Default)]
struct SenderWait {
    /// Time at which sending stopped, in nanoseconds; `None` while nothing waits.
    waits_since_ns: Option<u64>,
    /// Value of the owner's `taken` when it last changed, followed by the time of that change.
    taken: u64,
    progress_ns: u64,
    /// Time until which the backlog is ignored because the owner took nothing for too long. A change of
    /// `taken` ends it as well.
    ignored_until_ns: Option<u64>,
}

/// The backlog table as the process that owns one of its entries uses it.
#[derive(Debug)]
pub(crate) struct Backlog {
    own: Arc<BacklogTable>,
    neighbours: NeighbourTables,
    member: MemberIndex,
    pid: u32,
    limit_bytes: u64,
    /// Addresses of this host, which a wildcard socket receives.
    local: Vec<IpAddr>,
    sender_waits: HashMap<Peer, SenderWait>,
    /// Charge that [`admits`](Backlog::admits) reserved for a batch that is being built.
    reserved: Option<Charge>,
}

/// Identity of the process that begins an entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnEntry {
    pub(crate) member: MemberIndex,
    /// Address that its socket is bound to.
    pub(crate) address: IpAddr,
    /// A number that no earlier owner of this process index had.
    pub(crate) incarnation: u64,
}

/// Bytes added to the `offered` counter of an entry.
#[derive(Debug)]
pub(crate) struct Charge {
    table: Arc<BacklogTable>,
    member: MemberIndex,
    bytes: u64,
}

impl Charge {
    fn make(table: Arc<BacklogTable>, member: MemberIndex, bytes: u64) -> (Charge, u64) {
        let before = table.offered(member).fetch_add(bytes, Ordering::Relaxed);
        (Charge { table, member, bytes }, before)
    }

    /// Subtracts the bytes again, because the batch was not sent.
    pub(crate) fn retract(self) {
        self.table.offered(self.member).fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Backlog {
    /// Opens the table in `file` and begins the entry of a process. `local` are the host's addresses.
    ///
    /// # Errors
    /// Fails if the file cannot be extended or mapped. The port then has no table and no batch is held back.
    pub(crate) fn open(
        file: &File,
        neighbours: NeighbourTables,
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
            sender_waits: HashMap::new(),
            reserved: None,
        })
    }

    /// Returns the member that `peer` is, if it is in this namespace and keeps an entry.
    #[inline]
    pub(crate) fn find(&self, peer: Peer) -> Option<MemberIndex> {
        self.own.find(peer, |address| self.is_local(address))
    }

    /// Reports whether an unreliable batch may be sent to `peer` now. If so, room for it is reserved until
    /// [`offer`](Backlog::offer).
    pub(crate) fn admits(&mut self, now_ns: u64, peer: Peer) -> bool {
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
        // More taken than offered counts as no backlog: a counter is wrong and will be repaired.
        let backlog_bytes = (offered.wrapping_sub(taken) as i64).max(0) as u64;
        if self.sender_waits.len() >= MAX_DESTINATIONS {
            self.sender_waits.clear();
        }
        let sender_waits = self.sender_waits.entry(peer).or_default();
        if backlog_bytes < self.limit_bytes || sender_waits.is_over(now_ns, taken) {
            sender_waits.waits_since_ns = None;
            self.reserved = Some(charge);
            return true;
        }
        charge.retract();
        false
    }

    /// Charges a batch that is about to be sent to `peer`, and returns the charge; `None` if it is not
    /// charged.
    pub(crate) fn offer(&mut self, peer: Peer, batch: &[u8], segment_bytes: usize) -> Option<Charge> {
        let charge = is_unreliable(batch).then(|| {
            let here = self.find(peer).map(|member| (Arc::clone(&self.own), member));
            let (table, member) = here.or_else(|| self.neighbours.found(peer))?;
            Some(Charge::make(table, member, charge_bytes(batch.len(), segment_bytes)).0)
        });
        self.release();
        charge.flatten()
    }

    /// Releases the reservation of the last [`admits`](Backlog::admits).
    fn release(&mut self) {
        if let Some(charge) = self.reserved.take() {
            charge.retract();
        }
    }

    /// Returns how many bytes were offered to this process so far. Has to be read before the socket is
    /// polled.
    #[inline]
    pub(crate) fn offered(&self) -> u64 {
        self.own.offered(self.member).load(Ordering::Acquire)
    }

    /// Counts a batch that this process took from its socket.
    #[inline]
    pub(crate) fn record_taken(&self, batch: &[u8], segment_bytes: usize) {
        if is_unreliable(batch) {
            let taken = self.own.taken(self.member);
            let charge_bytes = charge_bytes(batch.len(), segment_bytes);
            // Only the owner writes this counter.
            taken.store(taken.load(Ordering::Relaxed).wrapping_add(charge_bytes), Ordering::Relaxed);
        }
    }

    /// Publishes the time, on the clock that all processes share, by which this process had handled
    /// everything that had arrived.
    #[inline]
    pub(crate) fn record_idle_poll(&self, at_ns: u64) {
        self.own.last_poll_ns(self.member).store(at_ns, Ordering::Release);
    }

    /// Notes that a process is stopped and that other processes serve in its place.
    pub(crate) fn note_bypassed(&self, member: MemberIndex) {
        self.own.bypassed(member).store(1, Ordering::Release);
    }

    /// Reports whether other processes took this process for stopped since the last call, and clears the
    /// note.
    #[inline]
    pub(crate) fn was_bypassed(&self) -> bool {
        let bypassed = self.own.bypassed(self.member);
        bypassed.load(Ordering::Relaxed) != 0 && bypassed.swap(0, Ordering::AcqRel) != 0
    }

    /// Returns the incarnation number that the owner of a member index wrote into its entry.
    #[inline]
    pub(crate) fn incarnation(&self, member: MemberIndex) -> u64 {
        self.own.incarnation(member).load(Ordering::Relaxed)
    }

    /// Ends the entry of a process that has exited and whose index this one has adopted.
    pub(crate) fn end_of_adopted(&self, peer: Peer) {
        if let Some(member) = self.find(peer) {
            self.own.end(member);
        }
    }

    /// Changes the incarnation number of a member, as a new owner of the index would.
    #[cfg(test)]
    pub(crate) fn set_incarnation(&self, member: MemberIndex, incarnation: u64) {
        self.own.incarnation(member).store(incarnation, Ordering::Relaxed);
    }

    /// Reports whether a destination is on this host, in this network namespace.
    pub(crate) fn is_local(&self, destination: IpAddr) -> bool {
        destination.is_loopback() || self.local.contains(&destination)
    }

    /// Returns the time by which `peer` had last handled everything that had arrived; `None` if it has no
    /// entry here.
    pub(crate) fn peer_last_poll_ns(&self, peer: Peer) -> Option<u64> {
        self.find(peer).map(|member| self.own.last_poll_ns(member).load(Ordering::Acquire))
    }

    /// Corrects `taken`: the socket was found empty after `offered` bytes had been offered.
    #[inline]
    pub(crate) fn all_taken(&self, offered: u64) {
        let taken = self.own.taken(self.member);
        if taken.load(Ordering::Relaxed) != offered {
            taken.store(offered, Ordering::Relaxed);
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.release();
        // A fork child's copy must not change its parent's entry.
        if self.pid == system::process_id() {
            self.own.end(self.member);
        }
    }
}

impl SenderWait {
    /// Notes that a batch could not be sent at `now_ns`, when `taken` bytes had been taken, and reports
    /// whether the wait has lasted too long.
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

    /// An unnamed file that can be opened any number of times.
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
            let none = NeighbourTables::new("/nowhere".into(), 4791);
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

    /// Offers batches while they are admitted, and returns how many were.
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
        receiver.record_taken(&BATCH, 1024);
        receiver.record_taken(&BATCH, 1024);
        assert!((1..=2).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        // Bytes of lost packets are corrected when the socket is empty.
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
        receiver.record_taken(&BATCH, 1024);
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
            receiver.record_taken(&BATCH, 1024);
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
        // The entry that a killed owner has left does not hide the entry of the next owner.
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
        use crate::files::{folder, lock};
        let top = std::env::temp_dir().join(format!("pumice-neighbours-{}", std::process::id()));
        let port = 4791;
        // As if they were of namespaces 1 and 2; those of this process's namespace would have its number.
        let [near, far] = [1, 2].map(|net| format!("udp{port}-net{net}"));
        let open = |name: &str| folder::open(&top, name).unwrap();
        let at = |name: &str, process, address: &str| {
            let file = open(&format!("{name}-backlog"));
            let neighbours = NeighbourTables::new(top.clone(), port);
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
