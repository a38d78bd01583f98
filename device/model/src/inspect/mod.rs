//! The description of a process's objects for another process of the same user: queue pairs, completion
//! queues, shared receive queues, rules of faults.
//!
//! Questions and answers are JSON objects. A process with many objects answers page by page, so that no
//! answer is longer than a datagram and none holds the engine's lock for long. Both are read like packets:
//! bounded, and refused if they are malformed.

mod collect;
mod objects;
mod process_status;
mod waits;

use serde::{Deserialize, Serialize};

pub use collect::{InspectedObjects, MAX_PAGES};
pub use objects::{
    CopyView, CqView, MAX_GROUPS, MAX_PATH_CHANGES, MAX_PATHS, MAX_PROFILES, MrcProfileView, MrcView,
    PathChangeView, PathStateView, PathView, PeerView, QpView, SrqView,
};
pub use process_status::{ProcessStatus, ProcessWait, WaitGraph, WaitReason, WaitVerdict};
pub use waits::{
    AwaitedThread, ConnectView, CqArming, CqSnapshot, ListenView, MAX_WAITS, StalledWait, ThreadActivity,
    ThreadActivityView, ThreadView, WaitReporter, WaitTarget, Waiter, WaitsView,
};

pub use crate::fates::live::RuleStatus;

/// The longest page, in bytes.
pub const MAX_PAGE_BYTES: usize = 60_000;
/// The part of a page that the rules of faults may use, in bytes.
const RULES_BYTES: usize = 20_000;
/// Room for the page's other fields around the objects, in bytes.
const FRAME_BYTES: usize = 4_000;
/// The longest tag, and the longest error, in characters.
const MAX_TEXT: usize = 300;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum List {
    /// Queue pairs.
    Qps,
    /// Completion queues.
    Cqs,
    /// Shared receive queues.
    Srqs,
}

/// The position at which the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InspectCursor {
    /// The kind of object that comes next.
    pub list: List,
    /// The first index in the table of these objects.
    pub from: u32,
}

impl InspectCursor {
    /// The beginning of the first page.
    pub const BEGIN: InspectCursor = InspectCursor { list: List::Qps, from: 0 };
}

/// A question to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum InspectRequest {
    /// The question for a page of the process's objects.
    Inspect {
        /// The position at which the page begins.
        cursor: InspectCursor,
        /// True if the process has to determine what its threads wait for: a page that is requested later
        /// contains it.
        #[serde(default, skip_serializing_if = "is_not")]
        waits: bool,
    },
}

/// Reports whether the flag is not set: then the question is the same as that of older versions.
fn is_not(looks: &bool) -> bool {
    !looks
}

/// The numbers of objects of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTotals {
    /// Number of queue pairs.
    pub qps: u32,
    /// Number of completion queues.
    pub cqs: u32,
    /// Number of shared receive queues.
    pub srqs: u32,
    /// Number of memory regions and windows.
    pub regions: u32,
    /// Number of rules of the fault plan.
    pub rules: u32,
}

/// The answer of a process: a page of its objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InspectPage {
    /// The tag of the process in fault plans.
    pub tag: String,
    /// The name of the device; empty if the process is of a version that does not send it.
    #[serde(default)]
    pub device: String,
    /// The numbers of objects.
    pub totals: ObjectTotals,
    /// Queue pairs.
    pub qps: Vec<QpView>,
    /// Completion queues.
    pub cqs: Vec<CqView>,
    /// Shared receive queues.
    pub srqs: Vec<SrqView>,
    /// The rules of the fault plan; on the first page only.
    pub rules: Vec<RuleStatus>,
    /// The waits of the process's threads; on the first page only, and if the process knows them.
    #[serde(default)]
    pub waits: Option<WaitsView>,
    /// The process's listeners for connections; on the first page only, and no more than a few.
    #[serde(default)]
    pub listens: Vec<ListenView>,
    /// The profiles of MRC; on the first page only, at most [`MAX_PROFILES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mrc_profiles: Vec<MrcProfileView>,
    /// The position at which the next page begins; `None` after the last one.
    pub next: Option<InspectCursor>,
}

impl InspectRequest {
    /// Returns the question as bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a question from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<InspectRequest> {
        serde_json::from_slice(bytes).ok()
    }
}

