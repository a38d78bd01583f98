//! What a running process has of MRC, and the text output of `pumice mrc`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::IpAddr;

use pumice_device::inspect::{MrcProfileView, MrcView, PathStateView, PathView, QpView};
use pumice_transport::wire::Qpn;
use serde::Serialize;

use crate::observe::{ProcessView, plain, quantity, round_trip};

/// A process that has profiles or queue pairs of MRC, or did not answer.
#[derive(Debug, Serialize)]
pub(super) struct MrcProcess {
    pub(super) pid: u32,
    pub(super) program: Option<String>,
    pub(super) address: IpAddr,
    /// False if the process did not answer.
    pub(super) answers: bool,
    /// Profiles of its controller.
    pub(super) profiles: Vec<MrcProfileView>,
    /// Queue pairs of MRC.
    pub(super) queue_pairs: Vec<QpView>,
}

impl MrcProcess {
    /// Returns what a process has of MRC; `None` if it answered and has nothing.
    pub(super) fn of(process: &ProcessView) -> Option<MrcProcess> {
        let objects = process.objects.as_ref();
        let profiles = objects.map(|objects| objects.mrc_profiles.clone()).unwrap_or_default();
        let qps = objects.map(|objects| objects.qps.as_slice()).unwrap_or_default();
        let queue_pairs: Vec<QpView> = qps.iter().filter(|qp| qp.mrc.is_some()).cloned().collect();
        let answers = process.answers();
        if answers && profiles.is_empty() && queue_pairs.is_empty() {
            return None;
        }
        Some(MrcProcess {
            pid: process.pid,
            program: process.program.as_deref().map(plain),
            address: process.address,
            answers,
            profiles,
            queue_pairs,
        })
    }
}

/// Maximum number of paths of a queue pair that are listed without `--paths`.
const MAX_PATHS: usize = 16;
/// Maximum number of changes of paths that are listed.
const MAX_CHANGES: usize = 8;

/// All states, with their names.
const STATES: [(PathStateView, &str); 4] = [
    (PathStateView::Good, "GOOD"),
    (PathStateView::Skip, "SKIP"),
    (PathStateView::AssumedBad, "ASSUMED_BAD"),
    (PathStateView::Denied, "DENIED"),
];

fn name_of(state: PathStateView) -> &'static str {
    STATES.iter().find(|(other, _)| *other == state).map_or("?", |(_, name)| name)
}

pub(super) fn print(processes: &[MrcProcess], all_paths: bool, out: &mut dyn Write) -> io::Result<()> {
    if processes.is_empty() {
        return writeln!(
            out,
            "no process of this user has queue pairs of MRC: start programs of libmrc, \
             or of RC with pumice run --mrc"
        );
    }
    for (number, process) in processes.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        let name = process.program.as_deref().unwrap_or("?");
        writeln!(out, "process {} ({name})  {}", process.pid, process.address)?;
        if !process.answers {
            writeln!(out, "  does not answer: it is stopped, or just begins or ends; try again")?;
        }
        for profile in &process.profiles {
            let (kind, stage, mode) = (plain(&profile.kind), plain(&profile.stage), plain(&profile.mode));
            write!(out, "  {kind} profile {}  {stage} {mode}", profile.id)?;
            if let ("EV", [good, bad, denied]) = (kind.as_str(), profile.values) {
                write!(out, "  {good} GOOD, {bad} ASSUMED_BAD, {denied} DENIED")?;
            }
            writeln!(out, "{}", used_by(&kind, profile.queue_pairs))?;
        }
        for qp in &process.queue_pairs {
            if let Some(mrc) = &qp.mrc {
                queue_pair(qp, mrc, all_paths, out)?;
            }
        }
    }
    Ok(())
}

fn used_by(kind: &str, queue_pairs: u32) -> String {
    match (kind, queue_pairs) {
        ("format", _) => String::new(),
        (_, 1) => "  1 queue pair".to_owned(),
        (_, count) => format!("  {count} queue pairs"),
    }
}

