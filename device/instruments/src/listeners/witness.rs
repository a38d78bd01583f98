//! What a fault plan did: sentences for the operator, and the report, which is itself a plan.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_events::{Event, Subscriber, Topics};
use pumice_faults::completion_events::CompletionEventFired;
use pumice_faults::completions::CompletionFired;
use pumice_faults::live::LiveChange;
use pumice_faults::{Fired, PacketService, ReportLine};
use pumice_ground::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

use super::relay::Relay;
use super::steps::StepHook;

/// Sentences that wait to be written; beyond that they are lost, and counted. The report loses none.
const WAITING: usize = 1024;

/// Where a report is written to: each call of `write` is one line. It says itself when it ends
/// ([`OutputFile`](pumice_ground::outside::output_file::OutputFile)).
pub type ReportWriter = Box<dyn Write + Send>;

/// Opens what a report is written to.
pub type ReportSource = Box<dyn FnOnce() -> io::Result<ReportWriter> + Send>;

/// Hears of every rule that applies, and of rules that change while the program runs.
pub struct FaultWitness {
    /// It also hears of calls; else what asks the rules about them writes that down.
    hears_calls: bool,
    state: Mutex<State>,
}

/// Whose faults a witness hears of.
pub struct Faulted {
    /// The tag of the process.
    pub tag: String,
    /// The seed of its plan.
    pub seed: u64,
    /// The name of the device, if the process has several.
    pub device: Option<String>,
}

struct State {
    of: Faulted,
    report: ReportOutput,
    sentences: Sentences,
    /// Rules that have not applied yet.
    unused: BTreeSet<String>,
    /// The end has been said.
    ended: bool,
}

/// The report; a process without rules has not begun it.
enum ReportOutput {
    Waits(Option<ReportSource>),
    Begun(Option<ReportWriter>),
}

/// What takes sentences, on a thread of its own, which a process without rules has not.
enum Sentences {
    Wait(Option<StepHook>),
    Flow(Arc<Relay<String>>),
}

impl FaultWitness {
    /// A witness of the rules of a process. If there are rules, the report begins now; else with the first
    /// one that comes while the program runs. `hook` takes sentences, on a thread of its own.
    ///
    /// # Errors
    /// The report cannot be opened.
    pub fn new(
        of: Faulted,
        rules: BTreeSet<String>,
        report: Option<ReportSource>,
        hook: Option<StepHook>,
    ) -> io::Result<FaultWitness> {
        let mut state = State {
            of,
            report: ReportOutput::Waits(report),
            sentences: Sentences::Wait(hook),
            unused: rules,
            ended: false,
        };
        if !state.unused.is_empty() {
            state.begin()?;
            state.sentences.begin()?;
        }
        Ok(FaultWitness { hears_calls: false, state: Mutex::new(state) })
    }

    /// Also of calls.
    #[must_use]
    pub fn of_calls(mut self, hears_calls: bool) -> FaultWitness {
        self.hears_calls = hears_calls;
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which rules never applied, once.
    fn end(&self) {
        let mut state = self.lock();
        if matches!(state.report, ReportOutput::Waits(_)) || std::mem::replace(&mut state.ended, true) {
            return;
        }
        let never: Vec<String> = state.unused.iter().cloned().collect();
        if !never.is_empty() {
            let names = never.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            state.say(|| format!("these rules of the fault plan never applied: {names}"));
        }
        let process = state.of.tag.clone();
        state.write(ReportLine::End { process, never, device: None });
    }

    /// A rule changed while the program runs.
    fn changed(&self, change: &LiveChange<'_>) {
        let mut state = self.lock();
        if matches!(state.report, ReportOutput::Waits(_)) {
            // There is no caller to be told that the report or the thread is not to be had.
            let _ = state.begin();
            let _ = state.sentences.begin();
        }
        state.write(ReportLine::of_change(change));
        state.say(|| about_change(change));
        // What asks about calls elsewhere also says which rules about them never applied.
        if change.line.is_some() && (self.hears_calls || !change.is_of_calls) {
            state.unused.insert(change.rule.to_owned());
        }
    }
}

impl Sentences {
    /// Starts the thread.
    fn begin(&mut self) -> io::Result<()> {
        let Sentences::Wait(hook) = self else { return Ok(()) };
        let Some(hook) = hook.take() else { return Ok(()) };
        let take = move |sentence: String, lost: u64| {
            if lost > 0 {
                hook(&format!("{lost} more faults were applied: --fault-report keeps all of them"));
            }
            hook(&sentence);
        };
        let relay = Relay::start("pumice-faults", WAITING, take).map_err(io::Error::other)?;
        *self = Sentences::Flow(Arc::new(relay));
        Ok(())
    }