impl InspectPage {
    /// Returns the page as bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads a page from received bytes; `None` if they are not one.
    pub fn decode(bytes: &[u8]) -> Option<InspectPage> {
        if bytes.len() > MAX_PAGE_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

/// A page that is being written.
#[derive(Debug)]
pub struct PageWriter {
    page: InspectPage,
    left_bytes: usize,
}

impl PageWriter {
    /// Returns an empty page of a process with these names, and with as many of these rules as have room.
    pub fn new(tag: &str, device: &str, totals: ObjectTotals, rules: Vec<RuleStatus>) -> PageWriter {
        let mut writer = PageWriter {
            page: InspectPage {
                tag: clipped(tag),
                device: clipped(device),
                totals,
                ..InspectPage::default()
            },
            left_bytes: MAX_PAGE_BYTES - FRAME_BYTES,
        };
        let least = writer.left_bytes - RULES_BYTES;
        for rule in rules {
            let room = writer.try_push(&rule);
            if !room || writer.left_bytes < least {
                break;
            }
            writer.page.rules.push(rule);
        }
        writer
    }

    /// Adds the parts of the first page: waits, and listeners, of which there are at most [`MAX_WAITS`].
    pub fn waits(&mut self, waits: Option<WaitsView>, listens: impl Iterator<Item = ListenView>) {
        self.page.waits = waits.map(WaitsView::clipped).filter(|waits| self.try_push(waits));
        for listen in listens.take(MAX_WAITS) {
            if self.try_push(&listen) {
                self.page.listens.push(listen);
            }
        }
    }

    /// Adds profiles of MRC, as many as have room, to the first page.
    pub fn profiles(&mut self, profiles: impl Iterator<Item = MrcProfileView>) {
        for profile in profiles.take(MAX_PROFILES) {
            if self.try_push(&profile) {
                self.page.mrc_profiles.push(profile);
            }
        }
    }

    /// Takes the room for another object. Returns whether there was enough.
    fn try_push(&mut self, object: &impl Serialize) -> bool {
        let length = serde_json::to_vec(object).map_or(usize::MAX, |bytes| bytes.len().saturating_add(1));
        let left = self.left_bytes.checked_sub(length);
        self.left_bytes = left.unwrap_or(self.left_bytes);
        left.is_some()
    }

    /// Adds a queue pair. Returns false if there is no room.
    pub fn qp(&mut self, mut qp: QpView) -> bool {
        qp.last_error = qp.last_error.map(|text| clipped(&text));
        let room = self.try_push(&qp);
        if room {
            self.page.qps.push(qp);
        }
        room
    }

    /// Adds a completion queue. Returns false if there is no room.
    pub fn cq(&mut self, cq: CqView) -> bool {
        let room = self.try_push(&cq);
        if room {
            self.page.cqs.push(cq);
        }
        room
    }

    /// Adds a shared receive queue. Returns false if there is no room.
    pub fn srq(&mut self, srq: SrqView) -> bool {
        let room = self.try_push(&srq);
        if room {
            self.page.srqs.push(srq);
        }
        room
    }

    /// Returns the page, with the position at which the next one begins.
    pub fn finish(mut self, next: Option<InspectCursor>) -> InspectPage {
        self.page.next = next;
        self.page
    }
}

/// Cuts a text to the longest length in a page.
fn clipped(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::objects::tests::qp;
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let question =
            InspectRequest::Inspect { cursor: InspectCursor { list: List::Cqs, from: 77 }, waits: true };
        assert_eq!(InspectRequest::decode(&question.encode()), Some(question));
        for text in ["", "{}", r#"{"do":"list"}"#, r#"{"do":"inspect"}"#, "[[[["] {
            assert_eq!(InspectRequest::decode(text.as_bytes()), None, "{text}");
        }
        let orders = crate::fates::live::FaultCommand::decode(&question.encode());
        assert_eq!(orders, None, "no order to change the plan");
    }

    #[test]
    fn a_page_is_never_longer_than_it_may_be() {
        let rule = RuleStatus {
            name: "\u{1}".repeat(50),
            does: "drop".to_owned(),
            live: false,
            paused: false,
            met: u64::MAX,
            applied: u64::MAX,
        };
        let mut writer = {
            let long = "\u{1}".repeat(10_000);
            PageWriter::new(&long, &long, ObjectTotals::default(), vec![rule; 4096])
        };
        let mut taken = 0_u32;
        while writer.qp(QpView { last_error: Some("\"".repeat(1000)), ..qp(u32::MAX) }) {
            taken += 1;
        }
        let page = writer.finish(Some(InspectCursor { list: List::Qps, from: u32::MAX }));
        let bytes = page.encode();
        assert!(bytes.len() <= MAX_PAGE_BYTES && taken > 15, "{} bytes, {taken}", bytes.len());
        assert_eq!(InspectPage::decode(&bytes), Some(page));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        assert_eq!(InspectPage::decode(&vec![b' '; MAX_PAGE_BYTES + 1]), None);
        for text in ["", "{}", "null", r#"{"tag":1}"#] {
            assert_eq!(InspectPage::decode(text.as_bytes()), None, "{text}");
        }
        let bytes = InspectPage { qps: vec![qp(1)], ..InspectPage::default() }.encode();
        for length in 0..bytes.len() {
            assert_eq!(InspectPage::decode(&bytes[..length]), None, "cut at {length}");
        }
    }
}
