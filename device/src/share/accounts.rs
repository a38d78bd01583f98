//! A file of accounts: what was offered to, and taken by, each process of one network namespace that shares the port.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use super::record;
use super::system::{self, File, SharedMemory};

const SLOTS: usize = 256;
/// What senders write and what the owner writes are in cache lines of their own.
const WORDS_PER_SLOT: usize = 16;
/// Behind all of these: a cache line per slot about the owner's progress.
const PROGRESS: usize = SLOTS * WORDS_PER_SLOT;
const PROGRESS_WORDS_PER_SLOT: usize = 8;
const LOOKED: usize = 0;
const BYPASSED: usize = 1;
const WORDS: usize = PROGRESS + SLOTS * PROGRESS_WORDS_PER_SLOT;
const OFFERED: usize = 0;
const TAKEN: usize = 8;
/// 0: nobody keeps the account. Otherwise the IP version of the socket's address.
const OWNER: usize = 9;
/// The address that the socket is bound to, and those of the host if it is bound to none.
const ADDRESSES: [usize; 3] = [10, 12, 14];

/// The accounts of one network namespace.
#[derive(Debug)]
pub(super) struct Accounts {
    memory: SharedMemory,
}

impl Accounts {
    /// The accounts in a file, which is made long enough.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn map(file: &File) -> io::Result<Accounts> {
        Ok(Accounts { memory: SharedMemory::map(file, WORDS)? })
    }

    #[inline]
    fn word(&self, slot: u8, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        self.memory.words().get(usize::from(slot) * WORDS_PER_SLOT + word).unwrap_or(&NOTHING)
    }

    /// Bytes sent to a slot so far.
    #[inline]
    pub(super) fn offered(&self, slot: u8) -> &AtomicU64 {
        self.word(slot, OFFERED)
    }

    /// Bytes that its owner took.
    #[inline]
    pub(super) fn taken(&self, slot: u8) -> &AtomicU64 {
        self.word(slot, TAKEN)
    }

    /// A time by which the owner had found its socket empty and dealt with everything before, on the clock of
    /// [`monotonic_ns`](super::system::monotonic_ns).
    #[inline]
    pub(super) fn looked_ns(&self, slot: u8) -> &AtomicU64 {
        self.progress_word(slot, LOOKED)
    }

    /// Not 0: another process found the owner stopped, so packets that name no process go to others. When the
    /// owner runs again, it looks at the registry and sets this to 0.
    #[inline]
    pub(super) fn bypassed(&self, slot: u8) -> &AtomicU64 {
        self.progress_word(slot, BYPASSED)
    }

    #[inline]
    fn progress_word(&self, slot: u8, word: usize) -> &AtomicU64 {
        static NOTHING: AtomicU64 = AtomicU64::new(0);
        let place = PROGRESS + usize::from(slot) * PROGRESS_WORDS_PER_SLOT + word;
        self.memory.words().get(place).unwrap_or(&NOTHING)
    }

    /// Begins the account of a slot whose socket is bound to `address`; `host` are addresses that a wildcard stands for.
    pub(super) fn begin(&self, slot: u8, address: IpAddr, host: &[IpAddr]) {
        let (family, bound) = in_words(address);
        let others = host.iter().filter(|_| address.is_unspecified()).map(|other| in_words(*other).1);
        let all = [bound].into_iter().chain(others).chain([[0, 0]; 2]);
        for (place, [low, high]) in ADDRESSES.into_iter().zip(all) {
            self.word(slot, place).store(low, Ordering::Relaxed);
            self.word(slot, place + 1).store(high, Ordering::Relaxed);
        }
        self.taken(slot).store(self.offered(slot).load(Ordering::Acquire), Ordering::Relaxed);
        self.bypassed(slot).store(0, Ordering::Relaxed);
        self.looked_ns(slot).store(system::monotonic_ns(), Ordering::Relaxed);
        self.word(slot, OWNER).store(family, Ordering::Release);
    }

    /// Ends the account of a slot.
    pub(super) fn end(&self, slot: u8) {
        self.word(slot, OWNER).store(0, Ordering::Release);
    }

    /// Whether somebody keeps the account of a slot, with a socket that gets what is sent to `destination`. That it is
    /// bound to no address does not count.
    pub(super) fn names(&self, slot: u8, destination: IpAddr) -> bool {
        let (_, wanted) = in_words(destination);
        self.word(slot, OWNER).load(Ordering::Acquire) != 0
            && ADDRESSES.into_iter().any(|place| self.address(slot, place) == wanted)
    }

    /// Whether somebody keeps the account of a slot, with a socket that is bound to no address.
    pub(super) fn is_wildcard(&self, slot: u8) -> bool {
        self.word(slot, OWNER).load(Ordering::Acquire) != 0 && self.address(slot, ADDRESSES[0]) == [0, 0]
    }

    fn address(&self, slot: u8, place: usize) -> [u64; 2] {
        [self.word(slot, place), self.word(slot, place + 1)].map(|word| word.load(Ordering::Relaxed))
    }
}

fn in_words(address: IpAddr) -> (u64, [u64; 2]) {
    let (family, bytes) = record::address_bytes(address);
    let whole = u128::from_le_bytes(bytes);
    (u64::from(family), [whole as u64, (whole >> 64) as u64])
}
