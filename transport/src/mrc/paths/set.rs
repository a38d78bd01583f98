//! The paths of a queue pair: the choice of an entropy value for the next packet, and the path states that
//! follow from SACKs and losses.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Ev, EvProfile, SplitMix64};
use crate::mrc::constants::{
    BAD_PROBE_INTERVAL_NS, MAX_BAD_PROBE_INTERVAL_NS, MAX_PATH_EVENTS, PROBES_TO_GOOD,
};
use crate::mrc::entropy::{Entropy, Planes};

/// The state of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathState {
    /// The path is used.
    Good,
    /// The path is left out for one pass of the set.
    Skip,
    /// Packets were lost on the path: it is tested, and not used.
    AssumedBad,
    /// The controller has excluded the path.
    Denied,
}

/// A report about a path, from a packet that took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathReport {
    /// A switch has marked the packet, or trimmed it before the last hop.
    Congested,
    /// The peer asks this side to leave the path (m = 2).
    AlwaysSkip,
    /// The packet is lost, and congestion is ruled out as the cause, or a timer has expired.
    Lost,
}

/// A change of a path's state, as reported to a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathChange {
    /// The path whose state changed.
    pub ev: Ev,
    /// The new state of the path.
    pub state: PathState,
    /// Time of the change.
    pub at_ns: u64,
    /// Number of changes before this one that were not recorded, because the reader did not keep up.
    pub drop_count: u32,
}

/// A path as it is now, with counts since it came into the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathStatus {
    /// The path.
    pub ev: Ev,
    /// Its state.
    pub state: PathState,
    /// True if the path is in the active set.
    pub is_active: bool,
    /// Number of consecutive probes of a bad path that were answered.
    pub answered: u8,
    /// Number of data packets sent.
    pub sent: u64,
    /// Number of data packets that were lost, trimmed ones included.
    pub lost: u64,
    /// Number of reports of congestion: marks and trims.
    pub congested: u64,
}

#[derive(Debug, Clone)]
struct PathEntry {
    ev: Ev,
    state: PathState,
    is_active: bool,
    /// The path is skipped until this many values have been chosen.
    skip_until: u64,
    /// Number of consecutive answered probes.
    answered: u8,
    /// True if the last probe is still unanswered.
    is_probed: bool,
    /// Time of the next probe of the path.
    probe_ns: u64,
    /// Time from the last probe of the path to the next one, if that is not answered.
    probe_wait_ns: u64,
    sent: u64,
    lost: u64,
    congested: u64,
}

/// The paths of a queue pair.
#[derive(Debug)]
pub struct PathSet {
    entries: Vec<PathEntry>,
    /// Indices of the active paths, in the order of this round.
    active: Vec<u16>,
    /// Entropy values with their indices, sorted. Equal values may occur more than once.
    by_entropy: Vec<(Entropy, u16)>,
    bad: Vec<u16>,
    cursor: usize,
    chosen: u64,
    min_active: usize,
    local: Planes,
    remote: Planes,
    chance: SplitMix64,
    changes: VecDeque<PathChange>,
    /// Paths that were skipped (true), or are no longer (false).
    skips: VecDeque<(Ev, bool)>,
    drop_count: u32,
}

impl PathEntry {
    const fn new(ev: Ev) -> PathEntry {
        PathEntry {
            ev,
            state: PathState::Good,
            is_active: false,
            skip_until: 0,
            answered: 0,
            is_probed: false,
            probe_ns: 0,
            probe_wait_ns: BAD_PROBE_INTERVAL_NS,
            sent: 0,
            lost: 0,
            congested: 0,
        }
    }
}

impl PathSet {
    /// Creates the paths of a profile. The seed decides the order of their use.
    pub fn new(profile: &EvProfile, seed: u64) -> PathSet {
        let evs = profile.evs.iter().take(usize::from(u16::MAX));
        let active_count = usize::from(profile.active_count);
        let entries: Vec<PathEntry> = evs
            .enumerate()
            .map(|(index, ev)| PathEntry { is_active: index < active_count, ..PathEntry::new(*ev) })
            .collect();
        let mut by_entropy: Vec<(Entropy, u16)> =
            (0..).zip(&entries).map(|(index, entry)| (entry.ev.entropy, index)).collect();
        by_entropy.sort_unstable();
        let mut set = PathSet {
            active: (0..entries.len().min(active_count) as u16).collect(),
            entries,
            by_entropy,
            bad: Vec::new(),
            cursor: 0,
            chosen: 0,
            min_active: profile.min_active.into(),
            local: Planes::ALL,
            remote: Planes::ALL,
            chance: SplitMix64(seed),
            changes: VecDeque::new(),
            skips: VecDeque::new(),
            drop_count: 0,
        };
        set.chance.shuffle(&mut set.active);
        set
    }

