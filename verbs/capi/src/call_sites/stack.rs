//! Call stacks of the calling thread, and the names and lines of their return addresses.
//!
//! Unwinding takes some 10 µs, too long for every post. A program posts from few lines, again and again: if
//! the stack is as deep as before, and every return address is in the same slot, it is the same stack.

use std::cell::{OnceCell, RefCell};
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::ptr;

use pumice_device::check::MAX_FRAMES;
use pumice_device::check::recorded::Frame;
use pumice_device::outside::fork_generation::InheritedOnce;

use super::{preload, python};
use crate::platform::reserve;

/// Functions before `main` and before the first function of a thread, which are left out.
const BEFORE_MAIN: [&str; 6] =
    ["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"];

/// End of the header's path that programs include, with inline functions that they call.
const HEADER: &str = "/infiniband/verbs.h";

/// Returns the frames of return addresses, inlined functions included; those before `main` are left out. The
/// caller holds the lock of the writer, without which no thread searches for symbols.
pub(crate) fn frames(addresses: &[u64]) -> Vec<Frame> {
    let mut frames: Vec<Frame> = addresses.iter().flat_map(|address| at(*address)).collect();
    let is_before = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default();
        let base = name.split("@@").next().unwrap_or_default();
        BEFORE_MAIN.iter().any(|known| base == *known || base.starts_with("__libc_start_main"))
    };
    if let Some(end) = frames.iter().position(is_before) {
        frames.truncate(end);
    }
    // Inline functions of the library's own header are not the program's.
    let is_header = |frame: &Frame| frame.file.as_ref().is_some_and(|file| file.ends_with(HEADER));
    frames.retain(|frame| !is_header(frame));
    if addresses.iter().any(|address| python::frame_at(*address).is_some()) {
        // Frames of the interpreter are of no use.
        frames.retain(|frame| frame.line.is_some());
    }
    frames
}

fn at(address: u64) -> Vec<Frame> {
    if let Some(line) = python::frame_at(address) {
        return vec![line];
    }
    let pointer = ptr::without_provenance_mut::<c_void>(address as usize);
    let (object, offset) = object_of(address);
    let unknown = Frame { object, offset, ..Frame::default() };
    let mut found = Vec::new();
    let add_symbol = |symbol: &backtrace::Symbol| {
        found.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")),
            file: symbol.filename().map(|file| file.to_string_lossy().into_owned()),
            line: symbol.lineno(),
            ..unknown.clone()
        });
    };
    // Debug information is as large as it is, and to look into it needs memory that cannot be refused.
    if reserve::has_room_for_symbols() {
        backtrace::resolve(pointer, add_symbol);
    }
    if found.is_empty() {
        found.push(unknown);
    }
    found
}

/// Returns the loaded object that has the call before a return address, and the offset in it.
fn object_of(address: u64) -> (String, u64) {
    let mut about = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    let call = ptr::without_provenance::<c_void>((address as usize).saturating_sub(1));
    // SAFETY: the function only compares the address, and writes the structure of this frame.
    if unsafe { libc::dladdr(call, &mut about) } == 0 || about.dli_fname.is_null() {
        return ("?".to_owned(), address);
    }
    // SAFETY: the loader's name of an object that is not unloaded meanwhile, or shortly before.
    let name = unsafe { CStr::from_ptr(about.dli_fname) }.to_string_lossy().into_owned();
    (name, address.saturating_sub(about.dli_fbase.addr() as u64))
}

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

/// Largest number of cached stacks of a thread.
const MAX_CACHED: usize = 16;
/// Number of stacks at the front, which are not reordered: a program posts from few lines.
const FRONT: usize = 4;
/// Largest number of return addresses of a cached stack; deeper ones are not cached.
const MAX_SLOTS: usize = 96;

/// A return address, and its address on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReturnSlot {
    at: u64,
    address: u64,
}

/// A stack that is being unwound, or was.
#[derive(Debug)]
pub(crate) struct CachedStack {
    /// Depth at which it was captured.
    here: u64,
    slots: Vec<ReturnSlot>,
    /// True if not all return addresses were found where this processor's calls put them.
    is_irregular: bool,
    addresses: Vec<u64>,
}

/// The cached stacks of a thread.
#[derive(Debug)]
pub(crate) struct StackCache {
    /// The stacks; those that are found often come first.
    list: Vec<CachedStack>,
    /// Index of the stack that the next one replaces.
    oldest: usize,
}

impl CachedStack {
    /// Begins a stack; `here` is an address in the frame of the caller, the same whenever it is called at the
    /// same depth.
    pub(crate) const fn new(here: u64) -> CachedStack {
        CachedStack {
            here,
            slots: Vec::new(),
            is_irregular: !cfg!(target_arch = "x86_64"),
            addresses: Vec::new(),
        }
    }

    /// Adds the next frame outwards: its stack pointer after the call returns, and the return address.
    pub(crate) fn add(&mut self, stack_pointer: u64, address: u64) {
        let at = stack_pointer.wrapping_sub(8);
        // The frames of the unwinder and of its caller are inside of `here`, and the outermost has none.
        if self.is_irregular || at < self.here || address == 0 {
            return;
        }
        let is_above = self.slots.last().is_none_or(|last| last.at < at);
        if !is_above || !at.is_multiple_of(8) || self.slots.len() >= MAX_SLOTS || load(at) != address {
            self.is_irregular = true;
            return;
        }
        self.slots.push(ReturnSlot { at, address });
    }

    /// Reports whether the thread has this stack again.
    fn is_at(&self, here: u64) -> bool {
        // An unchanged return address determines the size of the frame that it returns to, so the next one is
        // on this stack, too.
        self.here == here && self.slots.iter().all(|slot| load(slot.at) == slot.address)
    }
}

/// Reads a word of this thread's stack, outwards of its innermost frame.
fn load(at: u64) -> u64 {
    let word = std::ptr::with_exposed_provenance::<u64>(at as usize);
    // SAFETY: callers give an aligned address of a frame of this thread that has not returned.
    unsafe { word.read_volatile() }
}

impl StackCache {
    pub(crate) const fn new() -> StackCache {
        StackCache { list: Vec::new(), oldest: 0 }
    }

    /// Adds the addresses of the stack that the thread has now, if it is cached.
    pub(crate) fn find(&mut self, here: u64, addresses: &mut Vec<u64>) -> bool {
        let Some(index) = self.list.iter().position(|one| one.is_at(here)) else { return false };
        if let Some(cached) = self.list.get(index) {
            addresses.extend_from_slice(&cached.addresses);
        }
        // A stack that is found often moves to the front.
        if index >= FRONT {
            self.list.swap(index, index - 1);
        }
        true
    }

    /// Caches a stack with its addresses.
    pub(crate) fn store(&mut self, mut stack: CachedStack, addresses: &[u64]) {
        if stack.is_irregular || stack.slots.is_empty() {
            return;
        }
        stack.addresses = addresses.to_vec();
        match self.list.get_mut(self.oldest) {
            Some(oldest) => *oldest = stack,
            None => self.list.push(stack),
        }
        // Stacks in the front half are found often.
        self.oldest = if self.oldest + 1 < MAX_CACHED { self.oldest + 1 } else { MAX_CACHED / 2 };
    }
}
