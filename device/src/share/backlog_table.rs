//! A file with an entry per process: what was offered to, and taken by, each process of one network namespace
//! that shares the port.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use pumice_transport::wire::ProcessIndex;

use super::record;
use super::system::{self, File, SharedMemory};
use crate::port::Peer;

const PROCESSES: usize = 256;
/// What senders write and what the owner writes are in cache lines of their own.
const WORDS_PER_PROCESS: usize = 16;
/// Behind all of these: a cache line per process index about the owner's progress.
const PROGRESS: usize = PROCESSES * WORDS_PER_PROCESS;
const PROGRESS_WORDS_PER_PROCESS: usize = 8;
const LOOKED: usize = 0;
const BYPASSED: usize = 1;
/// Behind all of these: a word per process index that its owners differ in.
const INCARNATION: usize = PROGRESS + PROCESSES * PROGRESS_WORDS_PER_PROCESS;
const WORDS: usize = INCARNATION + PROCESSES;
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
    fn word(&self, process: ProcessIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.memory.words().get(usize::from(process) * WORDS_PER_PROCESS + word).unwrap_or(&NOTHING)
    }

    /// Bytes sent to a process index so far.
    #[inline]
    pub(super) fn offered(&self, process: ProcessIndex) -> &AtomicU64 {
        self.word(process, OFFERED)
    }

    /// Bytes that its owner took.
    #[inline]
    pub(super) fn taken(&self, process: ProcessIndex) -> &AtomicU64 {
        self.word(process, TAKEN)
    }

    /// A time by which the owner had found its socket empty and dealt with everything before, on the clock of
    /// [`monotonic_ns`](super::system::monotonic_ns).
    #[inline]
    pub(super) fn looked_ns(&self, process: ProcessIndex) -> &AtomicU64 {
        self.progress_word(process, LOOKED)
    }

    /// Not 0: another process found the owner stopped, so packets that name no process go to others. When the
    /// owner runs again, it looks at the registry and sets this to 0.
    #[inline]
    pub(super) fn bypassed(&self, process: ProcessIndex) -> &AtomicU64 {
        self.progress_word(process, BYPASSED)
    }

    #[inline]
    fn progress_word(&self, process: ProcessIndex, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let place = PROGRESS + usize::from(process) * PROGRESS_WORDS_PER_PROCESS + word;
        self.memory.words().get(place).unwrap_or(&NOTHING)
    }

    /// A number that the owner has written down, and no owner before it had.
    #[inline]
    pub(super) fn incarnation(&self, process: ProcessIndex) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.memory.words().get(INCARNATION + usize::from(process)).unwrap_or(&NOTHING)
    }

    /// Begins the entry of a process whose socket is bound to `address`; `host` are addresses that a
    /// wildcard stands for.
    pub(super) fn begin(&self, process: ProcessIndex, address: IpAddr, host: &[IpAddr]) {
        let (family, bound) = in_words(address);
        let others = host.iter().filter(|_| address.is_unspecified()).map(|other| in_words(*other).1);
        let all = [bound].into_iter().chain(others).chain([[0, 0]; 2]);
        for (place, [low, high]) in ADDRESSES.into_iter().zip(all) {
            self.word(process, place).store(low, Ordering::Relaxed);
            self.word(process, place + 1).store(high, Ordering::Relaxed);
        }
        self.taken(process).store(self.offered(process).load(Ordering::Acquire), Ordering::Relaxed);
        self.bypassed(process).store(0, Ordering::Relaxed);
        self.looked_ns(process).store(system::monotonic_ns(), Ordering::Relaxed);
        self.word(process, OWNER).store(family, Ordering::Release);
    }

    /// Ends the entry of a process, and with it the use of rings to that process.
    pub(super) fn end(&self, process: ProcessIndex) {
        self.incarnation(process).store(0, Ordering::Relaxed);
        self.word(process, OWNER).store(0, Ordering::Release);
    }

    /// Whether `peer` keeps its entry, with a socket that is bound to the peer's address.
    pub(super) fn names(&self, peer: Peer) -> bool {
        let (process, (_, wanted)) = (peer.process, in_words(peer.address));
        self.word(process, OWNER).load(Ordering::Acquire) != 0
            && ADDRESSES.into_iter().any(|place| self.address(process, place) == wanted)
    }

    /// Whether a process keeps its entry, with a socket that is bound to no address.
    pub(super) fn is_wildcard(&self, process: ProcessIndex) -> bool {
        self.word(process, OWNER).load(Ordering::Acquire) != 0
            && self.address(process, ADDRESSES[0]) == [0, 0]
    }

    fn address(&self, process: ProcessIndex, place: usize) -> [u64; 2] {
        [self.word(process, place), self.word(process, place + 1)].map(|word| word.load(Ordering::Relaxed))
    }
}

fn in_words(address: IpAddr) -> (u64, [u64; 2]) {
    let (family, bytes) = record::address_bytes(address);
    let whole = u128::from_le_bytes(bytes);
    (u64::from(family), [whole as u64, (whole >> 64) as u64])
}
