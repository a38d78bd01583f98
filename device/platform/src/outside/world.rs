//! The hints of a program to the supervisor of its world (`pumice world`), if it runs in one.
//!
//! The supervisor sees system calls. A verbs call usually makes none, so the program reports here that
//! another thread may continue, or that it has found nothing: by a page of memory, and by a system call if
//! the page asks for it.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use super::{environment, system_call, world_page};

/// The environment variable that is set if the program runs in a world.
pub const WORLD_VARIABLE: &str = "PUMICE_WORLD";

/// The kinds of hints.
const YIELD_POINT: u64 = 0;
const IDLE_POLL: u64 = 1;
const ENDLESS: u64 = 3;
const CHARGE: u64 = 4;
const LOCK_POINT: u64 = 5;
const RECEIVER: u64 = 6;
const HOST: u64 = 7;
const DEVICE_POLL: u64 = 8;

/// The value of the variable in a world without a performance model.
pub const WITHOUT_MODEL: &str = "1";

/// Reports whether the program runs in a world.
pub fn is_in_world() -> bool {
    kind() != OUTSIDE
}

/// Reports whether the program runs in a world with a performance model.
pub fn has_model() -> bool {
    kind() == WITH_MODEL
}

/// The kinds of worlds that a program may run in.
const UNKNOWN_KIND: u8 = 0;
const OUTSIDE: u8 = 1;
const PLAIN: u8 = 2;
const WITH_MODEL: u8 = 3;

/// Returns the kind of the program's world.
fn kind() -> u8 {
    static KIND: AtomicU8 = AtomicU8::new(UNKNOWN_KIND);
    let known = KIND.load(Ordering::Relaxed);
    if known != UNKNOWN_KIND {
        return known;
    }
    let kind = match environment::variable(WORLD_VARIABLE) {
        None => OUTSIDE,
        Some(text) if text == WITHOUT_MODEL => PLAIN,
        Some(_) => WITH_MODEL,
    };
    KIND.store(kind, Ordering::Relaxed);
    kind
}

/// Marks a point at which another thread may continue.
pub fn point() {
    if !world_page::point() {
        system_call::hint(YIELD_POINT, 0);
    }
}

/// Marks a point at which another thread may continue, because this one takes a lock or gives it back.
pub extern "C" fn lock_point() {
    if !world_page::lock_point() {
        system_call::hint(LOCK_POINT, 0);
    }
}

/// Reports to the supervisor that the thread has polled for something, and found nothing.
pub fn idle_poll() {
    /// The value for a poll of which it is not known when its answer can change.
    const UNKNOWN: u64 = 0;
    if !world_page::idle_poll() {
        system_call::hint(IDLE_POLL, UNKNOWN);
    }
}

/// Returns the performance model of the world, as the text of its costs; `None` without a world or a model.
pub fn model() -> Option<String> {
    let text = environment::variable(WORLD_VARIABLE)?.into_string().ok()?;
    (text != WITHOUT_MODEL).then_some(text)
}

/// Reports a poll in vain of an object, by its address, in a world with a performance model. The answer
/// cannot change before `until_ns` of the monotonic clock, unless another thread does something; `None` means
/// that only another thread can change it. `drives`: the poll has driven the device of the process.
pub fn idle_poll_until(until_ns: Option<u64>, object: usize, drives: bool) {
    system_call::hint_about(IDLE_POLL, shown(until_ns), object as u64, drives.into());
}

/// Reports that a thread of the library has driven a device in vain, in a world with a performance model. The
/// device has something to do at `due_ns` of the monotonic clock, unless packets come or the program does
/// something; the thread looks again by `end_ns` in any case.
pub fn idle_device_until(end_ns: Option<u64>, due_ns: Option<u64>, device: usize) {
    system_call::hint_about(DEVICE_POLL, shown(end_ns), shown(due_ns), device as u64);
}

/// The time in a hint, where 0 means that it is unknown.
fn shown(at_ns: Option<u64>) -> u64 {
    at_ns.unwrap_or(u64::MAX).max(1)
}

/// Lets time pass for this thread in a world with a performance model, while others go on.
pub fn charge(ns: u64) {
    if ns > 0 {
        system_call::hint(CHARGE, ns);
    }
}

/// Lets time pass as [`charge`] does, for a call of the library. The devices of the process have something to
/// do at `due_ns` of the monotonic clock, unless packets come.
pub fn charge_call(ns: u64, due_ns: impl FnOnce() -> Option<u64>) {
    if ns > 0 {
        system_call::hint_about(CHARGE, ns, shown(due_ns()), 0);
    }
}

