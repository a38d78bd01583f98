//! Writing of findings by a separate thread, because finding symbols takes long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_device::check::{Checker, ExplainedFailure, holding};
use pumice_device::outside;
use pumice_device::outside::cancellation::Uncancelled;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::settings::LogLevel;

use crate::log::{logs, print_always};

use super::outputs::Outputs;
use super::{killed, sleeping_threads};
use crate::call_sites::call_site::call_site_lines;
use crate::call_sites::state::{self, checker, is_on};

/// Interval at which the thread looks for news.
const PERIOD: Duration = Duration::from_millis(25);
/// Turns of the thread between two checks of waiting completions: a tenth of a second.
const TURNS_PER_CHECK: u64 = 4;
/// Longest time that an exit waits for the writer.
const PATIENCE: Duration = Duration::from_secs(5);

static OUTPUTS: PerProcess<Mutex<Outputs>> = PerProcess::new(|_| Mutex::new(Outputs::new()));

/// Returns the outputs, which one thread uses at a time; locked before the checker.
pub(super) fn outputs() -> &'static Mutex<Outputs> {
    &OUTPUTS
}

/// Locks the outputs and returns them.
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
            if turn % TURNS_PER_CHECK == 0 {
                report_sleepers();
            }
            if let Some(signal) = killed::pending() {
                lock().is_ended_by(killed::name_of(signal));
                end_by_signal();
                return killed::is_written();
            }
            write_news(&mut lock());
            outside::sleep(PERIOD);
        }
    };
    // Without a thread all findings are written at the end.
    killed::has_writer(outside::thread::start("pumice-check", None, writes).is_ok());
}

/// Reports threads that sleep although completions wait.
fn report_sleepers() {
    let waiting = holding(|| state::lock().collect_waiting());
    if waiting.is_empty() {
        return;
    }
    let descriptors: Vec<i32> = waiting.iter().map(|(_, descriptor)| *descriptor).collect();
    let awaited = sleeping_threads::awaited(&descriptors);
    for (handle, _) in waiting.iter().filter(|(_, descriptor)| awaited.contains(descriptor)) {
        holding(|| state::lock().sleeps_in_poll(*handle));
    }
}

/// Writes new findings, in the calling thread.
pub(super) fn write_now() {
    write_news(&mut lock());
}

fn write_news(outputs: &mut Outputs) {
    let _uncancelled = Uncancelled::begin();
    let ((news, counts, left_out), effects) = holding(|| {
        let mut checker = checker().lock().unwrap_or_else(PoisonError::into_inner);
        let effects = checker.settle(false);
        (take(&mut checker), effects)
    });
    outputs.add(news, &counts, left_out);
    report_effects(&effects);
}

/// Prints failures whose cause was reported: they follow it, in the form of the log.
fn report_effects(effects: &[ExplainedFailure]) {
    if logs(LogLevel::Error) {
        // An overrun was reported when it happened.
        for ExplainedFailure { sentence, call_site, .. } in
            effects.iter().filter(|effect| !effect.is_reported)
        {
            print_always(sentence);
            call_site_lines(call_site.addresses()).iter().for_each(|frame| print_always(frame));
        }
    }
}

fn take(checker: &mut Checker) -> (Vec<pumice_device::check::RecordedFinding>, Vec<u64>, u64) {
    let findings = checker.findings();
    let news = findings.news();
    let counts = findings.all().iter().map(|one| one.count).collect();
    (news, counts, findings.left_out())
}

/// Writes all findings, because a signal ends the process.
fn end_by_signal() {
    holding(|| state::lock().is_ended_by_signal());
    end(false);
}

/// Writes all findings as at a signal, because the process ends without exit(3), in a thread that may hold
/// any lock.
pub(super) fn end_at_once() {
    let begun = outside::now();
    while outside::since(begun) < PATIENCE {
        // This thread holds it, or another one holds it for a moment.
        let Ok(mut checker) = checker().try_lock() else {
            outside::sleep(Duration::from_millis(1));
            continue;
        };
        holding(|| checker.is_ended_by_signal());
        drop(checker);
        return end(false);
    }
}

/// Writes all findings at the end of the process. Waits for locks only for a limited time, because programs
/// also exit from signal handlers.
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
            report_effects(&effects);
            return outputs.end();
        }
        outside::sleep(Duration::from_millis(1));
    }
}
