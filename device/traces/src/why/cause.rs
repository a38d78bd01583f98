//! The table of causes: what each is called, whose it is, which records show it, and what to change.

use serde::{Serialize, Serializer};

/// Makes the enum of causes and their table.
macro_rules! causes {
    ($($name:ident { $word:literal, $whose:ident, $needs:literal, $remedy:literal })*) => {
        /// Why a message took its time, or failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each has a row with its words")]
        pub enum CauseKind {
            $($name,)*
        }

        impl CauseKind {
            /// All of them.
            pub const ALL: &'static [CauseKind] = &[$(CauseKind::$name,)*];

            /// Its name, as JSON has it.
            pub const fn name(self) -> &'static str {
                match self { $(CauseKind::$name => $word,)* }
            }

            /// Whose time it is.
            pub const fn whose(self) -> Whose {
                match self { $(CauseKind::$name => Whose::$whose,)* }
            }

            /// The records that it is judged by.
            pub const fn needs(self) -> &'static str {
                match self { $(CauseKind::$name => $needs,)* }
            }

            /// What to change, if no plan made it; empty: nothing.
            pub const fn remedy(self) -> &'static str {
                match self { $(CauseKind::$name => $remedy,)* }
            }
        }
    };
}

/// Whose the time of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whose {
    /// The program that posted it.
    Program,
    /// The device of that program.
    OwnDevice,
    /// What is between the devices.
    Network,
    /// The device of the peer.
    PeerDevice,
    /// The program of the peer.
    PeerProgram,
    /// The network or the peer: its trace would tell.
    Beyond,
}

impl Whose {
    /// All of them, in the order of a message's way.
    pub const ALL: [Whose; 6] = [
        Whose::Program,
        Whose::OwnDevice,
        Whose::Network,
        Whose::PeerDevice,
        Whose::PeerProgram,
        Whose::Beyond,
    ];

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Whose::Program => "the program",
            Whose::OwnDevice => "its device",
            Whose::Network => "the network",
            Whose::PeerDevice => "the peer's device",
            Whose::PeerProgram => "the peer's program",
            Whose::Beyond => "network or peer",
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
    /// Whether it says no more than where the time went: nothing held the message up.
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

/// A cause of one message, or of a moment of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Which one.
    pub kind: CauseKind,
    /// The rule of a fault plan that made it; none if no plan did.
    pub rule: Option<String>,
    /// How it shows, in a sentence without its full stop.
    pub sentence: String,
    /// The process that it is of: an index in the timeline.
    #[serde(skip)]
    pub(super) process: usize,
}

impl Cause {
    pub(super) fn new(kind: CauseKind, process: usize, sentence: impl Into<String>) -> Cause {
        Cause { kind, rule: None, sentence: sentence.into(), process }
    }

    /// The same by a rule of a fault plan.
    pub(super) fn by_rule(kind: CauseKind, process: usize, rule: &str, did: &str) -> Cause {
        let sentence = format!("injected: the rule \"{rule}\" of the fault plan {did}");
        Cause { kind, rule: Some(rule.to_owned()), sentence, process }
    }

    /// What to change.
    pub fn remedy(&self) -> Option<String> {
        match &self.rule {
            Some(rule) => Some(format!(
                "nothing in the network, at the peer or in the program, since it was injected: leave the \
                 rule \"{rule}\" out, or see how the program bears it"
            )),
            None => Some(self.kind.remedy().to_owned()).filter(|remedy| !remedy.is_empty()),
        }
    }

    /// Whether two are one: effects of the same cause are told together.
    pub(super) fn is_same(&self, other: &Cause) -> bool {
        let same_owner = self.rule.is_some() || self.process == other.process;
        self.kind == other.kind && self.rule == other.rule && same_owner
    }
}
