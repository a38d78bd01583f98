//! Call stacks that a thread had before, recognised by their return addresses.
//!
//! Unwinding takes some 10 µs, too long for every post. A program posts from few lines, again and again: if
//! the stack is as deep as before, and every return address is in the same slot, it is the same stack.

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
