//! What a fault plan did: sentences for the operator, and the report, which is itself a plan.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pumice_transport::wire::Qpn;

use super::kinds::{Event, Topics};
use super::relay::Relay;
use super::steps::StepHook;
use super::subscribers::Subscriber;
use crate::faults::{Fired, PacketService, ReportLine};
use crate::ground::error::ResourceError;

/// Sentences that wait to be written; beyond that they are lost, and counted. The report loses none.
const WAITING: usize = 1024;

/// Where a report is written to: each call of `write` is one line.
pub type ReportWriter = Box<dyn Write + Send>;

/// Hears of every rule that applies.
pub struct FaultWitness {
    tag: String,
    sentences: Option<Relay<String>>,
    state: Mutex<State>,
}

struct State {
    report: Option<ReportWriter>,
    /// Rules that have not applied yet.
    unused: BTreeSet<String>,
    /// The end has been said.
    ended: bool,
}

impl FaultWitness {
    /// A witness of the rules of a process; begins the report. `hook` takes sentences, on a thread of its
    /// own.
    ///
    /// # Errors
    /// The operating system has no thread to give.
    pub(crate) fn new(
        tag: &str,
        seed: u64,
        rules: BTreeSet<String>,
        report: Option<ReportWriter>,
        hook: Option<StepHook>,
    ) -> Result<FaultWitness, ResourceError> {
        let start = |hook: StepHook| {
            let take = move |sentence: String, lost: u64| {
                if lost > 0 {
                    hook(&format!("{lost} more faults were applied: --fault-report keeps all of them"));
                }
                hook(&sentence);
            };
            Relay::start("pumice-faults", WAITING, take)
        };
        let sentences = hook.map(start).transpose()?;
        let begin =
            ReportLine::Begin { process: tag.to_owned(), seed, rules: rules.iter().cloned().collect() };
        let mut state = State { report, unused: rules, ended: false };
        state.write(&begin);
        Ok(FaultWitness { tag: tag.to_owned(), sentences, state: Mutex::new(state) })
    }

    /// Says which rules never applied, once.
    fn end(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        let never: Vec<String> = state.unused.iter().cloned().collect();
        if let (Some(sentences), false) = (&self.sentences, never.is_empty()) {
            let names = never.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
            sentences.send(format!("these rules of the fault plan never applied: {names}"));
        }
        state.write(&ReportLine::End { process: self.tag.clone(), never });
    }
}

impl State {
    fn write(&mut self, line: &ReportLine) {
        if let Some(report) = &mut self.report {
            // A disk that is full must not end the program; the missing end of the report tells of it.
            let _ = report.write_all(line.text().as_bytes());
        }
    }
}

impl Subscriber for FaultWitness {
    fn topics(&self) -> Topics {
        Topics::FAULTS
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        let Event::FaultApplied { fault, qpn } = event else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.unused.remove(fault.rule);
        state.write(&ReportLine::of(fault));
        if let Some(sentences) = &self.sentences {
            sentences.send(sentence(fault, *qpn));
        }
    }

    fn settle(&self, patience: Duration) {
        self.end();
        if let Some(sentences) = &self.sentences {
            sentences.settle(patience);
        }
    }

    fn finish(&self) {
        self.end();
        if let Some(sentences) = &self.sentences {
            sentences.finish();
        }
    }
}

/// What a rule did, in words.
fn sentence(fired: &Fired<'_>, qpn: Option<Qpn>) -> String {
    let Fired { rule, key, fate, peer, .. } = fired;
    let mut done = Vec::new();
    let mut say = |happens: bool, text: String| {
        if happens {
            done.push(text);
        }
    };
    say(fired.partition_ns.is_some(), "begins a partition from".to_owned());
    say(fate.lost && fired.partition_ns.is_none(), "loses".to_owned());
    say(fate.copies > 0, format!("sends {} more of", fate.copies));
    say(fate.delay_ns > 0, format!("delays by {} us", fate.delay_ns / 1000));
    say(fate.behind_packets > 0, format!("puts behind {} packets", fate.behind_packets));
    say(fate.flips.is_some(), "corrupts".to_owned());
    say(fate.kept_bytes.is_some(), format!("cuts to {} bytes", fate.kept_bytes.unwrap_or(0)));
    say(fate.marked, "marks".to_owned());
    let done = done.join(", ");
    let class = key.class.name();
    let again =
        if key.transmission > 1 { format!(", transmission {}", key.transmission) } else { String::new() };
    match (key.service, qpn) {
        (PacketService::Cm, _) | (_, None) => {
            format!("fault \"{rule}\" {done} {class} of connection {} to {peer}{again}", key.connection)
        }
        (_, Some(qpn)) => format!(
            "fault \"{rule}\" {done} {class} of message {}, packet {}, to {peer}{again} \
             (queue pair {}, QP {qpn})",
            key.message, key.packet, key.qp
        ),
    }
}
