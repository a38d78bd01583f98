//! How much of UC and UD waits in the socket buffers of the processes that share a port.
//!
//! Nobody acknowledges unreliable packets, so their sender cannot know that a receiver on the same host is not running and
//! its socket's buffer full; hardware would stop the sender through the link, here the kernel drops. Hence an account per
//! slot in memory that the processes of a user share: senders add to `offered` what they send, the owner adds to
//! `taken` what it takes from its socket. The difference is the backlog, and a sender holds unreliable trains back while
//! that is more than half a socket buffer.
//!
//! It is an estimate, and mends itself: an owner that finds its socket empty has taken all that was offered before it
//! looked. What is in the memory is a claim of other processes, so waiting is bounded: a backlog that nobody works off is
//! ignored after [`PATIENCE_NS`].

use std::fs::File;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record;
use super::shared_memory::SharedMemory;

/// How long a sender waits for an owner that takes nothing.
const PATIENCE_NS: u64 = 250_000_000;
/// How long a sender waits without having sent anything, whatever the account says.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
/// The longest train, as it is charged.
const TRAIN_CHARGE_BYTES: u64 = 68 * 1024;

const SLOTS: usize = 256;
/// What senders write and what the owner writes are in cache lines of their own.
const WORDS_PER_SLOT: usize = 16;
const WORDS: usize = SLOTS * WORDS_PER_SLOT;
const OFFERED: usize = 0;
const TAKEN: usize = 8;
/// 0: nobody keeps the account. Otherwise the owner's IP version.
const OWNER: usize = 9;
const ADDRESS: usize = 10;

/// What a receive buffer is charged for a train that arrives whole: about its bytes. A lone packet's room is rounded up
/// to a power of two (measured: 832 bytes for 64, 2304 for 1056, 8448 for 4128).
fn charge_bytes(length_bytes: usize, segment_bytes: usize) -> u64 {
    let length_bytes = length_bytes as u64;
    if length_bytes <= segment_bytes as u64 { 2 * length_bytes + 832 } else { length_bytes + 1024 }
}

/// Whether a train is of UC or UD: the first three bits of its first opcode.
fn is_unreliable(train: &[u8]) -> bool {
    matches!(train.first().map(|opcode| opcode >> 5), Some(1 | 3))
}

/// How a sender gets on with one account.
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

/// The accounts, seen by the process that owns one of them.
#[derive(Debug)]
pub(super) struct Backlog {
    memory: SharedMemory,
    slot: u8,
    process: u32,
    limit_bytes: u64,
    /// Addresses of this host: those that a wildcard socket takes.
    local: Vec<IpAddr>,
    patience: Box<[Patience; SLOTS]>,
    /// Added to an account for a train that is being made.
    reserved: Option<u8>,
}

impl Backlog {
    /// Opens the accounts in `file` and begins the one of `slot`, whose socket is bound to `address`. `local` are the
    /// host's addresses.
    ///
    /// # Errors
    /// What the system says: then there are no accounts, and nothing waits.
    pub(super) fn open(
        file: &File,
        slot: u8,
        address: IpAddr,
        local: Vec<IpAddr>,
        receive_buffer_bytes: usize,
    ) -> std::io::Result<Backlog> {
        let backlog = Backlog {
            memory: SharedMemory::map(file, WORDS)?,
            slot,
            process: std::process::id(),
            limit_bytes: (receive_buffer_bytes as u64 / 2).max(TRAIN_CHARGE_BYTES),
            local,
            patience: Box::new([Patience::default(); SLOTS]),
            reserved: None,
        };
        let (family, [high, low]) = in_words(address);
        backlog.word(slot, ADDRESS).store(high, Ordering::Relaxed);
        backlog.word(slot, ADDRESS + 1).store(low, Ordering::Relaxed);
        backlog.all_taken(backlog.offered());
        backlog.word(slot, OWNER).store(family, Ordering::Release);
        Ok(backlog)
    }

    #[inline]
    fn word(&self, slot: u8, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.memory.words().get(usize::from(slot) * WORDS_PER_SLOT + word).unwrap_or(&NOTHING)
    }

    /// Whether the socket of `slot`, if it keeps its account, gets what is sent to `destination`.
    fn is_kept(&self, slot: u8, destination: IpAddr) -> bool {
        let family = self.word(slot, OWNER).load(Ordering::Acquire);
        if family == 0 || destination.is_multicast() {
            return false;
        }
        let bound =
            [self.word(slot, ADDRESS), self.word(slot, ADDRESS + 1)].map(|word| word.load(Ordering::Relaxed));
        (family, bound) == in_words(destination)
            || bound == [0, 0] && (destination.is_loopback() || self.local.contains(&destination))
    }