/// Tells the supervisor of a world with a performance model by which number other processes name this one
/// when they hand packets over.
pub fn receives_as(number: u64) {
    if has_model() {
        system_call::hint(RECEIVER, number);
    }
}

/// Tells the supervisor of a world with a performance model that this process, and those that it starts, are
/// on the host with this number, from 1: they share no memory with those of other hosts.
pub fn enters_host(number: u32) {
    if has_model() {
        system_call::hint(HOST, number.into());
    }
}

/// Reports that the library has done something in a world with a performance model that other threads of the
/// program may look for: packets came, or a timer ran.
#[inline]
pub fn progressed() {
    if has_model() {
        world_page::progressed();
    }
}

/// Marks the beginning of a call in a world with a performance model. `ends_with_hint`: the call ends with a
/// hint, whether it finds something or not, so that none is needed now.
pub fn begin_call(ends_with_hint: bool) {
    if !ends_with_hint || !world_page::begin_call() {
        point();
    }
}

/// Reports that packets were handed over to the process with this number, in memory that no other program
/// sees.
#[inline]
pub fn handed_over(number: u64) {
    if has_model() {
        world_page::handed_over(number);
    }
}

/// The kind of wait of a thread that waits without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndlessWait {
    /// A completion event for the application, which it gets from the channel with this descriptor.
    CompletionEvent(RawFd),
    /// An event of a connection for the application, which it gets from the channel with this descriptor.
    ConnectionEvent(RawFd),
    /// Work for a thread of the library.
    Work,
}

/// Tells the supervisor whether the thread will do nothing by itself, although its waits have time-outs: it
/// checks then whether there is work. Outside of a world this does nothing.
pub fn waits_without_end(wait: Option<EndlessWait>) {
    /// The number of no descriptor, for a thread of the library, and the one that ends the wait.
    const NO_DESCRIPTOR: u64 = u32::MAX as u64;
    const NO_WAIT: u64 = u64::MAX;
    /// The bit beside the descriptor of a channel of connections.
    const OF_CONNECTIONS: u64 = 1 << 32;
    thread_local! {
        static KNOWN: Cell<Option<EndlessWait>> = const { Cell::new(None) };
    }
    if !is_in_world() || KNOWN.try_with(|known| known.replace(wait)) == Ok(wait) {
        return;
    }
    system_call::hint(
        ENDLESS,
        match wait {
            Some(EndlessWait::CompletionEvent(descriptor)) => u64::from(descriptor.unsigned_abs()),
            Some(EndlessWait::ConnectionEvent(descriptor)) => {
                u64::from(descriptor.unsigned_abs()) | OF_CONNECTIONS
            }
            Some(EndlessWait::Work) => NO_DESCRIPTOR,
            None => NO_WAIT,
        },
    );
}

/// Most polls of an empty socket in a row that are skipped: data that write(2) sends to it is not counted.
const MAX_SKIPPED_POLLS: u32 = 32;

/// The known state of a socket in a world, where polling it costs two stops: found empty, it stays so until a
/// call sends.
#[derive(Debug, Default)]
pub struct EmptySocketCache {
    /// The number of calls that had sent when the socket was found empty.
    sent: Option<u64>,
    skipped_polls: u32,
}

impl EmptySocketCache {
    /// Reports whether a poll would find nothing. Outside of a world that is not known.
    #[inline]
    pub fn is_still_empty(&mut self) -> bool {
        self.sent.is_some() && self.is_empty_at(world_page::sent())
    }

    /// Records the result of polling the socket.
    #[inline]
    pub fn record_poll(&mut self, found: bool) {
        *self = EmptySocketCache { sent: if found { None } else { world_page::sent() }, skipped_polls: 0 };
    }

    fn is_empty_at(&mut self, sent: Option<u64>) -> bool {
        self.skipped_polls += 1;
        self.sent == sent && self.skipped_polls <= MAX_SKIPPED_POLLS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_stays_empty_until_a_call_sends_and_is_looked_at_now_and_then() {
        let mut socket = EmptySocketCache::default();
        assert!(!socket.is_still_empty(), "it was not looked at");
        socket.sent = Some(7);
        assert!(socket.is_empty_at(Some(7)) && !socket.is_empty_at(Some(8)));
        let mut socket = EmptySocketCache { sent: Some(7), skipped_polls: 0 };
        let looks = (0..100).take_while(|_| socket.is_empty_at(Some(7))).count();
        assert_eq!(looks, MAX_SKIPPED_POLLS as usize);
    }
}
