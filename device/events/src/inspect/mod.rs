//! What a process says of its objects when another process of the same user asks: queue pairs, completion
//! queues, shared receive queues, rules of faults.
//!
//! Questions and answers are JSON objects. A process with many objects answers page by page, so that no
//! answer is longer than a datagram and none holds the engine's lock for long. Both are read like packets:
//! bounded, and refused if they are malformed.

mod collect;
mod objects;
mod seen;
mod standing;
mod waits;

use serde::{Deserialize, Serialize};

pub use collect::{Collected, MAX_PAGES};
pub use objects::{CqView, MAX_GROUPS, PeerView, QpView, SrqView};
pub use seen::{ArmedNow, Awaited, Doing, QueueNow, Vain, Waiter};
pub use standing::{Graph, Standing, Verdict, Wait, Why};
pub use waits::{
    AwaitedThread, ConnectView, DoingView, ListenView, MAX_WAITS, TellsWaits, ThreadView, WaitsView,
};

use pumice_faults::live::LiveRule;

/// The longest page, in bytes.
pub const MAX_PAGE_BYTES: usize = 60_000;
/// What of a page is for the rules of faults, in bytes.
const RULES_BYTES: usize = 20_000;
/// Room for what stands around the objects, in bytes.
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

/// Where the next page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cursor {
    /// The kind of object that comes next.
    pub list: List,
    /// The first index in the table of these objects.
    pub from: u32,
}

impl Cursor {
    /// The first page.
    pub const BEGIN: Cursor = Cursor { list: List::Qps, from: 0 };
}

/// What a process is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Question {
    /// A page of its objects.
    Inspect {
        /// Where the page begins.
        cursor: Cursor,
        /// The process is to look what its threads wait for: a page that is asked for later has it.
        #[serde(default, skip_serializing_if = "is_not")]
        waits: bool,
    },
}

/// Whether it does not look: then the question is the same as that of older versions.
fn is_not(looks: &bool) -> bool {
    !looks
}

/// How many objects a process has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Queue pairs.
    pub qps: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Shared receive queues.
    pub srqs: u32,
    /// Memory regions and windows.
    pub regions: u32,
    /// Rules of faults.
    pub rules: u32,
}

/// What a process answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// What fault plans call the process.
    pub tag: String,
    /// The name of its device; empty if the process is of a version that does not say it.
    #[serde(default)]
    pub device: String,
    /// How many objects there are.
    pub totals: Totals,
    /// Queue pairs.
    pub qps: Vec<QpView>,
    /// Completion queues.
    pub cqs: Vec<CqView>,
    /// Shared receive queues.
    pub srqs: Vec<SrqView>,
    /// Rules of faults: on the first page only.
    pub rules: Vec<LiveRule>,
    /// What its threads wait for: on the first page only, and if it knows.
    #[serde(default)]
    pub waits: Option<WaitsView>,
    /// Where it listens for connections: on the first page only, and no more than a few.
    #[serde(default)]
    pub listens: Vec<ListenView>,
    /// Where the next page begins; none behind the last.
    pub next: Option<Cursor>,
}

impl Question {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Question> {
        serde_json::from_slice(bytes).ok()
    }
}

impl Page {
    /// As it is sent.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// What was sent; nothing if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Page> {
        if bytes.len() > MAX_PAGE_BYTES { None } else { serde_json::from_slice(bytes).ok() }
    }
}

/// A page that is being written.
#[derive(Debug)]
pub struct Writer {
    page: Page,
    left_bytes: usize,
}

impl Writer {
    /// An empty page of a process with these names, and with these rules as far as they have room.
    pub fn new(tag: &str, device: &str, totals: Totals, rules: Vec<LiveRule>) -> Writer {
        let mut writer = Writer {
            page: Page { tag: clipped(tag), device: clipped(device), totals, ..Page::default() },
            left_bytes: MAX_PAGE_BYTES - FRAME_BYTES,
        };
        let least = writer.left_bytes - RULES_BYTES;
        for rule in rules {
            let room = writer.takes(&rule);
            if !room || writer.left_bytes < least {
                break;
            }
            writer.page.rules.push(rule);
        }
        writer
    }

