//! The effects of a fault plan: sentences of the log, and lines of its report.
//!
//! Asynchronous events that rules of a fault plan wait for: the rules are notified when the program has got
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{RelayThread, StepHook};
use pumice_faults::{ReportLine, Triggers};
use pumice_model::event::{
    Event, Subscriber, Topics, about_change, about_completion, about_completion_event,
};
use pumice_model::fates::PacketService;
use pumice_model::fates::fired::Fired;
use pumice_model::fates::live::RuleChange;
use pumice_model::fates::trigger::Occurrence;
use pumice_platform::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

/// A subscriber that notifies the rules which wait for asynchronous events.
pub struct AwaitedEvents(pub Arc<Triggers>);

impl Subscriber for AwaitedEvents {
    fn topics(&self) -> Topics {
        Topics::ASYNC_EVENTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::AsyncEventDelivered { event, .. } = event {
            self.0.note(Occurrence::Event(*event));
        }
    }
}

/// Number of sentences that may wait to be written; further ones are lost, and counted. The report loses
/// none.
const WAITING: usize = 1024;

/// The destination of a report: each call of `write` is one line. It reports itself when it ends
/// ([`OutputFile`](pumice_platform::outside::output_file::OutputFile)).
pub type ReportWriter = Box<dyn Write + Send>;

/// A function that opens the destination of a report.
pub type ReportSource = Box<dyn FnOnce() -> io::Result<ReportWriter> + Send>;

/// A subscriber that is notified of every rule that applies, and of rules that change while the program runs.
pub struct FaultReporter {
    /// The witness is also notified of calls; otherwise the code that asks the rules about calls writes them
    /// to the report.
    includes_calls: bool,
    /// Record of the process, which reports at the end of the process which rules never applied. Without it
    /// the witness reports them at the end of the device.
    unused_of_process: Option<Arc<UnusedRules>>,
    state: Mutex<ReporterState>,
}

/// The process and device whose faults a witness reports.
pub struct FaultOrigin {
    /// Tag of the process.
    pub tag: String,
    /// Seed of its plan.
    pub seed: u64,
    /// Name of the device, if the process has several.
    pub device: Option<String>,
}

/// The rules that devices of a process have not applied. The process reports at its end which were left, so
/// that the report of a device that is closed early is not made wrong by a later one.
#[derive(Debug, Default)]
pub struct UnusedRules(Mutex<BTreeMap<String, bool>>);

impl UnusedRules {
    /// Notes the rules of a device, and whether each has applied there.
    fn note(&self, rule: &str, has_applied: bool) {
        let mut rules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *rules.entry(rule.to_owned()).or_default() |= has_applied;
    }

    /// Returns the sentence for the end of the process, if rules were left. Does not wait for a lock:
    /// programs also end in signal handlers.
    pub fn sentence(&self) -> Option<String> {
        let rules = self.0.try_lock().ok()?;
        let left: Vec<&str> =
            rules.iter().filter(|(_, applied)| !**applied).map(|(rule, _)| &**rule).collect();
        (!left.is_empty()).then(|| never_applied(&left))
    }
}

/// Returns the sentence that rules never applied.
fn never_applied(rules: &[&str]) -> String {
    let names = rules.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
    format!("these rules of the fault plan never applied: {names}")
}

struct ReporterState {
    of: FaultOrigin,
    report: ReportOutput,
    sentences: SentenceOutput,
    /// Rules that have not applied yet.
    unused: BTreeSet<String>,
    /// The end has been reported.
    ended: bool,
}

/// The report; a process without rules has not begun it.
enum ReportOutput {
    Waits(Option<ReportSource>),
    Begun(Option<ReportWriter>),
}

/// The hook that takes sentences, on a thread of its own, which a process without rules does not have.
enum SentenceOutput {
    Wait(Option<StepHook>),
    Flow(Arc<RelayThread<String>>),
}

impl FaultReporter {
    /// Creates a witness of the rules of a process. If there are rules, the report begins now; otherwise with
    /// the first rule that comes while the program runs. `hook` takes sentences, on a thread of its own.
    ///
    /// # Errors
    /// Fails if the report cannot be opened.
    pub fn new(
        of: FaultOrigin,
        rules: BTreeSet<String>,
        report: Option<ReportSource>,
        hook: Option<StepHook>,
    ) -> io::Result<FaultReporter> {
        let mut state = ReporterState {
            of,
            report: ReportOutput::Waits(report),
            sentences: SentenceOutput::Wait(hook),
            unused: rules,
            ended: false,
        };
        if !state.unused.is_empty() {
            state.begin()?;
            state.sentences.begin()?;
        }
        Ok(FaultReporter { includes_calls: false, unused_of_process: None, state: Mutex::new(state) })
    }

    /// Sets whether the witness reports calls as well.
    #[must_use]
    pub fn of_calls(mut self, includes_calls: bool) -> FaultReporter {
        self.includes_calls = includes_calls;
        self
    }

    /// Sets the record of a process with several devices, perhaps, which reports at its end the rules that
    /// never applied.
    #[must_use]
    pub fn of_process(mut self, unused: Option<Arc<UnusedRules>>) -> FaultReporter {
        if let Some(unused) = &unused {
            self.lock().unused.iter().for_each(|rule| unused.note(rule, false));
        }
        self.unused_of_process = unused;
        self
    }

