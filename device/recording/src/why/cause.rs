//! The table of causes, and words for stories.

use serde::{Serialize, Serializer};

use super::loss::PacketFate;
use crate::timeline::{Setback, SetbackKind, loss_in_words};

/// A part of the time is told if it is at least one in this many of the whole.
const SIGNIFICANT_SHARE: u64 = 20;

/// Formats a time with a unit that fits it.
pub(crate) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Formats words as a sentence, with a capital letter and a full stop.
pub(super) fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first: String = letters.next().map(|letter| letter.to_uppercase().collect()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// Describes a setback that happened `count` times; `planned` says that a fault plan made it.
pub(super) fn setback(setback: &Setback, fate: Option<PacketFate>, count: u32, planned: bool) -> String {
    let times = if count > 1 { format!(" ({count} times in a row)") } else { String::new() };
    let waited = time(setback.at_ns.saturating_sub(setback.silent_since_ns));
    let what = match setback.kind {
        SetbackKind::TimedOut { timeout, .. } => {
            let timer = format!("the acknowledgement timer (timeout {timeout})");
            format!("{timer} expired {waited} after the last packet was sent")
        }
        SetbackKind::Silence => {
            format!(
                "the peer was silent for {waited}, which is longer than its answers take, on a lossy path"
            )
        }
        SetbackKind::SequenceNak => "the peer noticed that a packet was missing, and asked for it".to_owned(),
        SetbackKind::MissingAnswer => "a later answer showed that an answer was lost".to_owned(),
        SetbackKind::ReceiverNotReady { wait_ns, .. } if planned => {
            format!("an RNR NAK asked for {} of patience", time(wait_ns))
        }
        SetbackKind::ReceiverNotReady { wait_ns, .. } => {
            format!("the peer had no receive request posted, and asked for {} of patience", time(wait_ns))
        }
        SetbackKind::Lost { psn, proof } => {
            format!("PSN {psn} {}, {waited} after it was sent", loss_in_words(proof))
        }
        SetbackKind::PeerStarved => format!("the peer's process had no processor for {waited}"),
    };
    let whose = if setback.is_own { "" } else { "; that was about a request before it" };
    let lost = fate.map_or_else(String::new, |fate| format!(": {}", lost(fate)));
    format!("{what}{times}{lost}{whose}")
}

fn lost(fate: PacketFate) -> String {
    match fate {
        PacketFate::PacketLostByPlan { psn } => format!("the fault plan had lost its packet with PSN {psn}"),
        PacketFate::PacketLost { psn } => format!("its packet with PSN {psn} did not arrive at the peer"),
        PacketFate::PacketDropped { psn } => format!("its packet with PSN {psn} was dropped by the peer"),
        PacketFate::AnswerLostByPlan { is_response, .. } => {
            format!("its packets had arrived, and the fault plan had lost the peer's {}", answer(is_response))
        }
        PacketFate::AnswerLost { is_response, .. } => {
            format!("its packets had arrived, and the peer's {} did not", answer(is_response))
        }
        PacketFate::OnTheWay { psn } => format!("its packet with PSN {psn} was still on its way"),
        PacketFate::NoAnswer => "its packets had arrived, and the peer had not answered".to_owned(),
        PacketFate::Unknown => {
            "a packet or its answer was lost; the peer's trace would tell which".to_owned()
        }
    }
}

const fn answer(is_response: bool) -> &'static str {
    if is_response { "response" } else { "acknowledgement" }
}

/// Returns the remedy for a status.
pub(super) fn of_status(status: Option<&str>) -> Option<&'static str> {
    match status? {
        "RETRY_EXC_ERR" => {
            Some("see whether the peer lives, is in RTR and can be reached; else raise retry_cnt")
        }
        "RNR_RETRY_EXC_ERR" => {
            Some("post receive requests at the peer earlier, or set rnr_retry to 7: for ever")
        }
        "REM_ACCESS_ERR" => {
            Some("compare address, length, R_Key and access rights with the peer's memory region")
        }
        "REM_INV_REQ_ERR" => {
            Some("compare the message with the peer's receive buffer, and the rights of its queue pair")
        }
        "LOC_PROT_ERR" => Some("compare the buffers of the request with their memory region"),
        _ => None,
    }
}

