//! The rules by which threads take turns driving the engine: values that get inputs and return actions.
//!
//! The rules read no clock, no atomic and no descriptor. [`Policy`] decides for the background thread, and
//! `background.rs` executes its actions. [`call_wakes`] and [`Idling`] decide for application threads.
//! `handover.rs` is the encoding in atomics of the facts that the two sides exchange.
//!
//! **Invariant**: the background thread does not wait on the port's descriptors while an application thread
//! polls. A second waiter would be woken by every packet and compete for the engine's lock (measured: p99 of
//! 2 ms on two cores).

mod idling;
mod rules;
#[cfg(test)]
mod table_tests;

use rules::{PortWatch, ReceiveRestraint, SpinBeforeSleep};

pub(crate) use idling::{EmptyPoll, Idling, Yielded};

/// The time without polls of the application after which the thread takes over, in ns. The thread also checks
/// in this interval whether the application polls.
pub(crate) const TICK_NS: u64 = 1_000_000;
/// The same interval while the application spins: each check costs it about 10 µs, which shows in its p99 if
/// checks are a percent of its messages.
pub(crate) const SPINNING_TICK_NS: u64 = 10_000_000;
/// The same interval while a completion queue is armed: the application may sleep by now, although it polled
/// a moment ago.
pub(crate) const ARMED_TICK_NS: u64 = 500_000;
/// Number of empty polls between two checks beyond which the application counts as spinning.
pub(crate) const SPINNING_POLLS: u64 = 500;
/// Number of empty polls between two checks beyond which polls are microseconds apart, so that one of them
/// may leave to a later one what can wait.
pub(crate) const DENSE_POLLS: u64 = 2_000;
/// The time without polls of the application after which packets count as left in the port, in ns.
pub(crate) const SILENCE_NS: u64 = 50_000;
/// The longest sleep of the thread while something waits to be sent, in ns.
pub(crate) const BACKLOG_SLEEP_NS: u64 = 1_000_000;
/// The end that the thread announces when it sleeps until something wakes it.
pub(crate) const FOREVER_NS: u64 = u64::MAX;

/// The activity of application threads, as the background thread sees it when a turn begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ApplicationActivity {
    /// Number of polls of empty queues so far. Only changes matter.
    pub(crate) polls: u64,
    /// Number of application threads that wait for an event and drive meanwhile.
    pub(crate) waiters: u64,
    /// True if a completion queue is armed.
    pub(crate) armed: bool,
    /// True if an application thread asked the background thread to take over at once.
    pub(crate) called: bool,
}

/// The result of an [`PolicyAction`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyInput {
    /// Result of [`PolicyAction::BeginTurn`].
    Turn(ApplicationActivity),
    /// Result of [`PolicyAction::StandBy`]: the number of polls so far.
    StandByEnded { polls: u64 },
    /// Result of [`PolicyAction::Listen`]: the number of polls so far, and whether unacknowledged messages
    /// would find no receive request.
    Listened { polls: u64, short_of_receives: bool },
    /// Result of [`PolicyAction::Peek`]: whether packets were in the port.
    Peeked { found: bool },
    /// Result of [`PolicyAction::CheckReceives`]: whether unacknowledged messages would find no receive
    /// request.
    Receives { short: bool },
    /// Result of [`PolicyAction::Abstain`]: the wait is over.
    Abstained,
    /// Result of [`PolicyAction::Drive`]: something was done.
    Progressed,
    /// Result of [`PolicyAction::Drive`]: nothing was done. The engine has to be driven at `deadline_ns`;
    /// `backlog`: something waits to be sent.
    Idle { deadline_ns: Option<u64>, backlog: bool },
    /// Result of [`PolicyAction::Yield`]: how long other threads had the processor.
    Yielded { took_ns: u64 },
    /// Result of [`PolicyAction::Sleep`]: how long the sleep was, whether driving after it did something, and
    /// whether there were packets.
    Woke { slept_ns: u64, progressed: bool, found: bool },
}

/// The next action of the background thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PolicyAction {
    /// Begin a turn: read what application threads have done.
    BeginTurn,
    /// Wait for the bell, not for packets: the application drives.
    StandBy { for_ns: u64 },
    /// Wait for the bell again, to see whether the application polls in this time.
    Listen { for_ns: u64 },
    /// Drive, unless another thread does.
    Peek,
    /// Ask the engine whether receive requests run out.
    CheckReceives,
    /// Wait for the bell: packets stay in the port until the application has posted receive requests.
    Abstain { for_ns: u64 },
    /// Drive the engine.
    Drive,
    /// Yield the processor to other threads.
    Yield,
    /// Wait for packets and for the bell, then drive. The thread announces `until_ns` to application threads
    /// before it releases the engine's lock. Without `for_ns` only packets and the bell end the wait.
    Sleep { until_ns: u64, for_ns: Option<u64> },
}