    /// Returns the planes whose ports are up on both sides.
    pub fn planes(&self) -> Planes {
        self.local.and(self.remote)
    }

    /// Sets which ports of this side are up.
    pub fn set_local_planes(&mut self, planes: Planes) {
        self.local = planes;
    }

    /// Sets which ports of the peer are up.
    pub fn set_remote_planes(&mut self, planes: Planes) {
        self.remote = planes;
    }

    /// Returns the entropy value and port of the path of this index.
    pub fn ev(&self, path: u16) -> Option<Ev> {
        self.entries.get(usize::from(path)).map(|entry| entry.ev)
    }

    /// Returns the state of a path.
    pub fn state(&self, path: u16) -> Option<PathState> {
        self.entries.get(usize::from(path)).map(|entry| entry.state)
    }

    /// Reports whether a path is in the active set.
    pub fn is_active(&self, path: u16) -> bool {
        self.entries.get(usize::from(path)).is_some_and(|entry| entry.is_active)
    }

    /// Returns all paths of the profile as they are now.
    pub fn statuses(&self) -> impl Iterator<Item = PathStatus> + '_ {
        self.entries.iter().map(|entry| PathStatus {
            ev: entry.ev,
            // A path that was skipped for long enough is good again when it is chosen.
            state: match entry.state {
                PathState::Skip if entry.skip_until <= self.chosen => PathState::Good,
                state => state,
            },
            is_active: entry.is_active,
            answered: entry.answered,
            sent: entry.sent,
            lost: entry.lost,
            congested: entry.congested,
        })
    }

    /// Counts a data packet that leaves by a path.
    pub(crate) fn count_sent(&mut self, path: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(path)) {
            entry.sent += 1;
        }
    }

    /// Counts a data packet that was lost on a path.
    pub(crate) fn count_lost(&mut self, path: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(path)) {
            entry.lost += 1;
        }
    }

    /// Returns the number of paths of the profile.
    pub fn count(&self) -> u16 {
        self.entries.len() as u16
    }

    /// Returns one of the paths of an entropy value.
    pub fn find(&self, entropy: Entropy) -> Option<u16> {
        self.all_of(entropy).next()
    }

    fn all_of(&self, entropy: Entropy) -> impl Iterator<Item = u16> + use<'_> {
        let from = self.by_entropy.partition_point(|(other, _)| *other < entropy);
        let rest = self.by_entropy.get(from..).unwrap_or_default();
        rest.iter().take_while(move |(other, _)| *other == entropy).map(|(_, path)| *path)
    }

    /// Returns the next path that is skipped from now on, or no longer: the path, and whether it is skipped.
    /// The oldest of many are forgotten.
    pub fn poll_skip(&mut self) -> Option<(Ev, bool)> {
        self.skips.pop_front()
    }

    fn note_skip(&mut self, path: u16, is_skipped: bool) {
        let Some(entry) = self.entries.get(usize::from(path)) else { return };
        if self.skips.len() >= MAX_PATH_EVENTS {
            self.skips.pop_front();
        }
        self.skips.push_back((entry.ev, is_skipped));
    }

    /// Returns the next change of a path's state.
    pub fn poll_change(&mut self) -> Option<PathChange> {
        self.changes.pop_front()
    }

    fn note(&mut self, at_ns: u64, path: u16, state: PathState) {
        let Some(entry) = self.entries.get_mut(usize::from(path)) else { return };
        entry.state = state;
        if state == PathState::Skip {
            return;
        }
        if self.changes.len() >= MAX_PATH_EVENTS {
            self.drop_count = self.drop_count.saturating_add(1);
            return;
        }
        let drop_count = core::mem::take(&mut self.drop_count);
        self.changes.push_back(PathChange { ev: entry.ev, state, at_ns, drop_count });
    }

    /// Returns how well the path suits the next packet; less is better. `None` if the path cannot be used.
    fn rank(&self, path: u16, up: Planes) -> Option<u8> {
        let entry = self.entries.get(usize::from(path))?;
        if !up.has(entry.ev.plane) {
            return None;
        }
        match entry.state {
            PathState::Good => Some(0),
            PathState::Skip if entry.skip_until <= self.chosen => Some(0),
            PathState::Skip => Some(1),
            PathState::AssumedBad => Some(2),
            PathState::Denied => None,
        }
    }

    /// Reports whether a path is as good as any that [`PathSet::choose`] would find.
    pub(crate) fn is_best(&self, path: u16) -> bool {
        self.rank(path, self.planes()) == Some(0)
    }

    /// Chooses the path of a packet, and avoids `avoid` if there is another. Skipped and bad paths are chosen
    /// only if there are no others. Returns `None` if no path can be used.
    pub fn choose(&mut self, avoid: Option<u16>) -> Option<u16> {
        let up = self.planes();
        let mut best: Option<(u8, u16)> = None;
        for _ in 0..self.active.len() {
            if self.cursor >= self.active.len() {
                self.cursor = 0;
                self.chance.shuffle(&mut self.active);
            }
            let path = self.active.get(self.cursor).copied()?;
            self.cursor += 1;
            let Some(mut rank) = self.rank(path, up) else { continue };
            if avoid == Some(path) {
                rank += 3;
            }
            if best.is_none_or(|(other, _)| rank < other) {
                best = Some((rank, path));
            }
            if rank == 0 {
                break;
            }
        }
        let (_, path) = best?;
        self.chosen += 1;
        if let Some(entry) = self.entries.get_mut(usize::from(path))
            && entry.state == PathState::Skip
            && entry.skip_until <= self.chosen
        {
            entry.state = PathState::Good;
            self.note_skip(path, false);
        }
        Some(path)
    }

    /// Reports whether [`PathSet::choose`] would find a path.
    pub fn has_any(&self) -> bool {
        let up = self.planes();
        self.active.iter().any(|path| self.rank(*path, up).is_some())
    }

    /// Applies a report to all paths of an entropy value.
    pub fn report(&mut self, now_ns: u64, entropy: Entropy, report: PathReport) {
        // Few values occur twice.
        for copy in 0.. {
            let path = self.all_of(entropy).nth(copy);
            let Some(path) = path else { return };
            self.report_path(now_ns, path, report);
        }
    }

    /// Applies a report to one path.
    pub fn report_path(&mut self, now_ns: u64, path: u16, report: PathReport) {
        let skip_until = self.chosen + self.active.len() as u64;
        let Some(entry) = self.entries.get_mut(usize::from(path)) else { return };
        entry.congested += u64::from(report == PathReport::Congested);
        match (entry.state, report) {
            (PathState::Good | PathState::Skip, PathReport::Congested) => {
                entry.skip_until = skip_until;
                if core::mem::replace(&mut entry.state, PathState::Skip) == PathState::Good {
                    self.note_skip(path, true);
                }
            }
            (PathState::Good | PathState::Skip, PathReport::Lost | PathReport::AlwaysSkip) => {
                if self.usable_count() > self.min_active.max(1) {
                    self.assume_bad(now_ns, path);
                } else {
                    self.report_path(now_ns, path, PathReport::Congested);
                }
            }
            (PathState::AssumedBad, _) => entry.answered = 0,
            (PathState::Denied, _) => {}
        }
    }

    fn usable_count(&self) -> usize {
        let is_usable = |entry: &&PathEntry| matches!(entry.state, PathState::Good | PathState::Skip);
        self.entries.iter().filter(is_usable).count()
    }

    fn assume_bad(&mut self, now_ns: u64, path: u16) {
        if let Some(entry) = self.entries.get_mut(usize::from(path)) {
            (entry.answered, entry.is_probed) = (0, false);
            entry.probe_wait_ns = BAD_PROBE_INTERVAL_NS;
            entry.probe_ns = now_ns.saturating_add(BAD_PROBE_INTERVAL_NS);
        }
        self.bad.push(path);
        self.note(now_ns, path, PathState::AssumedBad);
        self.replace(path);
    }

    /// Replaces an active path by another path of the same plane.
    fn replace(&mut self, path: u16) {
        let Some(old) = self.entries.get(usize::from(path)).filter(|entry| entry.is_active) else { return };
        let plane = old.ev.plane;
        let is_fit =
            |entry: &PathEntry| !entry.is_active && entry.state == PathState::Good && entry.ev.plane == plane;
        let Some(other) = self.entries.iter().position(is_fit) else { return };
        if let Some(place) = self.active.iter_mut().find(|active| **active == path) {
            *place = other as u16;
        }
        for (index, is_active) in [(usize::from(path), false), (other, true)] {
            if let Some(entry) = self.entries.get_mut(index) {
                entry.is_active = is_active;
            }
        }
    }

    /// Excludes the paths of a value, as the controller asks. Returns whether there is such a value.
    fn deny(&mut self, now_ns: u64, entropy: Entropy) -> bool {
        let paths: Vec<u16> = self.all_of(entropy).collect();
        for path in &paths {
            self.bad.retain(|bad| bad != path);
            if self.state(*path) != Some(PathState::Denied) {
                self.note(now_ns, *path, PathState::Denied);
                self.replace(*path);
            }
        }
        !paths.is_empty()
    }

    /// Sets the state of the paths of a value, as the controller asks. Returns false if there is no such
    /// value, or if the state is `Skip`, which a controller cannot set.
    pub fn set_state(&mut self, now_ns: u64, entropy: Entropy, state: PathState) -> bool {
        let paths: Vec<u16> = self.all_of(entropy).collect();
        match state {
            PathState::Denied => return self.deny(now_ns, entropy),
            PathState::Skip => return false,
            PathState::Good => {
                for path in &paths {
                    self.bad.retain(|bad| bad != path);
                    self.note(now_ns, *path, PathState::Good);
                }
            }
            PathState::AssumedBad => {
                for path in &paths {
                    self.bad.retain(|bad| bad != path);
                    self.assume_bad(now_ns, *path);
                }
            }
        }
        !paths.is_empty()
    }

    /// Replaces a value by another, as the controller asks; the new one is good. Returns whether the old
    /// value exists.
    pub fn replace_ev(&mut self, old: Entropy, new: Ev) -> bool {
        let paths: Vec<u16> = self.all_of(old).collect();
        for path in &paths {
            self.bad.retain(|bad| bad != path);
            if let Some(entry) = self.entries.get_mut(usize::from(*path)) {
                let is_active = entry.is_active;
                *entry = PathEntry { is_active, ..PathEntry::new(new) };
            }
        }
        self.by_entropy.retain(|(entropy, _)| *entropy != old);
        self.by_entropy.extend(paths.iter().map(|path| (new.entropy, *path)));
        self.by_entropy.sort_unstable();
        !paths.is_empty()
    }

    /// Returns the time at which a bad path is to be tested next.
    pub fn probe_deadline_ns(&self) -> Option<u64> {
        let up = self.planes();
        let entries = self.bad.iter().filter_map(|path| self.entries.get(usize::from(*path)));
        entries.filter(|entry| up.has(entry.ev.plane)).map(|entry| entry.probe_ns).min()
    }

    /// Returns a bad path that is to be tested now. If its last test was not answered, its count of answers
    /// restarts, and the wait for the next test doubles. The wait is at least two round trips, so that an
    /// answer may come before the next test.
    pub fn due_probe(&mut self, now_ns: u64, round_trip_ns: u64) -> Option<u16> {
        let up = self.planes();
        let is_due = |path: &&u16| {
            let entry = self.entries.get(usize::from(**path));
            entry.is_some_and(|entry| entry.probe_ns <= now_ns && up.has(entry.ev.plane))
        };
        let path = *self.bad.iter().find(is_due)?;
        let entry = self.entries.get_mut(usize::from(path))?;
        if core::mem::replace(&mut entry.is_probed, true) {
            entry.answered = 0;
            entry.probe_wait_ns = entry.probe_wait_ns.saturating_mul(2).min(MAX_BAD_PROBE_INTERVAL_NS);
        }
        let wait_ns = entry.probe_wait_ns.max(round_trip_ns.saturating_mul(2));
        entry.probe_ns = now_ns.saturating_add(wait_ns);
        Some(path)
    }

    /// Handles the answer to the test of a bad path; `is_marked` says whether switches marked the answer.
    pub fn probe_answered(&mut self, now_ns: u64, path: u16, is_marked: bool) {
        let skip_until = self.chosen + self.active.len() as u64;
        let Some(entry) = self.entries.get_mut(usize::from(path)) else { return };
        if entry.state != PathState::AssumedBad || !core::mem::take(&mut entry.is_probed) {
            return;
        }
        entry.answered += 1;
        entry.probe_wait_ns = BAD_PROBE_INTERVAL_NS;
        entry.probe_ns = entry.probe_ns.min(now_ns.saturating_add(BAD_PROBE_INTERVAL_NS));
        if is_marked {
            entry.skip_until = skip_until;
            self.bad.retain(|bad| *bad != path);
            self.note(now_ns, path, PathState::Skip);
            self.note_skip(path, true);
        } else if entry.answered >= PROBES_TO_GOOD {
            self.bad.retain(|bad| *bad != path);
            self.note(now_ns, path, PathState::Good);
        }
    }
}
