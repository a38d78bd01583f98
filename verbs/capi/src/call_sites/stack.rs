//! Call stacks of the calling thread.

use std::cell::{OnceCell, RefCell};
use std::ffi::{c_int, c_void};
use std::ops::Range;

use pumice_device::check::MAX_FRAMES;
use pumice_device::outside::fork_generation::InheritedOnce;

use super::stack_cache::{CachedStack, StackCache};
use super::{preload, python};

/// Largest number of frames that are examined: those of this library come first.
const MAX_DEPTH: usize = 96;

thread_local! {
    static STACK_CACHE: RefCell<StackCache> = const { RefCell::new(StackCache::new()) };
    static STACK_BOUNDS: OnceCell<(u64, u64)> = const { OnceCell::new() };
}

/// Puts the return addresses of the program's frames into `addresses`, innermost first: lines of Python, if
/// the thread is in an interpreter, and the callers of this library. Takes no lock except those of the
/// unwinder and of the list of lines.
pub(crate) fn capture(addresses: &mut Vec<u64>) {
    capture_native(addresses);
    python::add_lines(addresses);
}

/// Captures the native frames; a cached stack of this thread is recognised without unwinding.
fn capture_native(addresses: &mut Vec<u64>) {
    let here = (&raw const addresses).addr() as u64;
    let is_known = STACK_CACHE
        .try_with(|known| known.try_borrow_mut().is_ok_and(|mut known| known.find(here, addresses)));
    if is_known.unwrap_or(true) {
        return;
    }
    let mut stack = CachedStack::new(here);
    unwind(addresses, &mut stack);
    let _ =
        STACK_CACHE.try_with(|known| known.try_borrow_mut().map(|mut known| known.store(stack, addresses)));
}

fn unwind(addresses: &mut Vec<u64>, stack: &mut CachedStack) {
    let own = own_ranges();
    let mut depth = 0;
    let mut visit_frame = |frame: &backtrace::Frame| {
        let address = frame.ip().addr() as u64;
        stack.add(frame.sp().addr() as u64, address);
        // Functions that this library's frames call back are below frames of the program.
        if address != 0 && !own.iter().any(|range| range.contains(&address)) {
            addresses.push(address);
        }
        depth += 1;
        depth < MAX_DEPTH && addresses.len() < MAX_FRAMES
    };
    // SAFETY: on Linux unwinding needs no synchronisation; the requirement is for the symbols of another
    // system.
    unsafe { backtrace::trace_unsynchronized(&mut visit_frame) };
}

/// Unwinds as [`unwind`] does, from the instruction at which a signal has interrupted the thread, without
/// allocating; returns the number of frames. The instruction is the first frame. Frames of the library are
/// included.
pub(crate) fn unwind_trap(instruction: u64, its_stack: u64, frames: &mut [u64]) -> usize {
    let here = (&raw const instruction).addr() as u64;
    let Some((first, others)) = frames.split_first_mut() else { return 0 };
    *first = instruction;
    if its_stack.wrapping_sub(here) >= HANDLER_BYTES {
        return 1;
    }
    let (mut depth, mut count, mut is_behind) = (0, 0, false);
    let mut visit_frame = |frame: &backtrace::Frame| {
        let address = frame.ip().addr() as u64;
        depth += 1;
        match others.get_mut(count).filter(|_| is_behind && address != 0) {
            Some(other) => (*other, count) = (address, count + 1),
            None if is_behind => return false,
            None => is_behind = address == instruction,
        }
        depth < MAX_DEPTH
    };
    // SAFETY: as in `unwind`.
    unsafe { backtrace::trace_unsynchronized(&mut visit_frame) };
    count + 1
}

/// Reports whether an address is in this library or its preload.
pub(crate) fn is_own(address: u64) -> bool {
    own_ranges().iter().any(|range| range.contains(&address))
}

/// Finds the address ranges of the libraries, which takes locks of the loader and allocates memory.
pub(crate) fn prepare_ranges() {
    let _ = (own_ranges(), c_library());
    python::prepare();
}