fn queue_pair(qp: &QpView, mrc: &MrcView, all_paths: bool, out: &mut dyn Write) -> io::Result<()> {
    let peer = match qp.peer {
        Some(peer) => format!(" with {} of {}", Qpn::new(peer.qpn), peer.address),
        None => String::new(),
    };
    let twin = if mrc.twin_of.is_some() { ", carries WRITEs of RC" } else { "" };
    writeln!(out, "  queue pair {}  {}{peer}{twin}", Qpn::new(qp.qpn), plain(&qp.state))?;
    let profile = |id: Option<u64>, none: &str| id.map_or_else(|| none.to_owned(), |id| id.to_string());
    writeln!(
        out,
        "    {} of {} sends ended, {} packets in flight of {}, round trip {}; EV profile {}, CC profile {}",
        qp.ended,
        qp.posted,
        qp.in_flight_packets,
        qp.window_packets,
        qp.rtt_ns.map_or_else(|| "not measured yet".to_owned(), round_trip),
        profile(mrc.ev_profile, "of the device"),
        profile(mrc.cc_profile, "none"),
    )?;
    writeln!(
        out,
        "    {} packets sent again: {} holes, {} by probes, {} trimmed, {} timeouts; \
         {} probes, {} SACKs sent",
        qp.repeated_packets,
        mrc.holes,
        mrc.probed_losses,
        mrc.trims,
        qp.timeouts,
        mrc.probes_sent,
        mrc.sacks_sent
    )?;
    if mrc.paths.is_empty() {
        return Ok(());
    }
    planes(mrc, out)?;
    paths(mrc, all_paths, out)?;
    for change in mrc.changes.iter().rev().take(MAX_CHANGES) {
        let (ago, state) = (round_trip(change.ago_ns), name_of(change.state));
        writeln!(out, "    {ago} ago: path {} of plane {} is {state}", change.source_port, change.plane)?;
    }
    Ok(())
}

/// Prints a line for each plane.
pub(crate) fn planes(mrc: &MrcView, out: &mut dyn Write) -> io::Result<()> {
    let mut by_plane: BTreeMap<u8, Vec<&PathView>> = BTreeMap::new();
    for path in &mrc.paths {
        by_plane.entry(path.plane).or_default().push(path);
    }
    writeln!(
        out,
        "    {:<7} {:>5} {:>5} {:>12} {:>7} {:>8} {:>8} {:>7} {:>9}",
        "PLANE", "GOOD", "SKIP", "ASSUMED_BAD", "DENIED", "SENT", "LOST", "LOST%", "CONGESTED"
    )?;
    for (plane, paths) in by_plane {
        let [good, skip, bad, denied] =
            STATES.map(|(state, _)| paths.iter().filter(|path| path.state == state).count());
        let sum =
            |of: fn(&PathView) -> u64| paths.iter().fold(0_u64, |sum, path| sum.saturating_add(of(path)));
        let (sent, lost, congested) =
            (sum(|path| path.sent), sum(|path| path.lost), sum(|path| path.congested));
        let is_up = mrc.planes_up & 1_u32.checked_shl(plane.into()).unwrap_or(0) != 0;
        let name = if is_up { plane.to_string() } else { format!("{plane} down") };
        writeln!(
            out,
            "    {name:<7} {good:>5} {skip:>5} {bad:>12} {denied:>7} {:>8} {:>8} {:>7} {:>9}",
            quantity(sent as f64),
            quantity(lost as f64),
            share(lost, sent),
            quantity(congested as f64)
        )?;
    }
    Ok(())
}

/// Prints a line for each path that is to be shown.
fn paths(mrc: &MrcView, all_paths: bool, out: &mut dyn Write) -> io::Result<()> {
    let is_shown = |path: &&PathView| all_paths || path.state != PathStateView::Good;
    let most = if all_paths { usize::MAX } else { MAX_PATHS };
    for path in mrc.paths.iter().filter(is_shown).take(most) {
        let held = if path.active { "" } else { ", held back" };
        let answered = match path.state {
            PathStateView::AssumedBad => format!(", {} probes in a row answered", path.answered),
            _ => String::new(),
        };
        writeln!(
            out,
            "    path {} of plane {}: {}{held}{answered}; {} sent, {} lost ({}), {} congested",
            path.source_port,
            path.plane,
            name_of(path.state),
            path.sent,
            path.lost,
            share(path.lost, path.sent),
            path.congested
        )?;
    }
    let shown = mrc.paths.iter().filter(is_shown).count();
    let not_listed = if all_paths { (mrc.path_count as usize).saturating_sub(mrc.paths.len()) } else { 0 };
    let left = shown.saturating_sub(most) + not_listed;
    if left > 0 {
        let all = if all_paths { "" } else { " (--paths shows more)" };
        writeln!(out, "    and {left} more paths{all}")?;
    }
    Ok(())
}

