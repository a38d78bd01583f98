//! The file with an entry per process: how much was offered to, and taken by, each process of one network
//! namespace that shares the port.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_model::port::batch::Peer;

use crate::members::member_index::{BANKS, MemberIndex, NUMBERS_OF_BANK};
use crate::members::record;
use crate::system::{self, File, SharedMemory};

/// Number of words per entry. The words of senders and those of the owner are in separate cache lines.
const WORDS_PER_PROCESS: usize = 16;
/// Index of the first progress word: behind all entries, a cache line per process index.
const PROGRESS: usize = NUMBERS_OF_BANK * WORDS_PER_PROCESS;
const PROGRESS_WORDS_PER_PROCESS: usize = 8;
const LAST_POLL: usize = 0;
const BYPASSED: usize = 1;
/// Index of the first incarnation word: behind the progress words, a word per process index.
const INCARNATION: usize = PROGRESS + NUMBERS_OF_BANK * PROGRESS_WORDS_PER_PROCESS;
const WORDS_OF_BANK: usize = INCARNATION + NUMBERS_OF_BANK;
/// Index of the word with the highest bank that a member has had; behind the words of all banks.
const HIGHEST_BANK: usize = BANKS * WORDS_OF_BANK;
const WORDS: usize = HIGHEST_BANK + 1;
const OFFERED: usize = 0;
const TAKEN: usize = 8;
/// Index of an entry's owner word: 0 if no process keeps the entry, else the IP version of the socket's
/// address.
const OWNER: usize = 9;
/// Indices of the addresses in an entry: the one that the socket is bound to, then those of the host if the
/// socket is bound to the wildcard address.
const ADDRESSES: [usize; 3] = [10, 12, 14];

/// The mapped table with the entries of one network namespace.
#[derive(Debug)]
pub(crate) struct BacklogTable {
    memory: SharedMemory,
}

impl BacklogTable {
    /// Maps the table in a file, and extends the file if it is too short.
    ///
    /// # Errors
    /// Fails if the file cannot be extended or mapped.
    pub(crate) fn map(file: &File) -> io::Result<BacklogTable> {
        Ok(BacklogTable { memory: SharedMemory::map(file, WORDS)? })
    }

    #[inline]
    fn word(&self, member: MemberIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let index = usize::from(member.process()) * WORDS_PER_PROCESS + word;
        self.memory.words().get(start(member) + index).unwrap_or(&NOTHING)
    }

    /// Returns the counter of bytes sent to a member so far.
    #[inline]
    pub(crate) fn offered(&self, member: MemberIndex) -> &AtomicU64 {
        self.word(member, OFFERED)
    }

    /// Returns the counter of bytes that the owner took.
    #[inline]
    pub(crate) fn taken(&self, member: MemberIndex) -> &AtomicU64 {
        self.word(member, TAKEN)
    }

    /// Returns the time by which the owner had found its socket empty and handled everything before, on the
    /// clock of [`monotonic_ns`](crate::system::monotonic_ns).
    #[inline]
    pub(crate) fn last_poll_ns(&self, member: MemberIndex) -> &AtomicU64 {
        self.progress_word(member, LAST_POLL)
    }

    /// Returns the word by which other processes mark the owner as stopped. While it is not 0, packets that
    /// name no process go to others. When the owner runs again, it reads the registry and sets the word to 0.
    #[inline]
    pub(crate) fn bypassed(&self, member: MemberIndex) -> &AtomicU64 {
        self.progress_word(member, BYPASSED)
    }

    #[inline]
    fn progress_word(&self, member: MemberIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let process = usize::from(member.process());
        let index = start(member) + PROGRESS + process * PROGRESS_WORDS_PER_PROCESS + word;
        self.memory.words().get(index).unwrap_or(&NOTHING)
    }

    /// Returns the incarnation number of the owner; no earlier owner had the same one.
    #[inline]
    pub(crate) fn incarnation(&self, member: MemberIndex) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let index = start(member) + INCARNATION + usize::from(member.process());
        self.memory.words().get(index).unwrap_or(&NOTHING)
    }

    /// Begins the entry of a process whose socket is bound to `address`. `host` are the addresses that a
    /// wildcard stands for.
    pub(crate) fn begin(&self, member: MemberIndex, address: IpAddr, host: &[IpAddr]) {
        let (family, bound) = in_words(address);
        let others = host.iter().filter(|_| address.is_unspecified()).map(|other| in_words(*other).1);
        let all = [bound].into_iter().chain(others).chain([[0, 0]; 2]);
        for (word, [low, high]) in ADDRESSES.into_iter().zip(all) {
            self.word(member, word).store(low, Ordering::Relaxed);
            self.word(member, word + 1).store(high, Ordering::Relaxed);
        }
        self.taken(member).store(self.offered(member).load(Ordering::Acquire), Ordering::Relaxed);
        self.bypassed(member).store(0, Ordering::Relaxed);
        self.last_poll_ns(member).store(system::monotonic_ns(), Ordering::Relaxed);
        if let Some(highest) = self.memory.words().get(HIGHEST_BANK) {
            highest.fetch_max(member.bank().into(), Ordering::Relaxed);
        }
        // An entry that a killed owner left in another bank, at the same address, belongs to no process.
        let same = |other: &MemberIndex| *other != member && self.address(*other, ADDRESSES[0]) == bound;
        MemberIndex::all_of(member.process())
            .take(self.banks())
            .filter(same)
            .for_each(|other| self.end(other));
        self.word(member, OWNER).store(family, Ordering::Release);
    }

    /// Ends the entry of a process, and with it the use of rings to that process.
    pub(crate) fn end(&self, member: MemberIndex) {
        self.incarnation(member).store(0, Ordering::Relaxed);
        self.word(member, OWNER).store(0, Ordering::Release);
    }

    /// Returns the member that `peer` is. Its entry has to be in use, by a socket that is bound to the peer's
    /// address, or to all addresses of its host if the peer's is one of them. `is_of_host` decides that for
    /// addresses that are not in the entry.
    #[inline]
    pub(crate) fn find(&self, peer: Peer, is_of_host: impl Fn(IpAddr) -> bool) -> Option<MemberIndex> {
        let (_, wanted) = in_words(peer.address);
        let is_it = |member: &MemberIndex| {
            self.word(*member, OWNER).load(Ordering::Acquire) != 0
                && (ADDRESSES.into_iter().any(|word| self.address(*member, word) == wanted)
                    || self.address(*member, ADDRESSES[0]) == [0, 0] && is_of_host(peer.address))
        };
        MemberIndex::all_of(peer.process).take(self.banks()).find(is_it)
    }

    /// Returns how many banks have had members.
    #[inline]
    fn banks(&self) -> usize {
        let highest = self.memory.words().get(HIGHEST_BANK).map_or(0, |word| word.load(Ordering::Relaxed));
        usize::try_from(highest).map_or(BANKS, |highest| highest.saturating_add(1).min(BANKS))
    }

    fn address(&self, member: MemberIndex, first: usize) -> [u64; 2] {
        [self.word(member, first), self.word(member, first + 1)].map(|word| word.load(Ordering::Relaxed))
    }
}

/// Returns the index of the first word of a member's bank.
#[inline]
fn start(member: MemberIndex) -> usize {
    usize::from(member.bank()) * WORDS_OF_BANK
}

fn in_words(address: IpAddr) -> (u64, [u64; 2]) {
    let (family, bytes) = record::address_bytes(address);
    let whole = u128::from_le_bytes(bytes);
    (u64::from(family), [whole as u64, (whole >> 64) as u64])
}
