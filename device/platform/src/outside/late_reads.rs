//! Pages that a program has given back, and whose later accesses by the program are detected.
//!
//! A page that is given back cannot be accessed. The first access to it is a fault: the signal handler makes
//! the page accessible again and reports the program's call site, and the program continues with the page's
//! content. The kernel's own accesses are no faults: a system call that is given such a page fails with
//! EFAULT.

use std::ffi::c_void;
use std::mem::{ManuallyDrop, transmute};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::fork_generation::PerProcess;

/// Length of a page in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Number of pages. Of those that were given back, the oldest is used again first.
pub const PAGES: usize = 512;

/// The state of a page that the program does not have, and that can be accessed.
const FREE: u8 = 0;
/// The state of a page that the program has.
const HELD: u8 = 1;
/// The state of a page that was given back, and cannot be accessed.
const CLOSED: u8 = 2;

static PAGE_STATES: [AtomicU8; PAGES] = [const { AtomicU8::new(FREE) }; PAGES];
/// The address of the first page; 0: the pages are not mapped yet.
static FIRST_PAGE_ADDRESS: AtomicUsize = AtomicUsize::new(0);
/// The index where the search for the next page begins. The lock is for threads that take pages.
static NEXT_PAGE: PerProcess<Mutex<usize>> = PerProcess::new(|_| Mutex::new(0));
/// The function that is called at an access; null: there is none yet.
static CALLBACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// A function that is called with the page that was accessed too late, and the call site: the addresses of
/// the instruction and of something on its stack. It runs in a signal handler, in the middle of the program's
/// own code.
pub type AccessCallback = fn(page: usize, instruction: usize, stack: usize);

/// A page that the program has.
#[derive(Debug)]
pub struct WatchedPage(usize);

impl WatchedPage {
    /// Takes a page, in a process that watches its faults. `None`: the program has all of them, or there is
    /// no memory for them.
    pub fn take(callback: AccessCallback) -> Option<WatchedPage> {
        let mut next = NEXT_PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        if FIRST_PAGE_ADDRESS.load(Ordering::Acquire) == 0 {
            CALLBACK.store(callback as *mut c_void, Ordering::Release);
            FIRST_PAGE_ADDRESS.store(mapped()?, Ordering::Release);
        }
        let (after, before) = PAGE_STATES.split_at_checked(*next)?;
        let is_not_held = |state: &AtomicU8| state.load(Ordering::Acquire) != HELD;
        let order = before.iter().zip(*next..).chain(after.iter().zip(0..));
        let (_, page) = order.into_iter().find(|(state, _)| is_not_held(state))?;
        *next = (page + 1) % PAGES;
        let page = WatchedPage(page);
        page.state()?.store(HELD, Ordering::Release);
        allow(page.address(), libc::PROT_READ | libc::PROT_WRITE).then_some(page)
    }

    /// Returns the number of the page, which another page has once this one was given back.
    pub const fn number(&self) -> usize {
        self.0
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        FIRST_PAGE_ADDRESS.load(Ordering::Acquire) + self.0 * PAGE_BYTES
    }

    /// Copies bytes to the beginning of the page, as many as it has room for.
    pub fn fill(&self, bytes: &[u8]) {
        let count = bytes.len().min(PAGE_BYTES);
        let to = ptr::with_exposed_provenance_mut::<u8>(self.address());
        // SAFETY: the page is mapped and accessible while it is held, and has room for so many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, count) };
    }

    /// Gives the page back: the program's next access is reported, if faults of this thread come to the
    /// handler.
    pub fn give_back(self, faults_are_seen: bool) {
        if !faults_are_seen {
            return;
        }
        // Another thread may take the page from now on.
        let page = ManuallyDrop::new(self);
        let Some(state) = page.state() else { return };
        state.store(CLOSED, Ordering::Release);
        if !allow(page.address(), libc::PROT_NONE) {
            state.store(FREE, Ordering::Release);
        }
    }

    fn state(&self) -> Option<&'static AtomicU8> {
        PAGE_STATES.get(self.0)
    }
}

impl Drop for WatchedPage {
    fn drop(&mut self) {
        if let Some(state) = self.state() {
            state.store(FREE, Ordering::Release);
        }
    }
}

/// Maps memory for all pages, which occupies none before it is used.
fn mapped() -> Option<usize> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let first = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE_BYTES, rights, kind, -1, 0) };
    (first != libc::MAP_FAILED).then(|| first.expose_provenance())
}

fn allow(first: usize, rights: libc::c_int) -> bool {
    // SAFETY: the range is a page of this module's own mapping, which nothing but raw pointers refers to.
    unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(first), PAGE_BYTES, rights) == 0 }
}

/// Handles a fault at this address if it is an access to one of the pages, which can continue now, and
/// returns whether it is. It is called by the signal handler.
pub fn settle(address: usize, instruction: usize, stack: usize) -> bool {
    let first = FIRST_PAGE_ADDRESS.load(Ordering::Acquire);
    if first == 0 || address < first || address - first >= PAGES * PAGE_BYTES {
        return false;
    }
    let page = (address - first) / PAGE_BYTES;
    let Some(state) = PAGE_STATES.get(page) else { return false };
    if !allow(first + page * PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // Another thread may have handled the page already, or have taken it again.
    if state.compare_exchange(CLOSED, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        notify_access(page, instruction, stack);
    }
    true
}

#[doc(hidden)]
pub fn notify_access(page: usize, instruction: usize, stack: usize) {
    let callback = CALLBACK.load(Ordering::Acquire);
    if !callback.is_null() {
        // SAFETY: `WatchedPage::take` has stored a function of this type.
        let callback = unsafe { transmute::<*mut c_void, AccessCallback>(callback) };
        callback(page, instruction, stack);
    }
}
