//! Calls that are refused because of what the program asks for, or that a rule of the fault plan fails or
//! slows.

use std::collections::BTreeSet;

use pumice_calls::{Call, CallAction, CallObject};
use pumice_model::event::{Event, fault_in_words};
use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts};
use crate::check::kind::{CALL_REFUSED, FAILURE_INJECTED};
use crate::check::notified::{Check, ExplainedFailure, QueueName};
use crate::waits::StalledWait;

/// Number of rules that are reported; further ones are in the fault report only.
const MAX_RULES: usize = 256;

/// The record of rules that applied to something else than a packet: the consequences are no mistake of the
/// program, of its peer or of the network. Each rule is reported when it applies first, and counted from then
/// on.
#[derive(Debug, Default)]
pub(super) struct Planned {
    rules: BTreeSet<String>,
}

impl Check for Planned {
    fn forget(&mut self, of: Option<QueueName>) {
        if of.is_none() {
            self.rules.clear();
        }
    }

    fn on_event(&mut self, context: &mut CheckContext, event: &Event<'_>) {
        let rule = match event {
            Event::CallFaultApplied { fault } => fault.rule,
            Event::CompletionFaultApplied { fault, .. } => fault.rule,
            Event::CompletionEventFaultApplied { fault } => fault.rule,
            _ => return,
        };
        let object = format!("rule \"{rule}\" of the fault plan");
        if self.rules.contains(rule) {
            return context.found_again(&FAILURE_INJECTED, &object);
        }
        let Some(words) = fault_in_words(event).filter(|_| self.rules.len() < MAX_RULES) else { return };
        self.rules.insert(rule.to_owned());
        let numbers = words.replacen(&format!("fault \"{rule}\""), &object, 1);
        let stack = context.here();
        context.found(&FAILURE_INJECTED, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}

/// Number of refusals that are stored until it is known whether the program was only probing.
const MAX_PENDING: usize = 64;

/// The check for refused calls which only a mistake of the program makes fail.
///
/// Programs also call in order to probe: they register memory to see whether that can be done, make objects
/// that may be too large, bind ports that may be taken. A program that probes goes on with another call: such
/// a refusal is a mistake if the program ends and never got that far. Calls on a full queue are not reported.
#[derive(Debug, Default)]
pub(super) struct RefusedCalls {
    pending: Vec<PendingRefusal>,
    /// Last post that a full queue refused, until another one is accepted: a program that ignores the refusal
    /// waits for a completion that does not come.
    full: Option<PendingRefusal>,
}

/// A refusal that may be the answer to a probe.
#[derive(Debug)]
struct PendingRefusal {
    call: Call,
    sentence: String,
    stack: Stack,
}

/// The meaning of a refusal.
enum RefusalMeaning {
    Mistake,
    /// A mistake, or the answer to a probe.
    Answer,
    Usual,
}

impl Check for RefusedCalls {
    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        if !self.pending.is_empty() {
            self.pending.retain(|pending| !found_alternative(pending.call, call));
        }
    }

    fn object_made(&mut self, _: &mut CheckContext, _: &'static str, call: &'static str, _: &Stack) {
        if !self.pending.is_empty() {
            let made = Call::of(call).and_then(|call| call.row().act.made());
            self.pending
                .retain(|pending| pending.call.row().act.made().is_none_or(|wanted| made != Some(wanted)));
        }
    }

    fn forked(&mut self, _: &mut CheckContext) {
        self.pending.clear();
    }

    fn call_refused(&mut self, context: &mut CheckContext, call: Call, errno: i32, sentence: &str) {
        match refusal(call, errno) {
            RefusalMeaning::Mistake => {
                let stack = context.here();
                report(context, call, sentence.to_owned(), stack);
            }
            RefusalMeaning::Answer if self.pending.len() < MAX_PENDING => {
                let (sentence, stack) = (sentence.to_owned(), context.here());
                self.pending.push(PendingRefusal { call, sentence, stack });
            }
            RefusalMeaning::Usual if call.posts() && errno == libc::ENOMEM => {
                let (sentence, stack) = (sentence.to_owned(), context.here());
                self.full = Some(PendingRefusal { call, sentence, stack });
            }
            RefusalMeaning::Answer | RefusalMeaning::Usual => {}
        }
    }

    fn send_posted(&mut self, _: &mut CheckContext, _: u32, _: bool) {
        self.full = None;
    }

    fn wait_stalled(&mut self, context: &mut CheckContext, _: &StalledWait, _: &Stack) {
        if let Some(PendingRefusal { call, sentence, stack }) = self.full.take() {
            let sentence = format!("{sentence}. The program goes on as if it had been posted");
            report(context, call, sentence, stack);
        }
    }

    fn settles(&mut self, context: &mut CheckContext, is_over: bool, _: &mut Vec<ExplainedFailure>) {
        if is_over {
            for PendingRefusal { call, sentence, stack } in self.pending.drain(..) {
                report(context, call, sentence, stack);
            }
        }
    }
}

fn report(context: &mut CheckContext, call: Call, numbers: String, stack: Stack) {
    // Otherwise another finding describes this call in more detail.
    if !context.is_found_at(&stack) {
        let object = call.name().to_owned();
        context.found(&CALL_REFUSED, FindingParts { object, numbers, stack, related: Vec::new() });
    }
}

/// Reports whether a program that was refused this call has found another way when it makes that one.
fn found_alternative(refused: Call, call: Call) -> bool {
    let is_address = matches!(refused, Call::rdma_bind_addr | Call::rdma_resolve_addr);
    is_address
        && (call == refused
            || matches!(call, Call::rdma_listen | Call::rdma_resolve_route | Call::rdma_join_multicast))
}

/// Returns the meaning of a call's failure with this errno.
fn refusal(call: Call, errno: i32) -> RefusalMeaning {
    let row = call.row();
    let is_mistake = match row.act {
        // Programs learn from a full queue that they have to poll.
        CallAction::Post => matches!(errno, libc::EINVAL | libc::EFAULT | libc::EPERM),
        // The call waits for the users of the object, which then stays.
        CallAction::Destroy => errno == libc::EBUSY,
        CallAction::Create(CallObject::AddressHandle) => errno == libc::EINVAL,
        CallAction::Create(_) if matches!(errno, libc::EINVAL | libc::EFAULT | libc::EPERM) => {
            return RefusalMeaning::Answer;
        }
        // Programs call it in any case before they end.
        _ if call == Call::rdma_disconnect => false,
        _ if matches!(call, Call::rdma_bind_addr | Call::rdma_resolve_addr) && is_of_address(errno) => {
            return RefusalMeaning::Answer;
        }
        _ if call == Call::ibv_modify_qp => !matches!(errno, libc::EOPNOTSUPP | libc::EIO | libc::ETIMEDOUT),
        CallAction::Change | CallAction::Listen => errno == libc::EINVAL && row.on != CallObject::Process,
        _ => false,
    };
    if is_mistake { RefusalMeaning::Mistake } else { RefusalMeaning::Usual }
}

/// Reports whether this errno says that an address or a port is not available, and another one may be.
const fn is_of_address(errno: i32) -> bool {
    matches!(
        errno,
        libc::EADDRINUSE
            | libc::EADDRNOTAVAIL
            | libc::EAFNOSUPPORT
            | libc::ENODEV
            | libc::ENETUNREACH
            | libc::EHOSTUNREACH
    )
}
