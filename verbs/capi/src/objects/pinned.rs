//! Pages that an adapter would pin: those of registered memory, counted against a limit if the user sets one
//! (`--memlock`).

use std::sync::atomic::{AtomicU64, Ordering};

use pumice_device::outside::limits::{lockable_bytes, page_bytes};
use pumice_device::settings::MemlockLimit;
use pumice_transport::types::Access;

use crate::log::settings::settings;
use crate::platform::errno::Errno;
use crate::platform::process::current_pid;

/// Number of pages of all regions of this process in the low half, and above it the process, because a child
/// begins without pinned pages.
static PINNED: AtomicU64 = AtomicU64::new(0);

const PAGES: u64 = (1 << 40) - 1;

/// Pages that a region pins, until it is dropped.
pub(crate) struct PinnedPages {
    process: u32,
    pages: u64,
}

impl PinnedPages {
    /// Counts the pages of a range. Returns `None` if there is no limit, or if the region is paged on demand.
    ///
    /// # Errors
    /// Fails with ENOMEM if the limit would be exceeded (`ib_umem_get` of Linux).
    pub(crate) fn take(address: u64, length: u64, rights: Access) -> Result<Option<PinnedPages>, Errno> {
        let Some(memlock) = settings()?.memlock.filter(|_| !rights.contains(Access::ON_DEMAND)) else {
            return Ok(None);
        };
        let page = page_bytes();
        let end = address.saturating_add(length).div_ceil(page);
        let pages = end.saturating_sub(address / page).min(PAGES);
        let limit_bytes = match memlock {
            MemlockLimit::Bytes(bytes) => Some(bytes),
            MemlockLimit::Ulimit => lockable_bytes(),
        };
        let process = current_pid();
        let room = limit_bytes.map_or(PAGES, |bytes| (bytes / page).min(PAGES));
        let taken = PINNED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let all = held(word, process).saturating_add(pages);
            (all <= room).then(|| of(process, all))
        });
        match taken {
            Ok(_) => Ok(Some(PinnedPages { process, pages })),
            Err(word) => {
                let before = held(word, process);
                let kib = |pages: u64| pages.saturating_mul(page / 1024);
                let whose = match memlock {
                    MemlockLimit::Bytes(_) => "--memlock",
                    MemlockLimit::Ulimit => "RLIMIT_MEMLOCK",
                };
                Err(Errno(libc::ENOMEM).because(|| {
                    format!(
                        "a region of {} KiB is refused: an adapter pins its pages, {} KiB are registered \
                         already, and {whose} permits {} KiB; raise it (ulimit -l unlimited; docker run \
                         --ulimit memlock=-1), or register less",
                        kib(pages),
                        kib(before),
                        kib(room)
                    )
                }))
            }
        }
    }
}

impl Drop for PinnedPages {
    fn drop(&mut self) {
        let give_back = |word: u64| {
            let is_own = word >> 40 == u64::from(self.process & PROCESS);
            is_own.then(|| of(self.process, (word & PAGES).saturating_sub(self.pages)))
        };
        let _ = PINNED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, give_back);
    }
}

/// Mask of a process number; Linux has numbers below 2²².
const PROCESS: u32 = (1 << 24) - 1;

/// Returns the word for a number of pages of a process.
const fn of(process: u32, pages: u64) -> u64 {
    ((process & PROCESS) as u64) << 40 | pages & PAGES
}

/// Returns the number of pages that the word has for a process.
const fn held(word: u64, process: u32) -> u64 {
    if word >> 40 == (process & PROCESS) as u64 { word & PAGES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_begins_without_pages() {
        let word = of(4711, 12);
        assert_eq!((held(word, 4711), held(word, 4712)), (12, 0));
        assert_eq!(held(of(1 << 22, PAGES), 1 << 22), PAGES);
    }
}
