//! Words that threads wait for (`futex`): the supervisor has the wait queues instead of the kernel.

use super::inheritance::result_of_lock;
use super::supervisor::Supervisor;
use super::threads::{Activity, Call, ThreadId};
use super::waits::{FutexKey, Wait, WaitFor, Woken, futex_key};
use crate::error::WorldError;

/// `FUTEX_LOCK_PI` with a selectable clock; newer than the headers.
const FUTEX_LOCK_PI2: i32 = 13;
/// The bit set of a wait or a wake that selects all.
const ANY: u32 = u32::MAX;

impl Supervisor {
    pub(crate) fn futex(&mut self, id: ThreadId, call: Call, woken: Option<Woken>) -> Result<(), WorldError> {
        let locks = [libc::FUTEX_LOCK_PI, FUTEX_LOCK_PI2].contains(&command_of(&call));
        match woken {
            Some(why) if locks => {
                return match result_of_lock(why) {
                    Some(result) => self.answer(id, call, result),
                    None => self.restart_call(id, call),
                };
            }
            Some(Woken::Ready) => {
                self.reset_idle_polls(id);
                return self.answer(id, call, 0);
            }
            Some(Woken::TimedOut) => return self.answer(id, call, -i64::from(libc::ETIMEDOUT)),
            Some(Woken::Interrupted) => return self.answer(id, call, -i64::from(libc::EINTR)),
            None => {}
        }
        let [address, operation, value, timeout, second, third] = call.arguments();
        let operation = operation as i32;
        let is_private = operation & libc::FUTEX_PRIVATE_FLAG != 0;
        let Some(thread) = self.threads.get(id) else { return Ok(()) };
        let (tracee, process) = (thread.tracee, thread.process);
        let key = |address: u64| futex_key(tracee, process, address, is_private);
        match command_of(&call) {
            libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => self.wait_for_futex(id, call, key(address)),
            libc::FUTEX_WAKE => self.wake_and_answer(id, call, key(address), value, ANY),
            libc::FUTEX_WAKE_BITSET => self.wake_and_answer(id, call, key(address), value, third as u32),
            command @ (libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE) => {
                if command == libc::FUTEX_CMP_REQUEUE && tracee.read_u32(address) != Ok(third as u32) {
                    return self.answer(id, call, -i64::from(libc::EAGAIN));
                }
                let woken = self.wake_futex(key(address), value, ANY);
                // The register of the time-out has the number of waiters to move.
                let moved = self.move_waits(key(address), key(second), timeout);
                self.answer(id, call, (woken + moved) as i64)
            }
            libc::FUTEX_WAKE_OP => {
                let old = match tracee.read_u32(second) {
                    Ok(old) => old,
                    Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
                };
                let (new, wakes_second) = wake_operation(third as u32, old);
                if let Err(errno) = tracee.write(second, &new.to_ne_bytes()) {
                    return self.answer(id, call, -i64::from(errno as i32));
                }
                let mut woken = self.wake_futex(key(address), value, ANY);
                if wakes_second {
                    woken += self.wake_futex(key(second), timeout, ANY);
                }
                self.answer(id, call, woken as i64)
            }
            libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => self.lock_with_inheritance(id, call, key(address), false),
            libc::FUTEX_TRYLOCK_PI => self.lock_with_inheritance(id, call, key(address), true),
            libc::FUTEX_UNLOCK_PI => self.unlock_with_inheritance(id, call, key(address)),
            // Operations for condition variables with priority inheritance, which no C library uses any more.
            _ => self.answer(id, call, -i64::from(libc::ENOSYS)),
        }
    }

    /// Waits for a wake of a word, if it has the value that the program expects.
    fn wait_for_futex(&mut self, id: ThreadId, call: Call, futex_key: FutexKey) -> Result<(), WorldError> {
        let [address, operation, value, timeout, _, third] = call.arguments();
        let operation = operation as i32;
        let is_plain =
            operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) == libc::FUTEX_WAIT;
        let tracee = self.tracee(id)?;
        match tracee.read_u32(address) {
            Ok(now) if now == value as u32 => {}
            Ok(_) => return self.answer(id, call, -i64::from(libc::EAGAIN)),
            Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
        }
        let is_real = operation & libc::FUTEX_CLOCK_REALTIME != 0;
        let clock = if is_real { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
        let until_ns = match timeout {
            0 => None,
            at => match tracee.read_timespec(at) {
                Ok(ns) if is_plain => Some(self.time.clock.now_ns().saturating_add(ns)),
                Ok(ns) => Some(self.time.clock.until(clock, ns)),
                Err(errno) => return self.answer(id, call, -i64::from(errno as i32)),
            },
        };
        let bits = if is_plain { ANY } else { third as u32 };
        self.wait(id, call, Wait::new(WaitFor::Futex(futex_key, bits), until_ns))
    }

