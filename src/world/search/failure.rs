//! Groups of runs that ended alike, and source lines of locations in programs.

use std::collections::BTreeMap;
use std::path::Path;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use pumice_world::CodeLocation;

use super::super::outcome::RunOutcome;
use super::super::result::{MAX_LISTED_SEEDS, SearchFailure};

/// Maximum length of a program that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Returns the source line of a location, or else the file and the address in it.
pub(super) fn line_of(location: &CodeLocation) -> String {
    let name = location.file.file_name().unwrap_or(location.file.as_os_str()).to_string_lossy();
    found_line(&location.file, location.offset).unwrap_or_else(|| format!("{name}+{:#x}", location.offset))
}

fn found_line(path: &Path, offset: u64) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let mut segments = file.segments();
    let address = segments.find_map(|segment| {
        let (begin, length) = segment.file_range();
        let within = offset.checked_sub(begin).filter(|within| *within < length)?;
        segment.address().checked_add(within)
    })?;
    let section = |name: &str| file.section_by_name(name)?.data().ok();
    let dwarf = Dwarf::load(|id| -> Result<_, addr2line::gimli::Error> {
        Ok(EndianSlice::new(section(id.name()).unwrap_or_default(), LittleEndian))
    });
    let context = Context::from_dwarf(dwarf.ok()?).ok()?;
    let location = context.find_location(address).ok()??;
    let source = Path::new(location.file?).file_name()?.to_string_lossy().into_owned();
    Some(format!("{source}:{}", location.line?))
}

/// The groups of failed runs, by how they ended.
#[derive(Debug, Default)]
pub(super) struct FailureGroups {
    pub(super) groups: BTreeMap<String, RepeatedFailure>,
    /// Number of runs that failed.
    pub(super) failed: u64,
}

/// A group of runs that ended alike.
#[derive(Debug)]
pub(super) struct RepeatedFailure {
    /// Number of runs.
    count: u64,
    /// Seeds of the runs; the first ones found if there are very many.
    seeds: Vec<u64>,
    /// The smallest of these seeds, whose run is described below.
    pub(super) seed: u64,
    pub(super) first: RunOutcome,
}

impl FailureGroups {
    /// Adds a run that failed. Of all runs that ended alike, only the outcome of the one with the smallest
    /// seed is stored.
    pub(super) fn add(&mut self, seed: u64, outcome: RunOutcome) {
        self.failed += 1;
        match self.groups.get_mut(&outcome.end) {
            None => {
                let group = RepeatedFailure { count: 1, seeds: vec![seed], seed, first: outcome };
                self.groups.insert(group.first.end.clone(), group);
            }
            Some(group) => {
                group.count += 1;
                if seed < group.seed {
                    (group.seed, group.first) = (seed, outcome);
                }
                // The smallest seed is always among them.
                if group.seeds.len() >= MAX_LISTED_SEEDS {
                    group.seeds.sort_unstable();
                    group.seeds.pop();
                }
                group.seeds.push(seed);
            }
        }
    }
}

impl RepeatedFailure {
    /// Returns the failure for the result, before it has been run again.
    pub(super) fn failure(&self) -> SearchFailure {
        let mut seeds = self.seeds.clone();
        seeds.sort_unstable();
        SearchFailure {
            end: self.first.end.clone(),
            count: self.count,
            seeds,
            run_again: 0,
            the_same: 0,
            doubts: Some(self.first.said.clone()).filter(|_| !self.first.is_certified),
            needs: Vec::new(),
            plain_end: None,
            recording: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_location_without_debug_information_is_an_address() {
        let location = |file: &str| CodeLocation { file: file.into(), offset: 0x1234 };
        assert_eq!(line_of(&location("/no/such/prog")), "prog+0x1234");
        assert_eq!(line_of(&location("/proc/self/status")), "status+0x1234");
    }

    #[test]
    fn the_least_seed_stands_for_all_that_ended_alike() {
        let mut groups = FailureGroups::default();
        for seed in (1..=MAX_LISTED_SEEDS as u64 + 10).rev() {
            let outcome = RunOutcome {
                end: if seed == 7 { "signal 6" } else { "exit code 1" }.to_owned(),
                is_failure: true,
                is_certified: seed != 1,
                said: format!("of {seed}"),
                digest: seed,
                virtual_ns: 0,
                departures: BTreeMap::new(),
                locations: BTreeMap::new(),
                met: BTreeSet::new(),
                events: 0,
            };
            groups.add(seed, outcome);
        }
        let group = &groups.groups["exit code 1"];
        let failure = group.failure();
        assert_eq!((group.seed, group.first.digest, failure.count), (1, 1, MAX_LISTED_SEEDS as u64 + 9));
        assert_eq!((failure.seeds.len(), failure.seeds[0]), (MAX_LISTED_SEEDS, 1));
        assert_eq!(failure.doubts.as_deref(), Some("of 1"));
        assert_eq!((groups.groups["signal 6"].seed, groups.failed), (7, MAX_LISTED_SEEDS as u64 + 10));
    }
}
