//! The effect of a fault plan on calls, completions and its own rules, in words.

use crate::event::Event;
use crate::fates::fired::CompletionEventFired;
use crate::fates::fired::CompletionFired;
use crate::fates::live::RuleChange;
use pumice_platform::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

/// Returns, in words, the effect of a fault plan on anything but a packet; `None` if the event is none.
pub fn fault_in_words(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::CallFaultApplied { fault } => fault.sentence(),
        Event::CompletionFaultApplied { fault, qpn } => about_completion(fault, *qpn),
        Event::CompletionEventFaultApplied { fault } => about_completion_event(fault),
        Event::FaultPlanChanged { change } => about_change(change),
        _ => return None,
    })
}

/// Returns, in words, the change of a rule while the program runs.
pub fn about_change(change: &RuleChange<'_>) -> String {
    let RuleChange { rule, what, line, .. } = change;
    match line {
        Some(line) => format!("fault \"{rule}\" {what} while the program runs: {line}"),
        None => format!("fault \"{rule}\" {what} while the program runs"),
    }
}

/// Returns, in words, the effect of a rule on a completion.
pub fn about_completion(fired: &CompletionFired<'_>, qpn: Qpn) -> String {
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

/// Returns, in words, the effect of a rule on an event of a completion channel.
pub fn about_completion_event(fired: &CompletionEventFired<'_>) -> String {
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