    /// Whether an unreliable train may be sent to the process of `slot` at `destination` now. If so, room for it is
    /// reserved until [`offer`](Backlog::offer).
    pub(super) fn admits(&mut self, now_ns: u64, destination: IpAddr, slot: u8) -> bool {
        if self.reserved == Some(slot) || !self.is_kept(slot, destination) {
            return true;
        }
        self.release();
        let offered = self.word(slot, OFFERED).fetch_add(TRAIN_CHARGE_BYTES, Ordering::Relaxed);
        self.reserved = Some(slot);
        let taken = self.word(slot, TAKEN).load(Ordering::Relaxed);
        // More taken than offered is no backlog: the sum went astray and will be mended.
        let backlog_bytes = (offered.wrapping_sub(taken) as i64).max(0) as u64;
        let limit_bytes = self.limit_bytes;
        let Some(patience) = self.patience.get_mut(usize::from(slot)) else { return true };
        if backlog_bytes < limit_bytes || patience.is_over(now_ns, taken) {
            patience.waits_since_ns = None;
            return true;
        }
        self.release();
        false
    }

    /// A train is about to be sent to the process of `slot` at `destination`: what it was charged.
    pub(super) fn offer(&mut self, destination: IpAddr, slot: u8, train: &[u8], segment_bytes: usize) -> u64 {
        let mut charged_bytes = 0;
        if is_unreliable(train) && self.is_kept(slot, destination) {
            charged_bytes = charge_bytes(train.len(), segment_bytes);
            self.word(slot, OFFERED).fetch_add(charged_bytes, Ordering::Relaxed);
        }
        self.release();
        charged_bytes
    }

    /// It was not sent.
    pub(super) fn retract(&mut self, slot: u8, charged_bytes: u64) {
        self.word(slot, OFFERED).fetch_sub(charged_bytes, Ordering::Relaxed);
    }

    /// Takes back what was reserved.
    fn release(&mut self) {
        if let Some(slot) = self.reserved.take() {
            self.word(slot, OFFERED).fetch_sub(TRAIN_CHARGE_BYTES, Ordering::Relaxed);
        }
    }

    /// What was offered to this process so far: to be read before the socket is.
    #[inline]
    pub(super) fn offered(&self) -> u64 {
        self.word(self.slot, OFFERED).load(Ordering::Acquire)
    }

    /// A train for this process was taken.
    #[inline]
    pub(super) fn took(&self, train: &[u8], segment_bytes: usize) {
        if is_unreliable(train) {
            let taken = self.word(self.slot, TAKEN);
            let charge_bytes = charge_bytes(train.len(), segment_bytes);
            // Nobody else is entitled to write it.
            taken.store(taken.load(Ordering::Relaxed).wrapping_add(charge_bytes), Ordering::Relaxed);
        }
    }

    /// The socket was found empty after this much had been offered.
    #[inline]
    pub(super) fn all_taken(&self, offered: u64) {
        let taken = self.word(self.slot, TAKEN);
        if taken.load(Ordering::Relaxed) != offered {
            taken.store(offered, Ordering::Relaxed);
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.release();
        // A fork child's copy says nothing about its parent.
        if self.process == std::process::id() {
            self.word(self.slot, OWNER).store(0, Ordering::Release);
        }
    }
}

impl Patience {
    /// Notes that a train cannot be sent at `now_ns`, when `taken` had been taken; whether that has lasted too long.
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

/// IP version and bytes.
fn in_words(address: IpAddr) -> (u64, [u64; 2]) {
    let (family, bytes) = record::address_bytes(address);
    let whole = u128::from_le_bytes(bytes);
    (u64::from(family), [whole as u64, (whole >> 64) as u64])
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER_BYTES: usize = 1 << 20;
    /// A UC train of 60 packets.
    static TRAIN: [u8; 60 * 1024] = [0x20; 60 * 1024];
    const DATAGRAM: [u8; 64] = [0x64; 64];

    /// A file without a name, as often as wanted.
    struct Accounts(File);

    impl Accounts {
        fn new(name: &str) -> Accounts {
            let path = std::env::temp_dir().join(format!("pumice-backlog-{name}-{}", std::process::id()));
            let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
            std::fs::remove_file(path).unwrap();
            Accounts(file)
        }

        fn of(&self, slot: u8, address: &str) -> Backlog {
            let local = vec![address_of("192.0.2.1")];
            Backlog::open(&self.0, slot, address_of(address), local, BUFFER_BYTES).unwrap()
        }
    }

    fn address_of(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Offers trains while they are admitted: how many were.
    fn fill(sender: &mut Backlog, now_ns: u64, to: &str, slot: u8) -> usize {
        let to = address_of(to);
        (0..1000)
            .take_while(|_| {
                let admitted = sender.admits(now_ns, to, slot);
                if admitted {
                    sender.offer(to, slot, &TRAIN, 1024);
                }
                admitted
            })
            .count()
    }

    #[test]
    fn a_sender_waits_while_half_a_buffer_is_full() {
        let accounts = Accounts::new("half");
        let mut sender = accounts.of(1, "127.0.0.1");
        let receiver = accounts.of(2, "127.0.0.2");
        let half = BUFFER_BYTES / 2 / TRAIN.len() + 1;
        assert!((half - 1..=half).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        receiver.took(&TRAIN, 1024);
        receiver.took(&TRAIN, 1024);
        assert!((1..=2).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        // What it lost without knowing is made good when the socket is empty.
        receiver.all_taken(receiver.offered());
        assert!((half - 1..=half).contains(&fill(&mut sender, 0, "127.0.0.2", 2)));
        assert_eq!(fill(&mut sender, 0, "127.0.0.9", 2), 1000, "somewhere else");
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 3), 1000, "nobody's slot");
        drop(receiver);
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), 1000, "gone");
    }

