//! Call stacks that a thread had before, found again by their return addresses.
//!
//! Unwinding takes some 10 µs, too long for every post. A program posts from few lines, again and again: if
//! the stack is as deep as it was, and every return address lies where it lay, it is the same stack.

/// Stacks that are kept for a thread.
const MAX_KNOWN: usize = 16;
/// Stacks of the front, in no order: a program posts from few lines.
const FRONT: usize = 4;
/// Return addresses of a stack; deeper ones are not kept.
const MAX_SLOTS: usize = 96;

/// A return address, and where on the stack it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slot {
    at: u64,
    address: u64,
}

/// A stack that is being unwound, or was.
#[derive(Debug)]
pub(super) struct KnownStack {
    /// The depth at which it was looked at.
    here: u64,
    slots: Vec<Slot>,
    /// Not all return addresses were found where this processor's calls put them.
    is_odd: bool,
    addresses: Vec<u64>,
}

/// The stacks of a thread.
#[derive(Debug)]
pub(super) struct KnownStacks {
    /// Those that are asked for often come first.
    list: Vec<KnownStack>,
    /// Which one is given up for the next.
    oldest: usize,
}

impl KnownStack {
    /// `here`: an address in the frame of the caller, the same whenever it is called at the same depth.
    pub(super) const fn new(here: u64) -> KnownStack {
        KnownStack { here, slots: Vec::new(), is_odd: !cfg!(target_arch = "x86_64"), addresses: Vec::new() }
    }

    /// The next frame outwards: its stack pointer after the call returns, and the return address.
    pub(super) fn add(&mut self, stack_pointer: u64, address: u64) {
        let at = stack_pointer.wrapping_sub(8);
        // The frames of the unwinder and of its caller are inside of `here`, and the outermost has none.
        if self.is_odd || at < self.here || address == 0 {
            return;
        }
        let is_above = self.slots.last().is_none_or(|last| last.at < at);
        if !is_above || !at.is_multiple_of(8) || self.slots.len() >= MAX_SLOTS || load(at) != address {
            self.is_odd = true;
            return;
        }
        self.slots.push(Slot { at, address });
    }

    /// Whether the thread is there again.
    fn is_at(&self, here: u64) -> bool {
        // A return address that is where it was says how large the frame is that it returns to, so the next
        // one lies on this stack, too.
        self.here == here && self.slots.iter().all(|slot| load(slot.at) == slot.address)
    }
}

/// A word of this thread's stack, outwards of its innermost frame.
fn load(at: u64) -> u64 {
    let word = std::ptr::with_exposed_provenance::<u64>(at as usize);
    // SAFETY: callers give an aligned address of a frame of this thread that has not returned.
    unsafe { word.read_volatile() }
}

impl KnownStacks {
    pub(super) const fn new() -> KnownStacks {
        KnownStacks { list: Vec::new(), oldest: 0 }
    }

    /// Adds the addresses of the stack that the thread has now, if it had it before.
    pub(super) fn find(&mut self, here: u64, addresses: &mut Vec<u64>) -> bool {
        let Some(place) = self.list.iter().position(|one| one.is_at(here)) else { return false };
        if let Some(known) = self.list.get(place) {
            addresses.extend_from_slice(&known.addresses);
        }
        // What is asked for often comes to the front.
        if place >= FRONT {
            self.list.swap(place, place - 1);
        }
        true
    }

    /// Keeps a stack with its addresses.
    pub(super) fn keep(&mut self, mut stack: KnownStack, addresses: &[u64]) {
        if stack.is_odd || stack.slots.is_empty() {
            return;
        }
        stack.addresses = addresses.to_vec();
        match self.list.get_mut(self.oldest) {
            Some(oldest) => *oldest = stack,
            None => self.list.push(stack),
        }
        // Those in front are asked for often.
        self.oldest = if self.oldest + 1 < MAX_KNOWN { self.oldest + 1 } else { MAX_KNOWN / 2 };
    }
}