    /// Notes that a rule has applied.
    fn applied(&self, state: &mut ReporterState, rule: &str) {
        if state.unused.remove(rule)
            && let Some(unused) = &self.unused_of_process
        {
            unused.note(rule, true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports once which rules never applied.
    fn end(&self) {
        let mut state = self.lock();
        if matches!(state.report, ReportOutput::Waits(_)) || std::mem::replace(&mut state.ended, true) {
            return;
        }
        let never: Vec<String> = state.unused.iter().cloned().collect();
        if !never.is_empty() && self.unused_of_process.is_none() {
            let names: Vec<&str> = never.iter().map(String::as_str).collect();
            state.notify_operator(|| never_applied(&names));
        }
        let process = state.of.tag.clone();
        state.write(ReportLine::End { process, never, device: None });
    }

    /// Handles a rule that changed while the program runs.
    fn changed(&self, change: &RuleChange<'_>) {
        let mut state = self.lock();
        if matches!(state.report, ReportOutput::Waits(_)) {
            // There is no caller to report the error to if the report or the thread cannot be had.
            let _ = state.begin();
            let _ = state.sentences.begin();
        }
        state.write(ReportLine::of_change(change));
        state.notify_operator(|| about_change(change));
        // The code that asks about calls elsewhere also reports which rules about them never applied.
        if change.line.is_some() && (self.includes_calls || !change.is_of_calls) {
            state.unused.insert(change.rule.to_owned());
            if let Some(unused) = &self.unused_of_process {
                unused.note(change.rule, false);
            }
        }
    }
}

impl SentenceOutput {
    /// Starts the thread.
    fn begin(&mut self) -> io::Result<()> {
        let SentenceOutput::Wait(hook) = self else { return Ok(()) };
        let Some(hook) = hook.take() else { return Ok(()) };
        let take = move |sentence: String, lost: u64| {
            if lost > 0 {
                hook(&format!("{lost} more faults were applied: --fault-report keeps all of them"));
            }
            hook(&sentence);
        };
        let relay = RelayThread::start("pumice-faults", WAITING, take).map_err(io::Error::other)?;
        *self = SentenceOutput::Flow(Arc::new(relay));
        Ok(())
    }

    fn send(&self, sentence: impl FnOnce() -> String) {
        if let SentenceOutput::Flow(relay) = self {
            relay.send(sentence());
        }
    }

    fn relay(&self) -> Option<Arc<RelayThread<String>>> {
        if let SentenceOutput::Flow(relay) = self { Some(Arc::clone(relay)) } else { None }
    }
}

impl ReporterState {
    /// Opens the report, and writes the rules to it.
    fn begin(&mut self) -> io::Result<()> {
        let ReportOutput::Waits(source) = &mut self.report else { return Ok(()) };
        let source = source.take();
        self.report = ReportOutput::Begun(None);
        self.report = ReportOutput::Begun(source.map(|source| source()).transpose()?);
        let rules = self.unused.iter().cloned().collect();
        let (process, seed) = (self.of.tag.clone(), self.of.seed);
        self.write(ReportLine::Begin { process, seed, rules, device: None });
        Ok(())
    }

    fn write(&mut self, line: ReportLine) {
        if let ReportOutput::Begun(Some(report)) = &mut self.report {
            let line = line.on(self.of.device.as_deref());
            // A disk that is full must not end the program; the destination reports it.
            let _ = report.write_all(line.text().as_bytes());
        }
    }

    /// Passes a sentence to the operator's hook, with the device's name if there are several.
    fn notify_operator(&self, sentence: impl FnOnce() -> String) {
        self.sentences.send(|| match &self.of.device {
            Some(device) => format!("{device}: {}", sentence()),
            None => sentence(),
        });
    }
}

impl Subscriber for FaultReporter {
    fn topics(&self) -> Topics {
        Topics::FAULTS
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        match event {
            Event::FaultApplied { fault, qpn } => {
                let mut state = self.lock();
                self.applied(&mut state, fault.rule);
                state.write(ReportLine::of(fault));
                state.notify_operator(|| sentence(fault, *qpn));
            }
            Event::CallFaultApplied { fault } if self.includes_calls || fault.fate.incident.is_some() => {
                let mut state = self.lock();
                self.applied(&mut state, fault.rule);
                state.write(ReportLine::of_call(fault));
                state.notify_operator(|| fault.sentence());
            }
            Event::CompletionFaultApplied { fault, qpn } => {
                let mut state = self.lock();
                self.applied(&mut state, fault.rule);
                state.write(ReportLine::of_completion(fault));
                state.notify_operator(|| about_completion(fault, *qpn));
            }
            Event::CompletionEventFaultApplied { fault } => {
                let mut state = self.lock();
                self.applied(&mut state, fault.rule);
                state.write(ReportLine::of_completion_event(fault));
                state.notify_operator(|| about_completion_event(fault));
            }
            Event::FaultPlanChanged { change } => self.changed(change),
            _ => {}
        }
    }

    fn settle(&self, patience: Duration) {
        self.end();
        let relay = self.lock().sentences.relay();
        if let Some(relay) = relay {
            relay.settle(patience);
        }
    }

    fn finish(&self) {
        self.end();
        let relay = self.lock().sentences.relay();
        if let Some(relay) = relay {
            relay.finish();
        }
    }
}

/// Returns, in words, the effect of a rule on a packet.
fn sentence(fired: &Fired<'_>, qpn: Option<Qpn>) -> String {
    let Fired { rule, key, peer, .. } = fired;
    let done = fired.deed();
    let class = key.class.name();
    let again =
        if key.transmission > 1 { format!(", transmission {}", key.transmission) } else { String::new() };
    match (key.service, qpn) {
        (PacketService::Cm, _) | (_, None) => {
            format!(
                "fault \"{rule}\" {done} {class} of connection {} to {peer}{again}",
                Ordinal(key.connection)
            )
        }
        (_, Some(qpn)) => format!(
            "fault \"{rule}\" {done} {class} of message {}, packet {}, to {peer}{again} \
             (queue pair {}, QP {qpn})",
            key.message,
            key.packet,
            Ordinal(key.qp)
        ),
    }
}