    fn send(&self, sentence: impl FnOnce() -> String) {
        if let Sentences::Flow(relay) = self {
            relay.send(sentence());
        }
    }

    fn relay(&self) -> Option<Arc<Relay<String>>> {
        if let Sentences::Flow(relay) = self { Some(Arc::clone(relay)) } else { None }
    }
}

impl State {
    /// Opens the report, and says which rules there are.
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
            // A disk that is full must not end the program; what is written to says so.
            let _ = report.write_all(line.text().as_bytes());
        }
    }

    /// Tells the operator, who is told of the device as well if there are several.
    fn say(&self, sentence: impl FnOnce() -> String) {
        self.sentences.send(|| match &self.of.device {
            Some(device) => format!("{device}: {}", sentence()),
            None => sentence(),
        });
    }
}

impl Subscriber for FaultWitness {
    fn topics(&self) -> Topics {
        Topics::FAULTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        match event {
            Event::FaultApplied { fault, qpn } => {
                let mut state = self.lock();
                state.unused.remove(fault.rule);
                state.write(ReportLine::of(fault));
                state.say(|| sentence(fault, *qpn));
            }
            Event::CallFaultApplied { fault } if self.hears_calls || fault.fate.incident.is_some() => {
                let mut state = self.lock();
                state.unused.remove(fault.rule);
                state.write(ReportLine::of_call(fault));
                state.say(|| fault.sentence());
            }
            Event::CompletionFaultApplied { fault, qpn } => {
                let mut state = self.lock();
                state.unused.remove(fault.rule);
                state.write(ReportLine::of_completion(fault));
                state.say(|| about_completion(fault, *qpn));
            }
            Event::CompletionEventFaultApplied { fault } => {
                let mut state = self.lock();
                state.unused.remove(fault.rule);
                state.write(ReportLine::of_completion_event(fault));
                state.say(|| about_completion_event(fault));
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

/// What a fault plan did to anything but a packet, in words; `None`: that is no such event.
pub fn fault_in_words(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::CallFaultApplied { fault } => fault.sentence(),
        Event::CompletionFaultApplied { fault, qpn } => about_completion(fault, *qpn),
        Event::CompletionEventFaultApplied { fault } => about_completion_event(fault),
        Event::FaultPlanChanged { change } => about_change(change),
        _ => return None,
    })
}

/// What became of a rule while the program runs, in words.
fn about_change(change: &LiveChange<'_>) -> String {
    let LiveChange { rule, what, line, .. } = change;
    match line {
        Some(line) => format!("fault \"{rule}\" {what} while the program runs: {line}"),
        None => format!("fault \"{rule}\" {what} while the program runs"),
    }
}

/// What a rule did to a completion, in words.
fn about_completion(fired: &CompletionFired<'_>, qpn: Qpn) -> String {
    let CompletionFired { rule, key, fate, .. } = fired;
    let mut done = Vec::new();
    if let Some(status) = fate.status {
        done.push(format!("ends with {} instead of success", status.name()));
    }
    if fate.delay_ns > 0 {
        done.push(format!("comes {} us later", fate.delay_ns / 1000));
    }
    if let Some(until) = &fate.until {
        done.push(format!("is held until \"{until}\""));
    }
    let (done, class, message) = (done.join(", "), key.class.name(), key.message);
    format!("fault \"{rule}\": {class} request {message} {done} (queue pair {}, QP {qpn})", Ordinal(key.qp))
}

/// What a rule did to an event of a completion channel, in words.
fn about_completion_event(fired: &CompletionEventFired<'_>) -> String {
    let CompletionEventFired { rule, key, fate, .. } = fired;
    let mut done = Vec::new();
    if fate.delay_ns > 0 {
        done.push(format!("comes {} us later", fate.delay_ns / 1000));
    }
    if fate.more > 0 {
        done.push(format!("waits for {} more completions, or {} us", fate.more, fate.within_ns / 1000));
    }
    format!("fault \"{rule}\": event {} of completion queue {} {}", key.nth, Ordinal(key.cq), done.join(", "))
}

/// What a rule did to a packet, in words.
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
