//! Runs one seed of a search in a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pumice_device::outside::output_file::{create_private_folder, write_private};
use pumice_device::sharing::runtime_folder;
use pumice_world::Departure;

use super::super::ci_engines;
use super::super::options::SearchWorldOptions;
use super::super::outcome::RunOutcome;
use crate::outcome::CommandError;
use crate::run::own_program;
use crate::sweep::child::{ProcessGroup, WaitOutcome};

/// The way in which the order of a run is decided.
#[derive(Debug, Clone)]
pub(super) enum ScheduleOrder {
    /// The seed draws the order, and also how wild it is.
    Drawn,
    /// The run departs from the plain order here, and nowhere else.
    Listed(BTreeMap<u64, Departure>),
    /// The run is in the plain order, and does not shuffle what the specification leaves open.
    Unshuffled,
}

/// The order of a seed.
struct ScheduleProfile {
    /// Number of calls in a hundred at which another thread continues.
    switch: u8,
    /// Threads have priorities, and that of the running one falls at these calls.
    priorities: bool,
    /// A thread rests at one of this many calls; 0: never.
    stall: u32,
    longest_us: u64,
    /// A thread rests between two instructions behind one of this many calls; 0: never.
    preempt: u32,
}

const fn profile(switch: u8, stall: u32, longest_us: u64, preempt: u32) -> ScheduleProfile {
    ScheduleProfile { switch, priorities: false, stall, longest_us, preempt }
}

const fn with_priorities(switch: u8, stall: u32, longest_us: u64, preempt: u32) -> ScheduleProfile {
    ScheduleProfile { switch, priorities: true, stall, longest_us, preempt }
}

/// How wild the orders of seeds are, one after the other. Rests find more failures than switches do.
const SCHEDULE_PROFILES: [ScheduleProfile; 10] = [
    profile(25, 0, 100, 0),
    profile(10, 100, 100_000, 0),
    profile(5, 30, 10_000, 8),
    profile(25, 300, 100_000, 4),
    with_priorities(5, 0, 100_000, 4),
    profile(60, 100, 1_000, 0),
    profile(2, 30, 1_000, 3),
    profile(10, 1_000, 100_000, 8),
    with_priorities(1, 1_000, 100_000, 0),
    profile(40, 30, 1_000, 10),
];

/// Number of profiles.
pub(super) const PROFILES: usize = SCHEDULE_PROFILES.len();

/// Returns the index of the profile of a seed. Two seeds in a row have the same, and one of them shuffles.
pub(super) const fn profile_of(seed: u64) -> usize {
    (seed / 2 % PROFILES as u64) as usize
}

/// Starts runs.
pub(super) struct SeedRunner<'a> {
    options: &'a SearchWorldOptions,
    own: PathBuf,
    /// Folder with the files of runs, which is removed with the search.
    folder: PathBuf,
    made: AtomicU64,
    /// Time of the world after which runs end, in s.
    longest_s: AtomicU64,
    interrupted: Arc<AtomicBool>,
}

impl<'a> SeedRunner<'a> {
    pub(super) fn new(options: &'a SearchWorldOptions) -> Result<SeedRunner<'a>, CommandError> {
        let own = own_program().map_err(CommandError::Failed)?;
        let runtime = runtime_folder().map_err(|error| CommandError::Failed(error.to_string()))?;
        let folder = runtime.join(format!("world-{}", std::process::id()));
        create_private_folder(&folder)
            .map_err(|error| CommandError::Failed(format!("{} cannot be made: {error}", folder.display())))?;
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // Without the handler, ^C ends the search without its report.
            let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
        }
        Ok(SeedRunner {
            options,
            own,
            folder,
            made: AtomicU64::new(0),
            longest_s: AtomicU64::new(u64::MAX),
            interrupted,
        })
    }

