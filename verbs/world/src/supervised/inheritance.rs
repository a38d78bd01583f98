//! Locks with priority inheritance (`FUTEX_LOCK_PI`): the word says which thread has the lock. The supervisor
//! hands it to the oldest thread that waits; priorities do not count in a world.
//!
//! This file also has locks whose owner has ended without unlocking them (robust lists).

use nix::errno::Errno;

use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::tracee::{Registers, Tracee, robust_list};
use super::waits::{FutexKey, Wait, WaitFor, Woken, futex_key};
use crate::error::WorldError;

const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
/// Maximum number of locks of one thread that are examined when it ends, as in the kernel.
const MAX_LOCKS: usize = 2048;

impl Supervisor {
    /// Locks; waits here while another thread has the lock, unless the call only tries.
    pub(crate) fn lock_with_inheritance(
        &mut self,
        id: ThreadId,
        call: Call,
        key: FutexKey,
        is_try: bool,
    ) -> Result<(), WorldError> {
        let [address, operation, _, timeout, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let Some(own) = tracee.number_inside().and_then(|number| u32::try_from(number).ok()) else {
            return self.answer(id, call, -i64::from(libc::ESRCH));
        };
        let now = match tracee.read_u32(address) {
            Ok(now) => now,
            Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
        };
        let owner = now & FUTEX_TID_MASK;
        if owner == own {
            return self.answer(id, call, -i64::from(libc::EDEADLK));
        }
        if owner == 0 || now & FUTEX_OWNER_DIED != 0 {
            let waiters = if self.has_futex_waiter(key) { FUTEX_WAITERS } else { 0 };
            let done = tracee.write(address, &(own | now & FUTEX_OWNER_DIED | waiters).to_ne_bytes());
            return self.answer_done(id, call, done.map(|()| 0));
        }
        if is_try {
            return self.answer(id, call, -i64::from(libc::EAGAIN));
        }
        if let Err(errno) = tracee.write(address, &(now | FUTEX_WAITERS).to_ne_bytes()) {
            return self.answer(id, call, -i64::from(errno as i32));
        }
        // The older call of the two always uses the real-time clock.
        let is_real = operation as i32 & libc::FUTEX_CLOCK_REALTIME != 0
            || operation as i32 & !libc::FUTEX_PRIVATE_FLAG == libc::FUTEX_LOCK_PI;
        let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
        let until_ns = match timeout {
            0 => None,
            at => match tracee.read_timespec(at) {
                Ok(ns) => Some(self.time.clock.until(clock, ns)),
                Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
            },
        };
        self.wait(id, call, Wait::new(WaitFor::Futex(key, u32::MAX), until_ns))
    }

    /// Unlocks, and hands the lock to the oldest thread that waits.
    pub(crate) fn unlock_with_inheritance(
        &mut self,
        id: ThreadId,
        call: Call,
        key: FutexKey,
    ) -> Result<(), WorldError> {
        let [address, ..] = call.arguments();
        let tracee = self.tracee(id)?;
        let own = tracee.number_inside().and_then(|number| u32::try_from(number).ok());
        let now = match tracee.read_u32(address) {
            Ok(now) => now,
            Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
        };
        if own != Some(now & FUTEX_TID_MASK) {
            return self.answer(id, call, -i64::from(libc::EPERM));
        }
        let done = self.hand_over(tracee, address, key, 0);
        self.answer_done(id, call, done.map(|()| 0))
    }

    /// Hands the lock to the oldest thread that waits for it, or frees it.
    fn hand_over(&mut self, tracee: Tracee, address: u64, key: FutexKey, flags: u32) -> nix::Result<()> {
        let next = self.threads.threads.iter().find(|(_, thread)| is_waiting_on_futex(&thread.activity, key));
        let next = next.and_then(|(_, thread)| u32::try_from(thread.tracee.number_inside()?).ok());
        self.wake_futex(key, u64::from(next.is_some()), u32::MAX);
        let waiters = if self.has_futex_waiter(key) { FUTEX_WAITERS } else { 0 };
        tracee.write(address, &(next.unwrap_or(0) | waiters | flags).to_ne_bytes())
    }

    fn has_futex_waiter(&self, key: FutexKey) -> bool {
        self.threads.threads.values().any(|thread| is_waiting_on_futex(&thread.activity, key))
    }

    /// Restarts the call when the signal that interrupted it has been handled.
    pub(crate) fn restart_call(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        self.note(id, &call.name(), -i64::from(libc::EINTR))?;
        // The syscall instruction is two bytes long.
        let again =
            Registers { rip: call.registers.rip - 2, orig_rax: u64::MAX, rax: call.number, ..call.registers };
        match self.tracee(id)?.set_registers(again) {
            Ok(()) | Err(Errno::ESRCH) => self.go(id, None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the locks of its robust list that a thread holds when it is about to end: their words, and
    /// whether they have priority inheritance.
    pub(crate) fn robust_locks(&self, id: ThreadId) -> Vec<(u64, FutexKey, bool)> {
        let Some(thread) = self.threads.get(id) else { return Vec::new() };
        let (tracee, process) = (thread.tracee, thread.process);
        let locks = locks_of(tracee).unwrap_or_default();
        // A waiter may have declared the word as private to one process, or as shared: both are searched.
        let words =
            |address| [futex_key(tracee, process, address, true), futex_key(tracee, process, address, false)];
        let mut all = Vec::new();
        for (address, inherits) in locks {
            let [private, shared] = words(address);
            all.push((address, private, inherits));
            if shared != private {
                all.push((address, shared, inherits));
            }
        }
        all
    }

    /// Wakes the waiters of the locks of a thread that has ended; the kernel has marked these locks.
    pub(crate) fn release_robust(&mut self, through: Option<Tracee>, locks: &[(u64, FutexKey, bool)]) {
        for (address, key, inherits) in locks {
            if !self.has_futex_waiter(*key) {
                continue;
            }
            match through.filter(|_| *inherits) {
                // If it cannot be written, the waiters are woken all the same.
                Some(tracee) => drop(self.hand_over(tracee, *address, *key, FUTEX_OWNER_DIED)),
                None => drop(self.wake_futex(*key, 1, u32::MAX)),
            }
        }
    }
}

fn is_waiting_on_futex(activity: &Activity, key: FutexKey) -> bool {
    matches!(activity, Activity::Waiting(_, Wait { on: WaitFor::Futex(waited, _), .. }) if *waited == key)
}

/// Returns the result of a call that waited for a lock, or `None` if it restarts.
pub(crate) const fn result_of_lock(woken: Woken) -> Option<i64> {
    match woken {
        Woken::Ready => Some(0),
        Woken::TimedOut => Some(-(libc::ETIMEDOUT as i64)),
        Woken::Interrupted => None,
    }
}

/// Returns the words of the locks that a thread holds, and whether each has priority inheritance.
fn locks_of(tracee: Tracee) -> nix::Result<Vec<(u64, bool)>> {
    let Some(head) = robust_list(tracee.0.as_raw()).filter(|head| *head != 0) else {
        return Ok(Vec::new());
    };
    let own = tracee.number_inside().and_then(|number| u32::try_from(number).ok());
    let offset = tracee.read_u64(head.wrapping_add(8))?;
    let pending = tracee.read_u64(head.wrapping_add(16))?;
    let mut entry = tracee.read_u64(head)?;
    let mut locks = Vec::new();
    let mut add = |entry: u64| {
        let address = (entry & !1).wrapping_add(offset);
        let owner = tracee.read_u32(address).map(|now| now & FUTEX_TID_MASK);
        if owner.ok() == own {
            locks.push((address, entry & 1 != 0));
        }
    };
    for _ in 0..MAX_LOCKS {
        if entry & !1 == head {
            break;
        }
        add(entry);
        entry = tracee.read_u64(entry & !1)?;
    }
    if pending & !1 != 0 {
        add(pending);
    }
    Ok(locks)
}
