//! A file with an entry per process: what was offered to, and taken by, each process of one network namespace
//! that shares the port.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_ports::Peer;

use super::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use super::record;
use super::system::{self, File, SharedMemory};

/// What senders write and what the owner writes are in cache lines of their own.
const WORDS_PER_PROCESS: usize = 16;
/// Behind all of these: a cache line per process index about the owner's progress.
const PROGRESS: usize = NUMBERS_OF_BANK * WORDS_PER_PROCESS;
const PROGRESS_WORDS_PER_PROCESS: usize = 8;
const LOOKED: usize = 0;
const BYPASSED: usize = 1;
/// Behind all of these: a word per process index that its owners differ in.
const INCARNATION: usize = PROGRESS + NUMBERS_OF_BANK * PROGRESS_WORDS_PER_PROCESS;
const WORDS_OF_BANK: usize = INCARNATION + NUMBERS_OF_BANK;
/// Behind those of all banks: the highest bank that a member has had.
const HIGHEST_BANK: usize = BANKS * WORDS_OF_BANK;
const WORDS: usize = HIGHEST_BANK + 1;
const OFFERED: usize = 0;
const TAKEN: usize = 8;
/// 0: no process keeps the entry. Otherwise the IP version of the socket's address.
const OWNER: usize = 9;
/// The address that the socket is bound to, and those of the host if it is bound to none.
const ADDRESSES: [usize; 3] = [10, 12, 14];

/// The entries of one network namespace.
#[derive(Debug)]
pub(super) struct BacklogTable {
    memory: SharedMemory,
}

impl BacklogTable {
    /// The table in a file, which is made long enough.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn map(file: &File) -> io::Result<BacklogTable> {
        Ok(BacklogTable { memory: SharedMemory::map(file, WORDS)? })
    }

    #[inline]
    fn word(&self, member: MemberIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let index = usize::from(member.process()) * WORDS_PER_PROCESS + word;
        self.memory.words().get(start(member) + index).unwrap_or(&NOTHING)
    }

    /// Bytes sent to a process index so far.
    #[inline]
    pub(super) fn offered(&self, member: MemberIndex) -> &AtomicU64 {
        self.word(member, OFFERED)
    }

    /// Bytes that its owner took.
    #[inline]
    pub(super) fn taken(&self, member: MemberIndex) -> &AtomicU64 {
        self.word(member, TAKEN)
    }

    /// A time by which the owner had found its socket empty and dealt with everything before, on the clock of
    /// [`monotonic_ns`](super::system::monotonic_ns).
    #[inline]
    pub(super) fn looked_ns(&self, member: MemberIndex) -> &AtomicU64 {
        self.progress_word(member, LOOKED)
    }

    /// Not 0: another process found the owner stopped, so packets that name no process go to others. When the
    /// owner runs again, it looks at the registry and sets this to 0.
    #[inline]
    pub(super) fn bypassed(&self, member: MemberIndex) -> &AtomicU64 {
        self.progress_word(member, BYPASSED)
    }

    #[inline]
    fn progress_word(&self, member: MemberIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let process = usize::from(member.process());
        let index = start(member) + PROGRESS + process * PROGRESS_WORDS_PER_PROCESS + word;
        self.memory.words().get(index).unwrap_or(&NOTHING)
    }

    /// A number that the owner has written down, and no owner before it had.
    #[inline]
    pub(super) fn incarnation(&self, member: MemberIndex) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let index = start(member) + INCARNATION + usize::from(member.process());
        self.memory.words().get(index).unwrap_or(&NOTHING)
    }

    /// Begins the entry of a process whose socket is bound to `address`; `host` are addresses that a
    /// wildcard stands for.
    pub(super) fn begin(&self, member: MemberIndex, address: IpAddr, host: &[IpAddr]) {
        let (family, bound) = in_words(address);
        let others = host.iter().filter(|_| address.is_unspecified()).map(|other| in_words(*other).1);
        let all = [bound].into_iter().chain(others).chain([[0, 0]; 2]);
        for (word, [low, high]) in ADDRESSES.into_iter().zip(all) {
            self.word(member, word).store(low, Ordering::Relaxed);
            self.word(member, word + 1).store(high, Ordering::Relaxed);
        }
        self.taken(member).store(self.offered(member).load(Ordering::Acquire), Ordering::Relaxed);
        self.bypassed(member).store(0, Ordering::Relaxed);
        self.looked_ns(member).store(system::monotonic_ns(), Ordering::Relaxed);
        if let Some(highest) = self.memory.words().get(HIGHEST_BANK) {
            highest.fetch_max(member.bank().into(), Ordering::Relaxed);
        }
        // What an owner that was killed has left in another bank, at the same address, is of no one.
        let same = |other: &MemberIndex| *other != member && self.address(*other, ADDRESSES[0]) == bound;
        MemberIndex::all_of(member.process())
            .take(self.banks())
            .filter(same)
            .for_each(|other| self.end(other));
        self.word(member, OWNER).store(family, Ordering::Release);
    }

    /// Ends the entry of a process, and with it the use of rings to that process.
    pub(super) fn end(&self, member: MemberIndex) {
        self.incarnation(member).store(0, Ordering::Relaxed);
        self.word(member, OWNER).store(0, Ordering::Release);
    }

    /// The member that `peer` is, if it keeps its entry, with a socket that is bound to the peer's address,
    /// or to all addresses of its host and the peer's is one of them, as `is_of_host` says it for those that
    /// are not in the entry.
    #[inline]
    pub(super) fn find(&self, peer: Peer, is_of_host: impl Fn(IpAddr) -> bool) -> Option<MemberIndex> {
        let (_, wanted) = in_words(peer.address);
        let is_it = |member: &MemberIndex| {
            self.word(*member, OWNER).load(Ordering::Acquire) != 0
                && (ADDRESSES.into_iter().any(|word| self.address(*member, word) == wanted)
                    || self.address(*member, ADDRESSES[0]) == [0, 0] && is_of_host(peer.address))
        };
        MemberIndex::all_of(peer.process).take(self.banks()).find(is_it)
    }

    /// How many banks have had members.
    #[inline]
    fn banks(&self) -> usize {
        let highest = self.memory.words().get(HIGHEST_BANK).map_or(0, |word| word.load(Ordering::Relaxed));
        usize::try_from(highest).map_or(BANKS, |highest| highest.saturating_add(1).min(BANKS))
    }

    fn address(&self, member: MemberIndex, first: usize) -> [u64; 2] {
        [self.word(member, first), self.word(member, first + 1)].map(|word| word.load(Ordering::Relaxed))
    }
}

/// Where the words of a member's bank begin.
#[inline]
fn start(member: MemberIndex) -> usize {
    usize::from(member.bank()) * WORDS_OF_BANK
}

fn in_words(address: IpAddr) -> (u64, [u64; 2]) {
    let (family, bytes) = record::address_bytes(address);
    let whole = u128::from_le_bytes(bytes);
    (u64::from(family), [whole as u64, (whole >> 64) as u64])
}
