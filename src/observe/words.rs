//! Formats names and numbers for people, and shows the progress of work that takes longer than two seconds.
//!
//! Formats names and numbers for people. Names come from other processes: characters that could move the
//! cursor of a terminal, or hide text, are replaced.

use std::cell::Cell;
use std::io::{self, IsTerminal as _, Read};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pumice_device::inspect::CopyView;
use pumice_device::platform::error::printable;

/// Replaces the characters that would control a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_harmless(c) { c } else { '?' }).collect()
}

fn is_harmless(c: char) -> bool {
    // Marks of direction and characters without width would make the text look different from what it is.
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        && !matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Returns how long messages are copied: the way, the reason, and what was measured.
pub(crate) fn copied(copy: &CopyView) -> String {
    let rates = [("cached", copy.cached_bytes_per_s), ("streaming", copy.streaming_bytes_per_s)];
    let rates = rates.into_iter().filter_map(|(way, rate)| Some((way, rate?)));
    let rates: String = rates.map(|(way, rate)| format!(", {way} {:.1} GB/s", rate as f64 / 1e9)).collect();
    format!("{}: {}{rates}", plain(&copy.way), plain(&copy.reason))
}

/// Returns the name of a process, if it is in this PID namespace.
pub(crate) fn program(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(plain(name.trim_end()))
}

/// Formats a number in at most five characters, with a decimal prefix: 0, 0.4, 17, 1.2k, 350k, 2.1M.
pub(crate) fn quantity(value: f64) -> String {
    if !value.is_finite() || value <= 0.0 {
        return "0".to_owned();
    }
    let mut scaled = value;
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P", "E"] {
        if scaled < 999.5 {
            break;
        }
        scaled /= 1000.0;
        prefix = next;
    }
    if scaled >= 9.95 || (prefix.is_empty() && scaled.fract() == 0.0) {
        format!("{scaled:.0}{prefix}")
    } else if scaled < 0.05 {
        "<0.1".to_owned()
    } else {
        format!("{scaled:.1}{prefix}")
    }
}

/// Formats a round trip time with its unit: "21us", "1.5ms".
pub(crate) fn round_trip(ns: u64) -> String {
    match ns {
        0..1000 => format!("{ns}ns"),
        1000..1_000_000 => format!("{}us", ns / 1000),
        1_000_000..1_000_000_000 => format!("{:.1}ms", ns as f64 / 1e6),
        _ => format!("{:.1}s", ns as f64 / 1e9),
    }
}

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
    fn numbers_take_five_characters() {
        let shown = [0.0, 0.01, 0.4, 3.0, 17.0, 999.0, 999.9, 1234.0, 9990.0, 350_000.0, 2.1e6, 1e21];
        let expected = ["0", "<0.1", "0.4", "3", "17", "999", "1.0k", "1.2k", "10k", "350k", "2.1M", "1000E"];
        assert_eq!(shown.map(quantity), expected);
        assert_eq!([f64::NAN, -1.0, f64::INFINITY].map(quantity), ["0", "0", "0"]);
    }

    #[test]
    fn names_do_not_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\r\u{7}\u{9b}c\u{202e}d\u{200b}é"), "a?[2Jb???c?d?é");
    }

    #[test]
    fn copies_have_a_way_a_reason_and_rates() {
        let mut copy = CopyView {
            way: "cached".to_owned(),
            reason: "nothing\u{1b} yet".to_owned(),
            cached_bytes_per_s: None,
            streaming_bytes_per_s: None,
        };
        assert_eq!(copied(&copy), "cached: nothing? yet");
        (copy.cached_bytes_per_s, copy.streaming_bytes_per_s) = (Some(2_549_000_000), Some(17_000_000_000));
        assert_eq!(copied(&copy), "cached: nothing? yet, cached 2.5 GB/s, streaming 17.0 GB/s");
    }

    #[test]
    fn round_trips_have_their_unit() {
        assert_eq!([7, 21_900, 1_500_000, 2_000_000_000].map(round_trip), ["7ns", "21us", "1.5ms", "2.0s"]);
    }

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