/// The rules of the background thread, and their state.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    /// The number of polls when the last turn began.
    polls: u64,
    /// True if there were more than [`DENSE_POLLS`] between the last two turns.
    dense: bool,
    /// The number of polls when the last check for silence began.
    polls_before_silence: u64,
    /// True if the thread has abstained; it then drives in the next turn whether the application polls or
    /// not.
    has_abstained: bool,
    /// True if this turn waits on the port although the application polls now and then.
    watching: bool,
    port_watch: PortWatch,
    restraint: ReceiveRestraint,
    spin: SpinBeforeSleep,
}

impl Policy {
    /// Returns the rules for a thread that starts after the application has polled `polls` times.
    pub(crate) fn new(polls: u64) -> Policy {
        Policy { polls, ..Policy::default() }
    }

    /// Returns the action after `input`, at `now_ns`.
    pub(crate) fn next(&mut self, now_ns: u64, input: PolicyInput) -> PolicyAction {
        match input {
            PolicyInput::Turn(signals) => self.begin_turn(signals),
            PolicyInput::StandByEnded { polls } => {
                // Packets prove nothing while this very thread keeps the application from polling: the
                // application must have been silent for a moment in which it could run.
                self.polls_before_silence = polls;
                PolicyAction::Listen { for_ns: SILENCE_NS }
            }
            PolicyInput::Listened { polls, short_of_receives } => {
                let restrained = self.restraint.holds(short_of_receives, now_ns);
                if polls == self.polls_before_silence && !restrained {
                    return PolicyAction::Peek;
                }
                self.port_watch.peeked(false, now_ns);
                PolicyAction::BeginTurn
            }
            PolicyInput::Peeked { found } => {
                self.port_watch.peeked(found, now_ns);
                PolicyAction::BeginTurn
            }
            PolicyInput::Receives { short } if self.restraint.holds(short, now_ns) => {
                self.has_abstained = true;
                PolicyAction::Abstain { for_ns: TICK_NS }
            }
            PolicyInput::Receives { .. } => PolicyAction::Drive,
            PolicyInput::Abstained => PolicyAction::BeginTurn,
            PolicyInput::Progressed => {
                self.spin.progressed(now_ns);
                PolicyAction::BeginTurn
            }
            PolicyInput::Idle { .. } if !self.watching && self.spin.continues(now_ns) => PolicyAction::Yield,
            PolicyInput::Idle { deadline_ns, backlog } => PolicyAction::Sleep {
                until_ns: deadline_ns.unwrap_or(FOREVER_NS),
                for_ns: match deadline_ns {
                    _ if backlog => Some(BACKLOG_SLEEP_NS),
                    deadline_ns => deadline_ns.map(|at_ns| at_ns.saturating_sub(now_ns)),
                },
            },
            PolicyInput::Yielded { took_ns } => {
                self.spin.yielded(took_ns);
                PolicyAction::BeginTurn
            }
            PolicyInput::Woke { slept_ns, progressed, found } => {
                self.spin.slept(slept_ns);
                if progressed {
                    self.spin.progressed(now_ns);
                }
                if self.watching {
                    self.port_watch.woke(found, now_ns);
                }
                PolicyAction::BeginTurn
            }
        }
    }

    /// Reports whether the application polled very often between the last two turns.
    pub(crate) const fn polls_are_dense(&self) -> bool {
        self.dense
    }

    fn begin_turn(&mut self, signals: ApplicationActivity) -> PolicyAction {
        let new_polls = signals.polls.wrapping_sub(self.polls);
        self.polls = signals.polls;
        self.dense = new_polls > DENSE_POLLS;
        self.watching = self.port_watch.lasts() && signals.waiters == 0;
        let application_drives = new_polls != 0 || signals.waiters > 0;
        let called = signals.called | std::mem::take(&mut self.has_abstained);
        if !application_drives || self.watching || called {
            return PolicyAction::CheckReceives;
        }
        let may_sleep = signals.armed && signals.waiters == 0;
        let for_ns = match may_sleep {
            true => ARMED_TICK_NS,
            false if new_polls > SPINNING_POLLS => SPINNING_TICK_NS,
            false => TICK_NS,
        };
        PolicyAction::StandBy { for_ns }
    }
}

/// The work that a call of an application thread leaves in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PendingWork {
    /// The time at which the engine has to be driven although nothing arrives, in ns.
    pub(crate) deadline_ns: Option<u64>,
    /// True if something waits to be sent.
    pub(crate) backlog: bool,
}

/// Reports whether a call that leaves `left` wakes the background thread, which sleeps until
/// `sleeping_until_ns`. What the call leaves would otherwise wait for the next packet: the packets that would
/// have woken the thread have been taken.
pub(crate) fn call_wakes(sleeping_until_ns: u64, left: PendingWork) -> bool {
    left.backlog || left.deadline_ns.is_some_and(|at_ns| at_ns < sleeping_until_ns)
}

/// Reports whether arming a completion queue wakes the background thread. The application is about to sleep.
/// If it has slept in a call of this device lately it will do so again and drive from there; if not, the
/// thread takes over at once.
pub(crate) fn arming_calls(waits_here: bool) -> bool {
    !waits_here
}
