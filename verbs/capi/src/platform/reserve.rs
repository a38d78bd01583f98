//! A memory reserve for when malloc(3) fails, and memory of malloc(3) for programs.
//!
//! Rust ends a process whose allocation fails. With the reserve, calls that create objects fail with ENOMEM
//! instead, and all other calls continue: the allocator of this library falls back on its own memory, and a
//! call that creates an object is refused unless the reserve has enough for the whole call ([`check`]).
//! Queues have the length that the program asks for, and are allocated fallibly where they are created.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use pumice_calls::{CallAction, CallFacts, CallObject};

use super::Errno;

/// A value in memory of malloc, which is freed unless the program gets it. Memory that the value points at is
/// not freed.
pub(crate) struct Allocation<T>(*mut T);

impl<T> Allocation<T> {
    /// # Errors
    /// Fails with ENOMEM.
    pub(crate) fn new(value: T) -> Result<Allocation<T>, Errno> {
        const { assert!(!std::mem::needs_drop::<T>(), "the value is freed, and not dropped") };
        const { assert!(align_of::<T>() <= 2 * size_of::<usize>(), "malloc aligns no further") };
        // SAFETY: malloc takes any size.
        let pointer = unsafe { libc::malloc(size_of::<T>()) }.cast::<T>();
        if pointer.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: new memory with room for one value, aligned as malloc aligns.
        unsafe { pointer.write(value) };
        Ok(Allocation(pointer))
    }