pub(super) const fn is_share(ns: u64, of_ns: u64, share: u64) -> bool {
    ns > 0 && ns >= of_ns / share
}

/// Reports whether a part of the time is long enough to be told.
pub(super) const fn is_significant(ns: u64, of_ns: u64) -> bool {
    is_share(ns, of_ns, SIGNIFICANT_SHARE)
}

/// Makes the enum of causes and their table.
macro_rules! causes {
    ($($name:ident { $word:literal, $whose:ident, $needs:literal, $remedy:literal })*) => {
        /// A reason why a message took its time, or failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each has a row with its words")]
        pub enum CauseKind {
            $($name,)*
        }

        impl CauseKind {
            /// All causes.
            pub const ALL: &'static [CauseKind] = &[$(CauseKind::$name,)*];

            /// Returns the name of the cause, as JSON has it.
            pub const fn name(self) -> &'static str {
                match self { $(CauseKind::$name => $word,)* }
            }

            /// Returns whose time it is.
            pub const fn whose(self) -> Responsible {
                match self { $(CauseKind::$name => Responsible::$whose,)* }
            }

            /// Returns the records by which the cause is judged.
            pub const fn needs(self) -> &'static str {
                match self { $(CauseKind::$name => $needs,)* }
            }

            /// Returns the remedy, if no fault plan made the cause; empty if there is none.
            pub const fn remedy(self) -> &'static str {
                match self { $(CauseKind::$name => $remedy,)* }
            }
        }
    };
}

/// The party to which the time of a message is attributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Responsible {
    /// The program that posted it.
    Program,
    /// The device of that program.
    OwnDevice,
    /// The network between the devices.
    Network,
    /// The device of the peer.
    PeerDevice,
    /// The program of the peer.
    PeerProgram,
    /// The network or the peer: only the peer's trace could say which.
    Beyond,
}

impl Responsible {
    /// All parties, in the order of a message's way.
    pub const ALL: [Responsible; 6] = [
        Responsible::Program,
        Responsible::OwnDevice,
        Responsible::Network,
        Responsible::PeerDevice,
        Responsible::PeerProgram,
        Responsible::Beyond,
    ];

    /// Returns the party in words.
    pub const fn words(self) -> &'static str {
        match self {
            Responsible::Program => "the program",
            Responsible::OwnDevice => "its device",
            Responsible::Network => "the network",
            Responsible::PeerDevice => "the peer's device",
            Responsible::PeerProgram => "the peer's program",
            Responsible::Beyond => "network or peer",
        }
    }
}