    /// Ends all further runs after this time of the world, in s.
    pub(super) fn limit(&self, longest_s: u64) {
        self.longest_s.store(longest_s, Ordering::Relaxed);
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns the folder for recordings, which is created if it does not exist.
    ///
    /// # Errors
    /// It cannot be created.
    pub(super) fn keep(&self) -> Result<&Path, CommandError> {
        let keep = &self.options.keep;
        std::fs::create_dir_all(keep)
            .map_err(|error| CommandError::Failed(format!("{} cannot be made: {error}", keep.display())))?;
        Ok(keep)
    }

    /// Reports whether the runs of a seed shuffle what the specification leaves open: every second one does.
    pub(super) fn shuffles(&self, seed: u64) -> bool {
        seed % 2 == 1 && self.options.run.shuffle.is_none()
    }

    /// Runs the program with a seed, and records that if requested. Returns `None` if the search was
    /// interrupted.
    ///
    /// # Errors
    /// The run cannot be started.
    pub(super) fn run(
        &self,
        seed: u64,
        order: &ScheduleOrder,
        save: Option<&Path>,
    ) -> Result<Option<RunOutcome>, CommandError> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let file = |kind: &str| self.folder.join(format!("{number}-{kind}"));
        let (outcome, output, listed) = (file("outcome"), file("output"), file("departures"));
        let mut command = Command::new(&self.own);
        command.args(["world", "--quiet", "--seed"]).arg(seed.to_string());
        // A seed must give the same run on each machine that shares the search.
        command.env_remove(ci_engines::INDEX).env_remove(ci_engines::COUNT);
        command.arg("--outcome").arg(&outcome).arg("--output").arg(&output);
        // Every second seed also shuffles what the specification leaves open.
        let set = self.options.run.variables().map_err(CommandError::Failed)?;
        if self.shuffles(seed) && !matches!(order, ScheduleOrder::Unshuffled) {
            command.env(pumice_device::settings::SHUFFLE, seed.to_string());
        }
        let longest_s = self.longest_s.load(Ordering::Relaxed);
        if longest_s < u64::MAX {
            command.arg("--longest").arg(longest_s.to_string());
        }
        self.add_order(&mut command, seed, order, &listed)?;
        for folder in &self.options.private {
            command.arg("--private").arg(folder);
        }
        if let Some(save) = save {
            command.arg("--save").arg(save);
        }
        command.envs(set.into_iter().filter(|(name, _)| *name != pumice_device::settings::SEED));
        for (name, given) in [
            ("--no-preload", self.options.run.no_preload),
            ("--sysfs", self.options.run.sysfs),
            ("--rsocket", self.options.run.rsocket),
        ] {
            if given {
                command.arg(name);
            }
        }
        command.args(self.options.run.check.exit_options());
        command.arg("--").args(&self.options.run.program);
        let null = Path::new("/dev/null");
        let mut group = ProcessGroup::start(&mut command, null, &file("said"))
            .map_err(|error| CommandError::Failed(format!("a run cannot be started: {error}")))?;
        let waited = group
            .wait(Duration::from_secs(self.options.timeout), &self.interrupted)
            .map_err(|error| CommandError::Failed(format!("a run is lost: {error}")))?;
        let mut found = match waited {
            WaitOutcome::Interrupted => None,
            WaitOutcome::TimedOut => Some(timed_out(self.options.timeout)),
            WaitOutcome::Ended(_) => Some(RunOutcome::read(&outcome).ok_or_else(|| {
                let said = std::fs::read_to_string(file("said")).unwrap_or_default();
                CommandError::Failed(format!("a run did not begin: {}", said.trim()))
            })?),
        };
        drop(group);
        if let Some(found) = found.as_mut().filter(|found| found.is_failure) {
            let last = std::fs::read(&output).ok().map(|bytes| last_line(&bytes)).unwrap_or_default();
            if !last.is_empty() {
                found.end = format!("{}: {last}", found.end);
            }
        }
        for kind in ["outcome", "output", "departures", "said"] {
            let _ = std::fs::remove_file(file(kind));
        }
        Ok(found)
    }

    /// Adds the arguments that choose the order of a run. Departures that are listed are written to the file
    /// `listed`.
    fn add_order(
        &self,
        command: &mut Command,
        seed: u64,
        order: &ScheduleOrder,
        listed: &Path,
    ) -> Result<(), CommandError> {
        match order {
            ScheduleOrder::Drawn => {
                let profile = &SCHEDULE_PROFILES[profile_of(seed)];
                command.args(["--switch".to_owned(), profile.switch.to_string()]);
                command.args(["--stall".to_owned(), profile.stall.to_string()]);
                command.args(["--longest-stall".to_owned(), profile.longest_us.to_string()]);
                command.args(["--preempt".to_owned(), profile.preempt.to_string()]);
                if profile.priorities {
                    command.arg("--priorities");
                }
            }
            ScheduleOrder::Listed(departures) => self.list(command, departures, listed)?,
            ScheduleOrder::Unshuffled => self.list(command, &BTreeMap::new(), listed)?,
        }
        Ok(())
    }

    fn list(
        &self,
        command: &mut Command,
        departures: &BTreeMap<u64, Departure>,
        listed: &Path,
    ) -> Result<(), CommandError> {
        let text = serde_json::to_vec(departures).map_err(|error| CommandError::Failed(error.to_string()))?;
        write_private(listed, &text).map_err(|error| self.cannot_write(listed, &error))?;
        command.arg("--departures").arg(listed);
        Ok(())
    }

    fn cannot_write(&self, file: &Path, error: &std::io::Error) -> CommandError {
        CommandError::Failed(format!("{} cannot be written: {error}: make room", file.display()))
    }
}

impl Drop for SeedRunner<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn timed_out(seconds: u64) -> RunOutcome {
    RunOutcome {
        end: format!("no end within {seconds} s of real time"),
        is_failure: true,
        is_certified: false,
        said: String::new(),
        digest: 0,
        virtual_ns: 0,
        departures: BTreeMap::new(),
        locations: BTreeMap::new(),
        met: BTreeSet::new(),
        events: 0,
    }
}

/// Returns the last line that the program printed, without numbers: runs that failed alike have the same
/// line.
fn last_line(output: &[u8]) -> String {
    const MAX_CHARACTERS: usize = 160;
    let text = String::from_utf8_lossy(output);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut line = String::new();
    for c in last.chars().take(MAX_CHARACTERS) {
        if !c.is_ascii_digit() {
            line.push(if c.is_control() { ' ' } else { c });
        } else if !line.ends_with('#') {
            line.push('#');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::last_line;

    #[test]
    fn the_last_line_has_no_numbers() {
        assert_eq!(last_line(b"a\nerror 123 at 0x7f\n\n"), "error # at #x#f");
        assert_eq!(last_line(b""), "");
    }
}
