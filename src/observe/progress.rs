//! Bars for what takes longer than two seconds: on standard error, and only if that is a terminal.

use std::cell::Cell;
use std::io::{self, IsTerminal as _, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pumice_device::ground::printable::printable;

/// Work that is done sooner shows no bar.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often a sentence about a wait is drawn anew.
const TICK: Duration = Duration::from_millis(250);

/// A bar that appears when the work has taken two seconds, and goes away when it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    is_hidden: Cell<bool>,
}

impl Progress {
    /// A bar of so many `things`. `template` is indicatif's.
    fn new(length: u64, template: &str) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar, begun: Instant::now(), is_hidden: Cell::new(true) }
    }

    /// A bar that counts `things`, a plural.
    pub(crate) fn of(length: u64, things: &str) -> Progress {
        Progress::new(length, &format!("{{bar:30}} {{pos}}/{{len}} {things}, {{eta}} left"))
    }

    /// A bar that counts bytes of this file.
    fn of_bytes(length: u64, file: &str) -> Progress {
        let progress = Progress::new(length, "{bar:30} {bytes}/{total_bytes} of {msg}, {eta} left");
        progress.bar.set_message(printable(file).into_owned());
        progress
    }

    /// A sentence, and how long it has been true, while something is waited for that shows no progress.
    pub(crate) fn waiting(sentence: String) -> Progress {
        let progress = Progress::new(0, "{spinner} {msg}, since {elapsed}");
        progress.bar.set_message(sentence);
        if io::stderr().is_terminal() {
            progress.bar.set_draw_target(ProgressDrawTarget::stderr());
            progress.bar.enable_steady_tick(TICK);
        }
        progress
    }

    /// So much is done in all.
    pub(crate) fn is_at(&self, done: u64) {
        self.bar.set_position(done);
        if self.is_hidden.get() && self.begun.elapsed() >= PATIENCE {
            self.is_hidden.set(false);
            if io::stderr().is_terminal() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                self.bar.tick();
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Reads a source, and shows how much of it was read.
pub(crate) struct Watched<R> {
    source: R,
    progress: Progress,
    done: u64,
}

impl<R: Read> Watched<R> {
    /// A source of so many bytes, with this name.
    pub(crate) fn new(source: R, length: u64, name: &str) -> Watched<R> {
        Watched { source, progress: Progress::of_bytes(length, name), done: 0 }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        self.done = self.done.saturating_add(count as u64);
        self.progress.is_at(self.done);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_source_is_read_as_it_is() {
        let mut read = String::new();
        Watched::new(&b"stone"[..], 5, "a text").read_to_string(&mut read).expect("memory");
        assert_eq!(read, "stone");
    }

    #[test]
    fn a_bar_of_short_work_stays_hidden() {
        let progress = Progress::of(10, "things");
        progress.is_at(7);
        assert!(progress.bar.is_hidden() && progress.is_hidden.get());
        assert_eq!(progress.bar.position(), 7);
    }
}