causes! {
    RequestLost { "request-lost", Network, "a request packet that was sent and that a plan lost, or that the \
        peer's trace has no arrival of", "keep the path from losing packets" }
    AckLost { "ack-lost", Network, "the arrival of the request, and an acknowledgement that was sent and \
        lost", "keep the path from losing packets" }
    ResponseLost { "response-lost", Network, "the arrival of a READ or an atomic, and a response that was \
        sent and lost", "keep the path from losing packets" }
    LossUnknown { "loss-unknown", Beyond, "a timer that expired; the peer's trace would tell what was lost",
        "record the peer as well (pumice run --trace), and give both traces" }
    PeerSilent { "peer-silent", PeerDevice, "the arrival of the request, and no answer before the timer \
        expired", "see what the peer's device waits for: its trace shows its states" }
    Trimmed { "trimmed", Network, "a NACK of MRC: a switch in congestion cut off the data of a packet",
        "send less at once: packets of others were before these in the queue of the switch" }
    Corrupted { "corrupted", Network, "a packet whose ICRC was wrong", "look for a bad cable or port" }
    Duplicated { "duplicated", Network, "a request that came again without being sent again", "look for a \
        link that is bonded wrongly, or a switch that floods" }
    Delayed { "delayed", Network, "a packet that a plan delayed", "" }
    Reordered { "reordered", Network, "a packet that later ones passed", "" }
    Partition { "partition", Network, "a partition by a plan", "" }
    Refused { "refused", PeerProgram, "a NAK", "" }
    Status { "status", OwnDevice, "the status that a plan gave a completion", "" }
    CompletionLate { "completion-late", OwnDevice, "a completion that a plan put off", "" }
    EventLate { "event-late", OwnDevice, "an event of a completion channel that a plan put off", "" }
    EventsMerged { "events-merged", OwnDevice, "events of a completion channel that a plan merged", "" }
    CallSlowed { "call-slowed", Program, "a call that a plan slowed", "" }
    CallFailed { "call-failed", Program, "a call that a plan refused", "" }
    NoReceive { "no-receive", PeerProgram, "RNR NAKs", "post receive requests at the peer before messages \
        come; a smaller min_rnr_timer of the peer shortens the wait" }
    PeerPostsLate { "peer-posts-late", PeerProgram, "RNR NAKs, and the receive request that the peer posted \
        later", "post receive requests at the peer before messages come; a smaller min_rnr_timer of the peer \
        shortens the wait" }
    PeerPollsLate { "peer-polls-late", PeerProgram, "RNR NAKs, and completions of receives that the peer had \
        not polled", "let the peer poll its receives more often, and post them again at once" }
    PollsLate { "polls-late", Program, "a completion, and the poll that found it later", "poll more often, \
        or wait for completion events in a thread of its own" }
    Unsignaled { "unsignaled", Program, "the post of a request without a completion of its own", "signal \
        more often: unsignaled requests are over with the next signaled one of their queue pair" }
    SendQueueFull { "send-queue-full", Program, "posts that were refused because the send queue was full, or \
        as many requests under way as it has room for", "make the send queue deeper (max_send_wr), or poll \
        completions before the queue is full" }
    ReadDepth { "read-depth", Program, "READs and atomics under way as many as max_rd_atomic", "raise \
        max_rd_atomic, and max_dest_rd_atomic of the peer" }
    Window { "window", OwnDevice, "measures of the window, which was full", "the window grows with \
        acknowledgements: look for losses and congestion before; post fewer bytes at once" }
    Frozen { "frozen", OwnDevice, "a device that a plan froze", "" }
    PortDown { "port-down", Network, "a port that was down, or whose cable was out", "see why the port went \
        down" }
    LinkRate { "link-rate", Network, "the rate of the link, and the bytes of the message", "give the link a \
        higher rate, or send less" }
    SwitchQueue { "switch-queue", Network, "the rate of a link, and packets that took longer than their own \
        bytes, or did not arrive", "send less at once: packets of others were before these in the queue of \
        the link or the switch" }
    Congestion { "congestion", Network, "congestion notifications (CNP) that came, and the rate or window \
        after them", "send less at once, or through less crowded ports: a switch marked packets (ECN)" }
    DeviceEvent { "device-event", OwnDevice, "something that a plan made happen to the device", "" }
    Scheduler { "scheduler", Program, "a process that went on later than it meant to", "give the process a \
        processor: fewer programs that spin, and none that stops it" }
    PeerStarved { "peer-starved", PeerProgram, "a timer that expired while the peer's process had no \
        processor", "give the peer's process a processor: fewer programs that spin" }
    PeerGone { "peer-gone", PeerProgram, "the end of the peer's queue pair or process", "let the peer live \
        until its last message is acknowledged" }
    Failed { "failed", Program, "the status of a completion", "" }
    Flushed { "flushed", Program, "a queue pair that went to ERR without a request that failed", "see what \
        moved the queue pair to ERR: its states are in the trace" }
    Behind { "behind-others", Program, "requests that were posted before it", "post fewer at once, or spread \
        them over several queue pairs" }
    PeerDevice { "peer-device", PeerDevice, "the arrival of the request and the leave of its answer", "see \
        what the peer's process did meanwhile" }
    Network { "network", Network, "packets that went and came", "" }
    Beyond { "beyond", Beyond, "packets that went and came at this end", "record the peer as well (pumice \
        run --trace), and give both traces: then network and peer are told apart" }
    OwnDevice { "own-device", OwnDevice, "a request that waited to be sent", "see the states and repetitions \
        of the queue pair before" }
    ProgramIdle { "program-idle", Program, "a time in which no request was under way", "" }
    Logged { "logged", Program, "a sentence of the log about a queue pair", "" }
    ReceivePolledLate { "receive-polled-late", Program, "the completion of a receive request, and the poll \
        that found it later", "poll more often, or wait for completion events in a thread of its own" }
}