/// Returns the address range of the C library.
pub(crate) fn c_library() -> &'static Range<u64> {
    static RANGE: InheritedOnce<Range<u64>> = InheritedOnce::new();
    RANGE.get_or_init(|| range_of((libc::memcmp as *const c_void).addr()))
}

/// Largest distance between a signal handler's stack and the interrupted one above it, if both are on one
/// stack.
const HANDLER_BYTES: u64 = 64 << 10;

/// Returns the stack at an interrupted instruction, whose handler calls this: as return addresses, innermost
/// first. `its_stack` is the stack pointer at the instruction. A handler with a stack of its own has little
/// room: then only the instruction is returned.
pub(crate) fn fault_stack(instruction: u64, its_stack: u64) -> Vec<u64> {
    let here = (&raw const instruction).addr() as u64;
    let mut addresses = Vec::new();
    if its_stack.wrapping_sub(here) < HANDLER_BYTES {
        unwind(&mut addresses, &mut CachedStack::new(here));
    }
    // The handler's caller is a frame of the C library or of the kernel.
    let inner = addresses.iter().position(|address| *address == instruction);
    addresses.drain(..inner.map_or(addresses.len(), |inner| inner + 1));
    // A return address is the address after its call.
    addresses.insert(0, instruction + 1);
    // Functions of the C library are not the program's own.
    let library = c_library();
    let own = addresses.iter().position(|address| !library.contains(address));
    addresses.drain(..own.unwrap_or_default());
    addresses
}

/// Returns the bounds of the calling thread's stack: its first byte, and the first one behind it. Both are 0
/// if they are not known.
pub(crate) fn stack_bounds() -> (u64, u64) {
    let known = STACK_BOUNDS.try_with(|own| *own.get_or_init(query_stack_bounds));
    known.unwrap_or_default()
}

fn query_stack_bounds() -> (u64, u64) {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut first, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the first function fills the structure if it returns 0; then the second reads it, and the third
    // frees what the first allocated.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        let known = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut first, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if known != 0 {
            return (0, 0);
        }
    }
    let first = first.addr() as u64;
    (first, first.saturating_add(bytes as u64))
}

/// Returns the address ranges of this library and its preload.
fn own_ranges() -> &'static [Range<u64>; 2] {
    static RANGES: InheritedOnce<[Range<u64>; 2]> = InheritedOnce::new();
    RANGES.get_or_init(|| {
        [range_of((match_object as *const c_void).addr()), range_of(preload::function().addr())]
    })
}

/// An address, and the range of the object that contains it, once it is found.
struct Sought {
    address: u64,
    found: Range<u64>,
}

fn range_of(address: usize) -> Range<u64> {
    let mut sought = Sought { address: address as u64, found: 0..0 };
    // SAFETY: the function is called with `sought` while it lives.
    unsafe { libc::dl_iterate_phdr(Some(match_object), (&raw mut sought).cast()) };
    sought.found
}

/// Examines a loaded object; ends the iteration at the one that contains the address.
unsafe extern "C" fn match_object(info: *mut libc::dl_phdr_info, _size: usize, sought: *mut c_void) -> c_int {
    // SAFETY: `range_of` gives the address of its variable.
    let sought = unsafe { &mut *sought.cast::<Sought>() };
    // SAFETY: the loader gives a description that is valid during the call.
    let info = unsafe { &*info };
    let headers = match info.dlpi_phdr.is_null() {
        true => return 0,
        // SAFETY: the loader gives the number of headers.
        false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) },
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let (start, end) = loaded.fold((u64::MAX, 0), |(first, last): (u64, u64), header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        (first.min(start), last.max(start.wrapping_add(header.p_memsz)))
    });
    let range = start..end;
    let is_it = range.contains(&sought.address);
    if is_it {
        sought.found = range;
    }
    c_int::from(is_it)
}