    #[test]
    fn all_senders_share_the_room_and_small_packets_cost_what_their_buffers_do() {
        let accounts = Accounts::new("share");
        let mut senders: Vec<Backlog> = (1..5).map(|slot| accounts.of(slot, "127.0.0.1")).collect();
        let _receiver = accounts.of(9, "0.0.0.0");
        let to = address_of("192.0.2.1");
        let mut charged_bytes = 0;
        while let Some(sender) =
            senders.iter_mut().find_map(|sender| sender.admits(0, to, 9).then_some(sender))
        {
            charged_bytes += sender.offer(to, 9, &DATAGRAM, DATAGRAM.len());
            assert!(charged_bytes < BUFFER_BYTES as u64, "it has to end");
        }
        assert!(charged_bytes > BUFFER_BYTES as u64 / 3, "{charged_bytes}");
        assert!(!senders[0].admits(0, address_of("127.3.3.3"), 9), "all of loopback is the wildcard's");
        assert!(senders[0].admits(0, address_of("192.0.2.2"), 9), "another host's address is not");
        let reliable = [0x0a; 2048];
        assert_eq!(senders[0].offer(to, 9, &reliable, 1024), 0, "RC has windows");
        let charged_bytes = senders[0].offer(to, 9, &DATAGRAM, DATAGRAM.len());
        senders[0].retract(9, charged_bytes);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let accounts = Accounts::new("patience");
        let mut sender = accounts.of(1, "127.0.0.1");
        let receiver = accounts.of(2, "127.0.0.2");
        let count = fill(&mut sender, 5, "127.0.0.2", 2);
        assert!(count < 1000);
        assert_eq!(fill(&mut sender, PATIENCE_NS, "127.0.0.2", 2), 0);
        assert_eq!(fill(&mut sender, PATIENCE_NS + 5, "127.0.0.2", 2), 1000, "it is dead");
        assert_eq!(fill(&mut sender, 100 * PATIENCE_NS, "127.0.0.2", 2), 1000, "and stays so");
        receiver.took(&TRAIN, 1024);
        assert_eq!(fill(&mut sender, 101 * PATIENCE_NS, "127.0.0.2", 2), 0, "but then it is not");
        receiver.all_taken(receiver.offered());
        assert_eq!(fill(&mut sender, 102 * PATIENCE_NS, "127.0.0.2", 2), count);
    }

    #[test]
    fn nonsense_in_the_memory_delays_but_does_not_stop() {
        let accounts = Accounts::new("nonsense");
        let mut sender = accounts.of(1, "127.0.0.1");
        let receiver = accounts.of(2, "127.0.0.2");
        let to = address_of("127.0.0.2");
        let mut random = 7_u64;
        let (mut now_ns, mut sent_ns) = (0, 0);
        for _ in 0..20_000 {
            for word in [OFFERED, TAKEN] {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                receiver.word(2, word).store(random, Ordering::Relaxed);
            }
            now_ns += PATIENCE_NS / 100;
            if sender.admits(now_ns, to, 2) {
                sender.offer(to, 2, &TRAIN, 1024);
                assert!(now_ns - sent_ns <= LONGEST_WAIT_NS + PATIENCE_NS);
                sent_ns = now_ns;
            }
            receiver.took(&TRAIN, 1024);
        }
        assert!(now_ns - sent_ns <= LONGEST_WAIT_NS + PATIENCE_NS);
    }

    #[test]
    fn a_killed_owner_s_account_begins_anew() {
        let accounts = Accounts::new("killed");
        let mut sender = accounts.of(1, "127.0.0.1");
        let receiver = accounts.of(2, "127.0.0.2");
        let count = fill(&mut sender, 0, "127.0.0.2", 2);
        std::mem::forget(receiver);
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), 0);
        let _next = accounts.of(2, "127.0.0.2");
        assert_eq!(fill(&mut sender, 0, "127.0.0.2", 2), count);
    }
}
