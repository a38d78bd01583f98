//! Snapshots of the running processes of this user, and the changes between two of them.

mod live;
mod rates;
mod selected;
mod words;

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use pumice_device::inspect::InspectedObjects;
use pumice_device::sharing::{InspectReply, ProcessReport, inspect, reports};

pub(crate) use live::{Interrupt, LiveDevice, NoOutput, RecordingTime, milliseconds, nanoseconds};
pub(crate) use rates::{ProcessRates, QpRates, rates};
pub(crate) use selected::{ProcessSelection, RecordResult, SelectedDevice, live_time};
pub(crate) use words::{ProgressDisplay, ProgressReader, copied, plain, program, quantity, round_trip};

/// A snapshot of all processes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) processes: Vec<ProcessView>,
}

/// A process at one time. Control characters in its names are replaced for the terminal; the texts inside of
/// `objects` are as the process sent them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ProcessView {
    pub(crate) pid: u32,
    pub(crate) index: u8,
    pub(crate) address: IpAddr,
    pub(crate) program: Option<String>,
    /// Counters of the process; `None` if it did not answer.
    pub(crate) counters: Option<Vec<(String, u64)>>,
    /// Objects of the process; `None` if it did not answer, or does not support the question.
    pub(crate) objects: Option<InspectedObjects>,
}

/// The scope of a snapshot: the processes of a registry, or one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SnapshotScope<'a> {
    /// The UDP port that the processes share.
    pub(crate) port: u16,
    /// Folder of the registry, if it is not the usual one.
    pub(crate) registry: Option<&'a Path>,
    /// Process id, if only one process is examined.
    pub(crate) pid: Option<u32>,
    /// Time for which an answer is awaited.
    pub(crate) patience: Duration,
}

impl SnapshotScope<'_> {
    /// Takes a snapshot of all processes.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn look(&self) -> Result<Snapshot, String> {
        let query_error = |error| format!("the processes cannot be asked: {error}");
        let counted = reports(self.port, self.registry, self.patience).map_err(query_error)?;
        let seen = inspect(self.port, self.registry, self.patience).map_err(query_error)?;
        Ok(Snapshot { processes: joined(counted, seen, self.pid) })
    }
}

/// Joins the answers to two questions. A process that started or ended in between is in one of them only.
fn joined(counted: Vec<ProcessReport>, mut seen: Vec<InspectReply>, pid: Option<u32>) -> Vec<ProcessView> {
    let wanted = counted.into_iter().filter(|report| pid.is_none_or(|pid| report.sharer.pid == pid));
    wanted
        .map(|report| {
            let position = seen.iter().position(|other| other.sharer == report.sharer);
            ProcessView {
                pid: report.sharer.pid,
                index: report.sharer.process().value(),
                address: report.sharer.address,
                program: program(report.sharer.pid),
                counters: report.counters,
                objects: position.and_then(|position| seen.swap_remove(position).objects),
            }
        })
        .collect()
}

impl ProcessView {
    /// Returns the key that identifies a process in two snapshots.
    pub(crate) fn key(&self) -> (u32, (u8, IpAddr)) {
        (self.pid, self.device_key())
    }

    /// Returns the key that distinguishes the devices of a process: devices with different addresses may have
    /// equal indices.
    pub(crate) fn device_key(&self) -> (u8, IpAddr) {
        (self.index, self.address)
    }

    /// Returns a counter; 0 if the process does not count it.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let found = self.counters.iter().flatten().find(|(other, _)| other == name);
        found.map_or(0, |(_, value)| *value)
    }

    /// Reports whether the process answered at all.
    pub(crate) fn answers(&self) -> bool {
        self.counters.is_some()
    }

    /// Returns its tag, with control characters replaced.
    pub(crate) fn tag(&self) -> String {
        self.objects.as_ref().map_or_else(String::new, |objects| plain(&objects.tag))
    }

    /// Returns the number of times that rules of faults applied.
    pub(crate) fn faults_applied(&self) -> u64 {
        let rules = self.objects.iter().flat_map(|objects| &objects.rules);
        rules.fold(0, |sum, rule| sum.saturating_add(rule.applied))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::Ipv4Addr;

    use pumice_device::inspect::{CqView, ObjectTotals, PeerView, QpView, SrqView};
    use pumice_device::sharing::{MemberIndex, PortProcess};

    use super::*;

    /// Returns a queue pair without any activity.
    pub(crate) fn qp(qpn: u32) -> QpView {
        QpView {
            qpn,
            ordinal: qpn & 0xffff,
            service: "RC".to_owned(),
            state: "RTS".to_owned(),
            peer: Some(PeerView { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), qpn: 0x02_0011 }),
            medium: Some("shared memory".to_owned()),
            copy: None,
            posted: 0,
            ended: 0,
            unsignaled: 0,
            received: 0,
            sent_packets: 0,
            sent_bytes: 0,
            received_packets: 0,
            received_bytes: 0,
            repeated_packets: 0,
            timeouts: 0,
            rnr_naks_sent: 0,
            rnr_naks_received: 0,
            naks_sent: 0,
            naks_received: 0,
            dropped: 0,
            in_flight_packets: 0,
            window_packets: 64,
            rtt_ns: Some(21_000),
            waits_for_receiver: false,
            send_queue_depth: 16,
            receives_posted: Some(8),
            recv_queue_depth: 16,
            send_cq: Some(0),
            recv_cq: Some(0),
            srq: None,
            group: None,
            groups: Vec::new(),
            last_error: None,
            mrc: None,
        }
    }

    /// Returns a process with these queue pairs, a completion queue and a shared receive queue.
    pub(crate) fn process(pid: u32, qps: Vec<QpView>) -> ProcessView {
        let totals = ObjectTotals { qps: qps.len() as u32, cqs: 1, srqs: 1, regions: 2, rules: 0 };
        let cq = CqView {
            number: 0,
            ordinal: Some(0),
            depth: 32,
            filled: 8,
            armed: true,
            failed: false,
            users: 2,
        };
        let srq = SrqView { number: 1, ordinal: 0, depth: 64, posted: 16, limit: 4, xrc: false, cq: None };
        let objects =
            InspectedObjects { totals, qps, cqs: vec![cq], srqs: vec![srq], ..InspectedObjects::default() };
        let objects = InspectedObjects { tag: "one".to_owned(), device: "pumice0".to_owned(), ..objects };
        ProcessView {
            pid,
            index: 1,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            program: Some("paced".to_owned()),
            counters: Some(Vec::new()),
            objects: Some(objects),
        }
    }

    #[test]
    fn a_process_that_answers_one_query_only_is_shown_with_its_answer() {
        let member = MemberIndex::of_number(3).expect("a member index");
        let sharer = |pid| PortProcess { member, pid, address: IpAddr::V4(Ipv4Addr::LOCALHOST) };
        let counted = [1, 2, 3].map(|pid| ProcessReport { sharer: sharer(pid), counters: Some(Vec::new()) });
        let seen = [3, 1]
            .map(|pid| InspectReply { sharer: sharer(pid), objects: Some(InspectedObjects::default()) });
        let all = joined(counted.to_vec(), seen.to_vec(), None);
        let has: Vec<(u32, bool)> = all.iter().map(|one| (one.pid, one.objects.is_some())).collect();
        assert_eq!(has, [(1, true), (2, false), (3, true)]);
        assert_eq!(joined(counted.to_vec(), Vec::new(), Some(2)).len(), 1);
    }
}
