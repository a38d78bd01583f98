//! What a running process has of MRC.

use std::net::IpAddr;

use pumice_device::inspect::{MrcProfileView, QpView};
use serde::Serialize;

use crate::observe::{ProcessView, plain};

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
