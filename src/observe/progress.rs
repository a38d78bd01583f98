//! Progress bars for work that takes longer than two seconds, on standard error if that is a terminal.

use std::cell::Cell;
use std::io::{self, IsTerminal as _, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pumice_device::platform::error::printable;

/// Time before a bar appears.
const SHOW_AFTER: Duration = Duration::from_secs(2);

/// Interval at which a sentence about a wait is redrawn.
const TICK: Duration = Duration::from_millis(250);

/// A progress bar that appears when the work has taken two seconds; dropping it removes it.
pub(crate) struct ProgressDisplay {
    bar: ProgressBar,
    started_at: Instant,
    is_hidden: Cell<bool>,
}

impl ProgressDisplay {
    /// Makes a bar of this length; `template` is a template of indicatif.
    fn new(length: u64, template: &str) -> ProgressDisplay {
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        ProgressDisplay { bar, started_at: Instant::now(), is_hidden: Cell::new(true) }
    }

    /// Makes a bar that counts the bytes of this file.
    fn of_bytes(length: u64, file: &str) -> ProgressDisplay {
        let progress = ProgressDisplay::new(length, "{bar:30} {bytes}/{total_bytes} of {msg}, {eta} left");
        progress.bar.set_message(printable(file).into_owned());
        progress
    }

    /// Shows a sentence, and how long it has been true, during a wait whose progress is unknown.
    pub(crate) fn waiting(sentence: String) -> ProgressDisplay {
        let progress = ProgressDisplay::new(0, "{spinner} {msg}, since {elapsed}");
        progress.bar.set_message(sentence);
        if io::stderr().is_terminal() {
            progress.bar.set_draw_target(ProgressDrawTarget::stderr());
            progress.bar.enable_steady_tick(TICK);
        }
        progress
    }

    /// Moves the bar to `done` of its length.
    fn set_done(&self, done: u64) {
        self.bar.set_position(done);
        if self.is_hidden.get() && self.started_at.elapsed() >= SHOW_AFTER {
            self.is_hidden.set(false);
            if io::stderr().is_terminal() {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                self.bar.tick();
            }
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A reader that shows how much of its source has been read.
pub(crate) struct ProgressReader<R> {
    source: R,
    progress: ProgressDisplay,
    done: u64,
}

impl<R: Read> ProgressReader<R> {
    /// Wraps a source of `length` bytes with this name.
    pub(crate) fn new(source: R, length: u64, name: &str) -> ProgressReader<R> {
        ProgressReader { source, progress: ProgressDisplay::of_bytes(length, name), done: 0 }
    }
}

impl<R: Read> Read for ProgressReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        self.done = self.done.saturating_add(count as u64);
        self.progress.set_done(self.done);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_source_is_read_as_it_is() {
        let mut read = String::new();
        ProgressReader::new(&b"stone"[..], 5, "a text").read_to_string(&mut read).expect("memory");
        assert_eq!(read, "stone");
    }

    #[test]
    fn a_bar_of_short_work_stays_hidden() {
        let progress = ProgressDisplay::of_bytes(10, "things");
        progress.set_done(7);
        assert!(progress.bar.is_hidden() && progress.is_hidden.get());
        assert_eq!(progress.bar.position(), 7);
    }
}
