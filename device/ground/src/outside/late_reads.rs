//! Pages that a program has given back, and that tell when it looks at them all the same.
//!
//! A page that is given back cannot be accessed. The first access to it is a fault: the handler of signals
//! makes the page accessible again and says where the program was, and the program goes on with what the page
//! has. The kernel's own accesses are no faults: a system call that is given such a page fails with EFAULT.

use std::ffi::c_void;
use std::mem::{ManuallyDrop, transmute};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::lineage::PerProcess;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;
/// Pages. Of those that were given back, the oldest is used again first.
pub const PAGES: usize = 512;

/// The program does not have it; it can be accessed.
const FREE: u8 = 0;
/// The program has it.
const HELD: u8 = 1;
/// It was given back, and cannot be accessed.
const CLOSED: u8 = 2;

static STATES: [AtomicU8; PAGES] = [const { AtomicU8::new(FREE) }; PAGES];
/// The first page; 0: there is none yet.
static FIRST: AtomicUsize = AtomicUsize::new(0);
/// Where the next page is looked for. The lock is for those who take pages.
static NEXT: PerProcess<Mutex<usize>> = PerProcess::new(|_| Mutex::new(0));
/// The function that is told of an access; null: there is none yet.
static TOLD: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Is told which page was accessed too late, and where the program was: the addresses of the instruction and
/// of something on its stack. It runs in a handler of signals, in the middle of the program's own code.
pub type Told = fn(page: usize, instruction: usize, stack: usize);

/// A page that the program has.
#[derive(Debug)]
pub struct Page(usize);

impl Page {
    /// Takes a page, in a process that watches its faults. None: the program has all of them, or there is no
    /// memory for them.
    pub fn take(told: Told) -> Option<Page> {
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        if FIRST.load(Ordering::Acquire) == 0 {
            TOLD.store(told as *mut c_void, Ordering::Release);
            FIRST.store(mapped()?, Ordering::Release);
        }
        let (after, before) = STATES.split_at_checked(*next)?;
        let is_not_held = |state: &AtomicU8| state.load(Ordering::Acquire) != HELD;
        let order = before.iter().zip(*next..).chain(after.iter().zip(0..));
        let (_, page) = order.into_iter().find(|(state, _)| is_not_held(state))?;
        *next = (page + 1) % PAGES;
        let page = Page(page);
        page.state()?.store(HELD, Ordering::Release);
        allow(page.address(), libc::PROT_READ | libc::PROT_WRITE).then_some(page)
    }

    /// Its number, which another page has once this one was given back.
    pub const fn number(&self) -> usize {
        self.0
    }

    /// Its first byte.
    pub fn address(&self) -> usize {
        FIRST.load(Ordering::Acquire) + self.0 * PAGE_BYTES
    }

    /// Puts bytes at its beginning, as many as it has room for.
    pub fn fill(&self, bytes: &[u8]) {
        let count = bytes.len().min(PAGE_BYTES);
        let to = ptr::with_exposed_provenance_mut::<u8>(self.address());
        // SAFETY: the page is mapped and accessible while it is held, and has room for so many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, count) };
    }

    /// Gives it back: the program's next access is told, if faults of this thread come to the handler.
    pub fn give_back(self, faults_are_seen: bool) {
        if !faults_are_seen {
            return;
        }
        // From now on another thread may take it.
        let page = ManuallyDrop::new(self);
        let Some(state) = page.state() else { return };
        state.store(CLOSED, Ordering::Release);
        if !allow(page.address(), libc::PROT_NONE) {
            state.store(FREE, Ordering::Release);
        }
    }

    fn state(&self) -> Option<&'static AtomicU8> {
        STATES.get(self.0)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(state) = self.state() {
            state.store(FREE, Ordering::Release);
        }
    }
}

/// Memory for all pages, which takes none before it is used.
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

/// Whether a fault at this address is an access to one of the pages, which can go on now. For the handler of
/// signals.
pub fn settle(address: usize, instruction: usize, stack: usize) -> bool {
    let first = FIRST.load(Ordering::Acquire);
    if first == 0 || address < first || address - first >= PAGES * PAGE_BYTES {
        return false;
    }
    let page = (address - first) / PAGE_BYTES;
    let Some(state) = STATES.get(page) else { return false };
    if !allow(first + page * PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE) {
        return false;
    }
    // Another thread may have been here, or have taken the page again.
    if state.compare_exchange(CLOSED, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        tell(page, instruction, stack);
    }
    true
}

#[doc(hidden)]
pub fn tell(page: usize, instruction: usize, stack: usize) {
    let told = TOLD.load(Ordering::Acquire);
    if !told.is_null() {
        // SAFETY: `Page::take` has stored a function of this type.
        let told = unsafe { transmute::<*mut c_void, Told>(told) };
        told(page, instruction, stack);
    }
}