    /// Adds what the first page has: waits, and listeners, of which there are at most [`MAX_WAITS`].
    pub fn waits(&mut self, waits: Option<WaitsView>, listens: impl Iterator<Item = ListenView>) {
        self.page.waits = waits.map(WaitsView::clipped).filter(|waits| self.takes(waits));
        for listen in listens.take(MAX_WAITS) {
            if self.takes(&listen) {
                self.page.listens.push(listen);
            }
        }
    }

    /// Whether there is room for another object, which it then has.
    fn takes(&mut self, object: &impl Serialize) -> bool {
        let length = serde_json::to_vec(object).map_or(usize::MAX, |bytes| bytes.len().saturating_add(1));
        let left = self.left_bytes.checked_sub(length);
        self.left_bytes = left.unwrap_or(self.left_bytes);
        left.is_some()
    }

    /// Adds a queue pair; false if there is no room.
    pub fn qp(&mut self, mut qp: QpView) -> bool {
        qp.last_error = qp.last_error.map(|text| clipped(&text));
        let room = self.takes(&qp);
        if room {
            self.page.qps.push(qp);
        }
        room
    }

    /// Adds a completion queue; false if there is no room.
    pub fn cq(&mut self, cq: CqView) -> bool {
        let room = self.takes(&cq);
        if room {
            self.page.cqs.push(cq);
        }
        room
    }

    /// Adds a shared receive queue; false if there is no room.
    pub fn srq(&mut self, srq: SrqView) -> bool {
        let room = self.takes(&srq);
        if room {
            self.page.srqs.push(srq);
        }
        room
    }

    /// The page, and where the next one begins.
    pub fn finish(mut self, next: Option<Cursor>) -> Page {
        self.page.next = next;
        self.page
    }
}

/// A text that is not too long for a page.
fn clipped(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::objects::tests::qp;
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        let question = Question::Inspect { cursor: Cursor { list: List::Cqs, from: 77 }, waits: true };
        assert_eq!(Question::decode(&question.encode()), Some(question));
        for text in ["", "{}", r#"{"do":"list"}"#, r#"{"do":"inspect"}"#, "[[[["] {
            assert_eq!(Question::decode(text.as_bytes()), None, "{text}");
        }
        let orders = pumice_faults::live::LiveOrder::decode(&question.encode());
        assert_eq!(orders, None, "no order to change the plan");
    }

    #[test]
    fn a_page_is_never_longer_than_it_may_be() {
        let rule = LiveRule {
            name: "\u{1}".repeat(50),
            does: "drop".to_owned(),
            live: false,
            paused: false,
            met: u64::MAX,
            applied: u64::MAX,
        };
        let mut writer = {
            let long = "\u{1}".repeat(10_000);
            Writer::new(&long, &long, Totals::default(), vec![rule; 4096])
        };
        let mut taken = 0_u32;
        while writer.qp(QpView { last_error: Some("\"".repeat(1000)), ..qp(u32::MAX) }) {
            taken += 1;
        }
        let page = writer.finish(Some(Cursor { list: List::Qps, from: u32::MAX }));
        let bytes = page.encode();
        assert!(bytes.len() <= MAX_PAGE_BYTES && taken > 20, "{} bytes, {taken}", bytes.len());
        assert_eq!(Page::decode(&bytes), Some(page));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        assert_eq!(Page::decode(&vec![b' '; MAX_PAGE_BYTES + 1]), None);
        for text in ["", "{}", "null", r#"{"tag":1}"#] {
            assert_eq!(Page::decode(text.as_bytes()), None, "{text}");
        }
        let bytes = Page { qps: vec![qp(1)], ..Page::default() }.encode();
        for length in 0..bytes.len() {
            assert_eq!(Page::decode(&bytes[..length]), None, "cut at {length}");
        }
    }
}