/// Returns a part as a percentage of a whole.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use pumice_device::inspect::{MrcProfileView, PathChangeView};

    use super::*;
    use crate::observe::tests::{process, qp};

    fn path(source_port: u16, state: PathStateView, lost: u64) -> PathView {
        PathView {
            source_port,
            plane: (source_port % 2) as u8,
            state,
            active: source_port < 50_000,
            sent: 200,
            lost,
            congested: 3,
            answered: 2,
        }
    }

    fn shown(paths: Vec<PathView>, all_paths: bool) -> String {
        let change = PathChangeView {
            ago_ns: 2_000_000,
            source_port: 49_153,
            plane: 1,
            state: PathStateView::AssumedBad,
        };
        let mrc = MrcView {
            twin_of: Some(0x01_0011),
            ev_profile: Some(7),
            planes: 2,
            planes_up: 1,
            path_count: paths.len() as u32,
            paths,
            changes: vec![change],
            trims: 5,
            ..MrcView::default()
        };
        let mut view = process(77, vec![qp(0x01_0012), QpView { mrc: Some(Box::new(mrc)), ..qp(0x01_0011) }]);
        let profile = MrcProfileView {
            kind: "EV".to_owned(),
            id: 7,
            stage: "ONLINE".to_owned(),
            mode: "EXPLICIT\u{1b}".to_owned(),
            values: [30, 2, 1],
            queue_pairs: 1,
        };
        view.counters = Some(Vec::new());
        view.objects.as_mut().expect("it answered").mrc_profiles = vec![profile];
        let all: Vec<MrcProcess> = [&view].into_iter().filter_map(MrcProcess::of).collect();
        let mut out = Vec::new();
        print(&all, all_paths, &mut out).expect("a Vec takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn planes_are_a_table_and_paths_that_are_not_good_are_named() {
        let paths = vec![
            path(49_152, PathStateView::Good, 0),
            path(49_153, PathStateView::AssumedBad, 20),
            path(50_154, PathStateView::Denied, 0),
        ];
        let some = shown(paths.clone(), false);
        assert!(
            some.contains("EV profile 7  ONLINE EXPLICIT?  30 GOOD, 2 ASSUMED_BAD, 1 DENIED  1 queue pair")
        );
        assert!(some.contains("queue pair 0x010011  RTS with 0x020011 of 127.0.0.2, carries WRITEs of RC"));
        assert!(!some.contains("0x010012") && some.contains("5 trimmed"), "{some}");
        assert!(some.contains("1 down ") && some.contains("10.0 %"), "{some}");
        assert!(some.contains(
            "path 49153 of plane 1: ASSUMED_BAD, 2 probes in a row answered; 200 sent, 20 lost (10.0 %)"
        ));
        assert!(some.contains("path 50154 of plane 0: DENIED, held back"), "{some}");
        assert!(some.contains("2.0ms ago: path 49153 of plane 1 is ASSUMED_BAD"), "{some}");
        assert!(!some.contains("path 49152"), "{some}");
        assert!(shown(paths, true).contains("path 49152 of plane 0: GOOD"));
    }

    #[test]
    fn many_bad_paths_are_counted() {
        let paths = (0..40).map(|number| path(49_152 + number, PathStateView::AssumedBad, 1)).collect();
        assert!(shown(paths, false).contains("and 24 more paths (--paths shows more)"));
        let mut out = Vec::new();
        print(&[], false, &mut out).expect("a Vec takes everything");
        assert!(String::from_utf8_lossy(&out).contains("no process of this user has queue pairs of MRC"));
    }
}