    fn wake_and_answer(
        &mut self,
        id: ThreadId,
        call: Call,
        futex_key: FutexKey,
        most: u64,
        bits: u32,
    ) -> Result<(), WorldError> {
        let woken = self.wake_futex(futex_key, most, bits);
        self.answer(id, call, woken as i64)
    }

    /// Wakes at most `most` of the threads that wait for a word, the oldest first; returns how many it woke.
    pub(crate) fn wake_futex(&mut self, futex_key: FutexKey, most: u64, bits: u32) -> u64 {
        let mut woken = 0;
        for thread in self.threads.threads.values_mut() {
            if woken >= most {
                break;
            }
            if let Activity::Waiting(call, Wait { on: WaitFor::Futex(waited, wanted), .. }) = &thread.activity
                && *waited == futex_key
                && wanted & bits != 0
            {
                thread.activity = Activity::Woken(*call, Woken::Ready);
                thread.polls.idle_polls = 0;
                woken += 1;
            }
        }
        woken
    }

    /// Wakes all threads that wait for words of shared memory, because a process that may have held them has
    /// ended.
    pub(crate) fn wake_shared_futexes(&mut self) {
        for thread in self.threads.threads.values_mut() {
            if let Activity::Waiting(call, Wait { on: WaitFor::Futex(FutexKey::Shared { .. }, _), .. }) =
                &thread.activity
            {
                thread.activity = Activity::Woken(*call, Woken::Ready);
            }
        }
    }

    fn move_waits(&mut self, from: FutexKey, to: FutexKey, most: u64) -> u64 {
        let mut moved = 0;
        for thread in self.threads.threads.values_mut() {
            if moved < most
                && let Activity::Waiting(_, Wait { on: WaitFor::Futex(waited, _), .. }) = &mut thread.activity
                && *waited == from
            {
                *waited = to;
                moved += 1;
            }
        }
        moved
    }
}

/// Returns the command of a call, without its flags.
fn command_of(call: &Call) -> i32 {
    let [_, operation, ..] = call.arguments();
    operation as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

/// Returns the value that FUTEX_WAKE_OP writes, and whether it also wakes the waiters of the second word.
fn wake_operation(encoded: u32, old: u32) -> (u32, bool) {
    let signed = |bits: u32| ((bits << 20) as i32) >> 20;
    let (argument, compared) = (signed(encoded >> 12 & 0xfff), signed(encoded & 0xfff));
    let operation = encoded >> 28;
    let argument = if operation & 8 != 0 { 1_i32.wrapping_shl(argument as u32) } else { argument } as u32;
    let new = match operation & 7 {
        0 => argument,
        1 => old.wrapping_add(argument),
        2 => old | argument,
        3 => old & !argument,
        _ => old ^ argument,
    };
    let old = old as i32;
    let is_so = match encoded >> 24 & 15 {
        0 => old == compared,
        1 => old != compared,
        2 => old < compared,
        3 => old <= compared,
        4 => old > compared,
        _ => old >= compared,
    };
    (new, is_so)
}

#[cfg(test)]
mod tests {
    use super::wake_operation;

    #[test]
    fn a_wake_operation_writes_and_compares() {
        // The operation of condition variables in older C libraries: set to 0, and wake if the old value was
        // more than 1.
        let encoded = 4 << 24 | 1;
        assert_eq!(wake_operation(encoded, 2), (0, true));
        assert_eq!(wake_operation(encoded, 1), (0, false));
        let add_minus_one = 1 << 28 | 0xfff << 12;
        assert_eq!(wake_operation(add_minus_one, 0), (u32::MAX, true));
    }
}