    /// Returns the address of the value.
    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.0
    }

    /// Gives the value to the program.
    pub(crate) const fn into_raw(self) -> *mut T {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl<T> Drop for Allocation<T> {
    fn drop(&mut self) {
        // SAFETY: the memory that `new` allocated, which the program does not have.
        unsafe { free(self.0.cast()) };
    }
}

/// Frees memory with free(3).
///
/// # Safety
/// `memory` is null, or of malloc and not used any more.
pub(crate) unsafe fn free(memory: *mut c_void) {
    // SAFETY: the function's own contract.
    unsafe { libc::free(memory) };
}

/// Size of a reserve in bytes. It costs only addresses until it is needed.
const RESERVE_BYTES: usize = 8 << 20;
/// Largest allocation from a reserve in bytes. Larger requests, whose size comes from the program, are
/// refused.
const MAX_BYTES: usize = 1 << 20;
/// Bytes that must be left of a reserve before a call that creates an object.
const ENOUGH_TO_MAKE: usize = 6 << 20;
/// Bytes that must be left of a reserve before a call that changes an object.
const ENOUGH_TO_CHANGE: usize = 1 << 20;
/// Bytes that opening a device needs: thread stacks, packet buffers and tables. Their availability is checked
/// in advance.
const OPENING_BYTES: usize = 24 << 20;
/// Bytes that must be available before debug information is read, enough for that of large programs.
const SYMBOLS_BYTES: usize = 256 << 20;
/// Bytes of the static first reserve. The names of calls and the log need memory before a call can be
/// refused.
const FIRST_BYTES: usize = 256 << 10;
/// Largest number of mapped reserves. A further one is mapped when long-lived objects occupy the others.
const MAX_RESERVES: usize = 16;

/// A range of memory that is handed out from its beginning to its end, and again from its beginning when no
/// block of it is in use any more.
struct Reserve {
    /// Address of the range; 0 if it is not mapped.
    begin: AtomicUsize,
    bytes: usize,
    /// State word: the bytes that were handed out in the low half, and the number of blocks in use above
    /// them.
    state: AtomicU64,
}

const BYTES: u64 = u32::MAX as u64;
const BLOCK: u64 = 1 << 32;

impl Reserve {
    const fn unmapped(bytes: usize) -> Reserve {
        Reserve { begin: AtomicUsize::new(0), bytes, state: AtomicU64::new(0) }
    }

    /// Returns the address of the range, if it is mapped.
    fn begin(&self) -> Option<usize> {
        Some(self.begin.load(Ordering::Acquire)).filter(|begin| *begin != 0)
    }

    /// Returns the number of bytes that can be handed out.
    fn left(&self) -> usize {
        let used = (self.state.load(Ordering::Relaxed) & BYTES) as usize;
        self.begin().map_or(0, |_| self.bytes.saturating_sub(used))
    }

    fn has(&self, address: usize) -> bool {
        self.begin().is_some_and(|begin| address.wrapping_sub(begin) < self.bytes)
    }

    /// Takes a block, and returns its address.
    fn take(&self, layout: Layout) -> Option<usize> {
        let begin = self.begin()?;
        let fit = |state: u64| {
            let free = begin.checked_add((state & BYTES) as usize)?;
            let address = free.checked_next_multiple_of(layout.align())?;
            let end = address.checked_add(layout.size())?.checked_sub(begin)?;
            (end <= self.bytes).then_some((address, end as u64))
        };
        let taken = self.state.fetch_update(Ordering::Acquire, Ordering::Relaxed, |state| {
            fit(state).map(|(_, end)| (state & !BYTES).wrapping_add(BLOCK) | end)
        });
        Some(fit(taken.ok()?)?.0)
    }

    /// Returns a block to the reserve.
    fn give_back(&self) {
        let less = |state: u64| {
            let state = state.saturating_sub(BLOCK);
            Some(if state & !BYTES == 0 { 0 } else { state })
        };
        let _ = self.state.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }
}

/// All reserves of the process.
struct Reserves {
    /// The first reserve, which is part of the library.
    first: Reserve,
    mapped: [Reserve; MAX_RESERVES],
    /// Set when the first block is taken. Until then, no block has to be looked up.
    are_used: AtomicBool,
}

impl Reserves {
    const fn none() -> Reserves {
        Reserves {
            first: Reserve::unmapped(FIRST_BYTES),
            mapped: [const { Reserve::unmapped(RESERVE_BYTES) }; MAX_RESERVES],
            are_used: AtomicBool::new(false),
        }
    }

    fn each(&self) -> impl Iterator<Item = &Reserve> {
        self.mapped.iter().chain([&self.first])
    }

    /// Returns a block for an allocation that malloc could not serve; null if no reserve has one.
    #[cold]
    fn take(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MAX_BYTES {
            return ptr::null_mut();
        }
        self.are_used.store(true, Ordering::Release);
        let taken = self.each().find_map(|reserve| reserve.take(layout));
        taken.map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    /// Returns the reserve that a block belongs to.
    #[inline]
    fn of(&self, block: *mut u8) -> Option<&Reserve> {
        if self.are_used.load(Ordering::Relaxed) { self.find(block.addr()) } else { None }
    }

    #[cold]
    fn find(&self, address: usize) -> Option<&Reserve> {
        self.each().find(|reserve| reserve.has(address))
    }

    /// Makes sure that one of the reserves has `bytes` left, and if necessary maps a new one with `map`,
    /// which returns its address. If all reserves are partly occupied by long-lived objects and no further
    /// one fits, it suffices that `map` succeeds. Returns false if there is no memory.
    fn ensure(&self, bytes: usize, map: impl FnOnce(usize) -> Option<usize>) -> bool {
        let has_enough = || self.mapped.iter().any(|reserve| reserve.left() >= bytes);
        if has_enough() {
            return true;
        }
        let Some(begin) = map(RESERVE_BYTES) else { return false };
        let is_retained = self.mapped.iter().any(|reserve| {
            reserve.begin.compare_exchange(0, begin, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if !is_retained {
            unmap(begin, RESERVE_BYTES);
        }
        true
    }
}

/// Maps memory, and returns its address; `None` if there is no room for it.
fn map(bytes: usize) -> Option<usize> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the mapping is new and replaces none.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, -1, 0) };
    if mapped == libc::MAP_FAILED { None } else { Some(mapped.expose_provenance()) }
}

/// Unmaps memory that [`map`] returned and that nothing has used.
fn unmap(begin: usize, bytes: usize) {
    // SAFETY: the memory is mapped, and nothing refers to it.
    unsafe { libc::munmap(ptr::with_exposed_provenance_mut(begin), bytes) };
}

/// Reports whether an allocation of `bytes` would succeed now.
fn could_map(bytes: usize) -> bool {
    map(bytes).inspect(|begin| unmap(*begin, bytes)).is_some()
}

static RESERVES: Reserves = Reserves::none();

/// Largest size of blocks that are allocated with malloc even if they must be zeroed. The calloc of glibc
/// takes none of the blocks that glibc caches for the thread's next malloc, so the cache would grow with each
/// freed block.
const SHORT_BYTES: usize = 1024;

/// Memory of the first reserve.
#[repr(align(4096))]
struct FirstReserve(UnsafeCell<[u8; FIRST_BYTES]>);

// SAFETY: the memory is only handed out by an allocator, and nothing here reads or writes it.
unsafe impl Sync for FirstReserve {}

static FIRST: FirstReserve = FirstReserve(UnsafeCell::new([0; FIRST_BYTES]));

/// Reports whether there is memory for debug information.
pub(crate) fn has_room_for_symbols() -> bool {
    could_map(SYMBOLS_BYTES)
}

/// Reports whether malloc can serve an allocation of `bytes`. The block is freed at once.
pub(crate) fn malloc_has(bytes: usize) -> bool {
    // SAFETY: a block of malloc, or null, is freed. `black_box` prevents the compiler from removing both
    // calls.
    unsafe {
        let block = black_box(libc::malloc(bytes));
        libc::free(block);
        !block.is_null()
    }
}

/// Refuses a call for which there may not be enough memory.
///
/// # Errors
/// ENOMEM.
pub(crate) fn check(row: &CallFacts) -> Result<(), Errno> {
    let bytes = match row.act {
        CallAction::Create(_) => ENOUGH_TO_MAKE,
        CallAction::Change | CallAction::Listen => ENOUGH_TO_CHANGE,
        _ => return Ok(()),
    };
    let opens = matches!(
        row.act,
        CallAction::Create(CallObject::Context | CallObject::Identifier | CallObject::Socket)
    );
    if RESERVES.ensure(bytes, map) && (!opens || could_map(OPENING_BYTES)) {
        return Ok(());
    }
    Err(Errno(libc::ENOMEM).because(|| {
        "the process has no address space left for this call; raise its limit: ulimit -v unlimited".to_owned()
    }))
}

/// Reports whether there is memory for posting some requests. Nothing is counted before malloc has failed.
#[inline]
pub(crate) fn has_room_to_post() -> bool {
    #[cold]
    fn has_enough() -> bool {
        RESERVES.ensure(ENOUGH_TO_CHANGE, map)
    }
    !RESERVES.are_used.load(Ordering::Relaxed) || has_enough()
}

/// The allocator of this library. It uses malloc, and the reserves when malloc fails.
pub(crate) struct Reserved;

// SAFETY: each block comes from the system allocator, or from a reserve, which hands out each byte to one
// block at a time. A block is returned to where it came from.
unsafe impl GlobalAlloc for Reserved {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantees are those of the system allocator.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() { take(layout) } else { block }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > SHORT_BYTES {
            // SAFETY: the caller's guarantees are those of the system allocator.
            let block = unsafe { System.alloc_zeroed(layout) };
            if !block.is_null() {
                return block;
            }
        }
        // SAFETY: as above.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is new and has that size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match RESERVES.of(block) {
            // SAFETY: the caller's guarantees are those of the system allocator, which the block comes from.
            None => unsafe { System.dealloc(block, layout) },
            Some(reserve) => reserve.give_back(),
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let reserve = RESERVES.of(block);
        if reserve.is_none() {
            // SAFETY: the caller's guarantees are those of the system allocator, which the block comes from.
            let moved = unsafe { System.realloc(block, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: as above.
        unsafe { self.moved(block, layout, size) }
    }
}

impl Reserved {
    /// Moves a block of a reserve, or one that the system allocator could not extend.
    ///
    /// # Safety
    /// Same as for [`GlobalAlloc::realloc`].
    #[cold]
    unsafe fn moved(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size fits the alignment, and is not 0.
        let moved = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !moved.is_null() {
            // SAFETY: both blocks have at least that size, and the caller owns the old one.
            unsafe {
                ptr::copy_nonoverlapping(block, moved, layout.size().min(size));
                self.dealloc(block, layout);
            }
        }
        moved
    }
}

#[cold]
fn take(layout: Layout) -> *mut u8 {
    RESERVES.first.begin.store(FIRST.0.get().expose_provenance(), Ordering::Release);
    RESERVES.take(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn blocks_do_not_overlap_and_what_is_given_back_is_given_out_again() {
        let reserves = Reserves::none();
        assert!(reserves.take(layout(1, 1)).is_null(), "none is mapped");
        assert!(reserves.ensure(ENOUGH_TO_MAKE, map));
        let blocks: Vec<*mut u8> = [(1, 1), (8, 8), (100, 64), (3, 1), (MAX_BYTES, 4096)]
            .map(|(size, align)| {
                let block = reserves.take(layout(size, align));
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                // SAFETY: a block of that size.
                unsafe { block.write_bytes(0xa5, size) };
                block
            })
            .into();
        for (one, size, next) in [(0, 1, 1), (1, 8, 2), (2, 100, 3), (3, 3, 4)] {
            assert!(blocks[one].addr() + size <= blocks[next].addr());
        }
        assert!(reserves.take(layout(MAX_BYTES + 1, 1)).is_null(), "too long for a reserve");
        for block in &blocks {
            reserves.of(*block).expect("it is of the reserve").give_back();
        }
        assert_eq!(reserves.take(layout(1, 1)), blocks[0], "it begins anew");
        assert!(reserves.of(ptr::without_provenance_mut(1)).is_none());
    }

    #[test]
    fn another_reserve_is_mapped_when_too_little_is_left_and_only_then() {
        let reserves = Reserves::none();
        assert!(!reserves.ensure(1, |_| None), "there is no memory");
        assert!(reserves.ensure(ENOUGH_TO_MAKE, map));
        assert!(reserves.ensure(ENOUGH_TO_MAKE, |_| panic!("one is enough")));
        let retained: Vec<*mut u8> = (0..3).map(|_| reserves.take(layout(MAX_BYTES, 1))).collect();
        assert!(retained.iter().all(|block| !block.is_null()));
        assert!(!reserves.ensure(ENOUGH_TO_MAKE, |_| None), "three of eight are used");
        assert!(reserves.ensure(ENOUGH_TO_CHANGE, |_| None));
        assert!(reserves.ensure(ENOUGH_TO_MAKE, map));
        // The rest of the first reserve is used first.
        let first = reserves.find(retained[0].addr()).unwrap();
        assert!(first.has(reserves.take(layout(MAX_BYTES, 1)).addr()));
        // All reserves are occupied, so a further one cannot be added.
        let mapped = 2;
        for _ in mapped..MAX_RESERVES {
            while reserves.ensure(ENOUGH_TO_MAKE, |_| None) {
                assert!(!reserves.take(layout(MAX_BYTES, 1)).is_null());
            }
            assert!(reserves.ensure(ENOUGH_TO_MAKE, map));
        }
        while reserves.ensure(ENOUGH_TO_MAKE, |_| None) {
            assert!(!reserves.take(layout(MAX_BYTES, 1)).is_null());
        }
        assert!(reserves.ensure(ENOUGH_TO_MAKE, map), "there is memory");
        assert!(!reserves.ensure(ENOUGH_TO_MAKE, |_| None), "it was not kept");
    }

    #[test]
    fn threads_get_different_blocks() {
        let reserves = Reserves::none();
        assert!(reserves.ensure(1, map));
        let taken = || (0..1000).map(|_| reserves.take(layout(24, 8)).addr()).collect::<Vec<_>>();
        let mut all: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] + 24 <= pair[1]));
        all.iter().for_each(|block| reserves.find(*block).unwrap().give_back());
        assert_eq!(reserves.mapped[0].left(), RESERVE_BYTES);
    }

    #[test]
    fn malloc_is_asked() {
        assert!(malloc_has(1));
        assert!(!malloc_has(isize::MAX as usize));
    }

    #[test]
    fn a_block_keeps_its_contents_where_it_moves() {
        let allocator = Reserved;
        let short = layout(16, 8);
        // SAFETY: a block of the reserve, which is moved and freed.
        unsafe {
            let block = take(short);
            let reserve = RESERVES.of(block).expect("it is of a reserve");
            let left = reserve.left();
            block.write_bytes(7, 16);
            let moved = allocator.realloc(block, short, 4096);
            assert!(RESERVES.of(moved).is_none(), "malloc has memory");
            assert_eq!(moved.add(15).read(), 7);
            allocator.dealloc(moved, layout(4096, 8));
            assert!(reserve.left() >= left + 16, "{} were left, and now {}", left, reserve.left());
        }
    }
}
