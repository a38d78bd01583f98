//! What was found is written by a thread of its own, because finding symbols takes long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::check::{Checker, Effect, holding};
use pumice_device::outside;
use pumice_device::outside::cancellation::Uncancelled;
use pumice_device::outside::lineage::PerProcess;
use pumice_device::settings::Log;

use crate::ground::log::{logs, print_always};

use super::outputs::Outputs;
use super::place::place_of;
use super::state::{self, checker, is_on};
use super::{asleep, killed};

/// How often the thread looks for something new.
const PERIOD: Duration = Duration::from_millis(25);
/// Turns of the thread between two looks at completions that wait: a tenth of a second.
const TURNS_OF_LOOK: u64 = 4;
/// How long an exit waits for the writer.
const PATIENCE: Duration = Duration::from_secs(5);

static OUTPUTS: PerProcess<Mutex<Outputs>> = PerProcess::new(|_| Mutex::new(Outputs::new()));

/// What is written, which one thread has at a time; taken before the checker's lock.
pub(super) fn outputs() -> &'static Mutex<Outputs> {
    &OUTPUTS
}

/// The same, locked.
fn lock() -> MutexGuard<'static, Outputs> {
    OUTPUTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread of this process, if it does not run. The caller has signals blocked.
pub(super) fn start() {
    let mut outputs = lock();
    outputs.open();
    if !outputs.begins_thread() {
        return;
    }
    let writes = || {
        for turn in 1_u64.. {
            if !is_on() {
                return;
            }
            if turn % TURNS_OF_LOOK == 0 {
                look_at_sleepers();
            }
            if killed::pending().is_some() {
                end_by_signal();
                return killed::is_written();
            }
            write_news(&mut lock());
            outside::sleep(PERIOD);
        }
    };
    // Without a thread everything is written at the end.
    killed::has_writer(outside::thread::start("pumice-check", None, writes).is_ok());
}

/// Tells of threads that sleep beside completions that wait.
fn look_at_sleepers() {
    let waiting = holding(|| state::lock().look_at_waiting());
    if waiting.is_empty() {
        return;
    }
    let descriptors: Vec<i32> = waiting.iter().map(|(_, descriptor)| *descriptor).collect();
    let awaited = asleep::awaited(&descriptors);
    for (handle, _) in waiting.iter().filter(|(_, descriptor)| awaited.contains(descriptor)) {
        holding(|| state::lock().sleeps_in_poll(*handle));
    }
}

/// Writes what is new, in the calling thread.
pub(super) fn write_now() {
    write_news(&mut lock());
}

fn write_news(outputs: &mut Outputs) {
    let _whole = Uncancelled::begin();
    let ((news, counts, left_out), effects) = holding(|| {
        let mut checker = checker().lock().unwrap_or_else(PoisonError::into_inner);
        let effects = checker.settle(false);
        (take(&mut checker), effects)
    });
    outputs.add(news, &counts, left_out);
    tell_effects(&effects);
}

/// Failures whose cause is told: they follow it, as the log has them.
fn tell_effects(effects: &[Effect]) {
    if logs(Log::Error) {
        // An overrun was told when it happened.
        for Effect { sentence, place, .. } in effects.iter().filter(|effect| !effect.is_told) {
            print_always(sentence);
            place_of(place.addresses()).iter().for_each(|frame| print_always(frame));
        }
    }
}

fn take(checker: &mut Checker) -> (Vec<pumice_device::check::Recorded>, Vec<u64>, u64) {
    let findings = checker.findings();
    let news = findings.news();
    let counts = findings.all().iter().map(|one| one.count).collect();
    (news, counts, findings.left_out())
}

/// A signal ends the process: everything is written.
fn end_by_signal() {
    holding(|| state::lock().is_ended_by_signal());
    end(false);
}

/// The process ends without exit(3), in a thread that may have any lock: everything is written, as by a
/// signal.
pub(super) fn end_at_once() {
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        // This thread has it, or another one has it for a moment.
        let Ok(mut checker) = checker().try_lock() else {
            outside::sleep(Duration::from_millis(1));
            continue;
        };
        holding(|| checker.is_ended_by_signal());
        drop(checker);
        return end(false);
    }
}

/// The process ends: everything is written. Waits only so long for locks, because programs also exit from
/// signal handlers.
pub(super) fn end(is_well: bool) {
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        if let Ok(mut outputs) = OUTPUTS.try_lock() {
            let Ok(mut checker) = checker().try_lock() else {
                drop(outputs);
                outside::sleep(Duration::from_millis(1));
                continue;
            };
            let ((news, counts, left_out), effects) = holding(|| {
                if outputs.is_open() {
                    checker.ends(is_well);
                }
                let effects = checker.settle(false);
                (take(&mut checker), effects)
            });
            drop(checker);
            outputs.add(news, &counts, left_out);
            tell_effects(&effects);
            return outputs.end();
        }
        outside::sleep(Duration::from_millis(1));
    }
}