impl CauseKind {
    /// Reports whether the cause only says where the time went: nothing held the message up.
    pub const fn is_ordinary(self) -> bool {
        matches!(
            self,
            CauseKind::Behind
                | CauseKind::PeerDevice
                | CauseKind::Network
                | CauseKind::Beyond
                | CauseKind::OwnDevice
                | CauseKind::ProgramIdle
        )
    }
}

impl Serialize for CauseKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A cause of one message, or of an event of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageCause {
    /// Kind of the cause.
    pub kind: CauseKind,
    /// Rule of the fault plan that made it; `None` if no plan did.
    pub rule: Option<String>,
    /// Evidence of the cause, as a sentence without its full stop.
    pub sentence: String,
    /// Process that the cause belongs to, as an index in the timeline.
    #[serde(skip)]
    pub(super) process: usize,
    /// The RNR storm, if the peer refused again and again after a short time.
    #[serde(skip)]
    pub(super) storm: Option<RnrStorm>,
}

/// An RNR storm: RNR NAKs that repeat, because each asks for a short time only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RnrStorm {
    /// Time for which each NAK asks, in ns.
    pub(super) asked_ns: u64,
    /// Number of NAKs.
    pub(super) naks: usize,
}

impl RnrStorm {
    /// Minimum number of NAKs that count as a storm.
    const NAKS: usize = 16;
    /// Maximum time for which each NAK of a storm asks, in ns.
    const ASKED_NS: u64 = 500_000;

    /// Returns the storm, if these NAKs are one.
    pub(super) fn of(asked_ns: u64, naks: usize) -> Option<RnrStorm> {
        (naks >= RnrStorm::NAKS && asked_ns <= RnrStorm::ASKED_NS).then_some(RnrStorm { asked_ns, naks })
    }
}

impl MessageCause {
    pub(super) fn new(kind: CauseKind, process: usize, sentence: impl Into<String>) -> MessageCause {
        MessageCause { kind, rule: None, sentence: sentence.into(), process, storm: None }
    }

    /// Makes a cause that a rule of a fault plan made.
    pub(super) fn by_rule(kind: CauseKind, process: usize, rule: &str, did: &str) -> MessageCause {
        let sentence = format!("injected: the rule \"{rule}\" of the fault plan {did}");
        MessageCause { kind, rule: Some(rule.to_owned()), sentence, process, storm: None }
    }

    /// Returns the remedy.
    pub fn remedy(&self) -> Option<String> {
        match &self.rule {
            Some(rule) => Some(format!(
                "nothing in the network, at the peer or in the program, since it was injected: leave the \
                 rule \"{rule}\" out, or see how the program bears it"
            )),
            None => match self.storm {
                Some(RnrStorm { asked_ns, naks }) => Some(format!(
                    "post receive requests at the peer before messages come; a larger min_rnr_timer of the \
                     peer ends the storm of {naks} RNR NAKs, each of which asks for {} only and has the \
                     packets sent again",
                    time(asked_ns)
                )),
                None => Some(self.kind.remedy().to_owned()).filter(|remedy| !remedy.is_empty()),
            },
        }
    }

    /// Reports whether two causes are the same, so that their effects are told together.
    pub(super) fn is_same(&self, other: &MessageCause) -> bool {
        let same_owner = self.rule.is_some() || self.process == other.process;
        self.kind == other.kind && self.rule == other.rule && same_owner
    }
}
