//! Threads that wait for what does not come.

use pumice_calls::Call;
use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found};
use crate::check::kind::WAITS_IN_VAIN;
use crate::check::told::{Check, Effect};
use crate::waits::{Awaited, Vain};

/// Looks until a wait for others is told, one each 25 ms: two seconds, in which a program that only looks
/// for a while goes on.
const LOOKS: u32 = 80;

/// Something is waited for in vain, and no other finding tells of the queue that it is about.
#[derive(Debug, Default)]
pub(super) struct VainWaits {
    /// What is not told yet, and for how many looks.
    held: Option<(Found, u32)>,
    is_ended_by_signal: bool,
}

impl Check for VainWaits {
    fn forked(&mut self, _: &mut Context) {
        *self = VainWaits::default();
    }

    fn enters(&mut self, _: &mut Context, call: Call, _: u64) {
        if self.held.is_some() && !call.polls() {
            self.held = None;
        }
    }

    fn waits_in_vain(&mut self, context: &mut Context, vain: &Vain, stack: &Stack) {
        let own = context.own;
        let object = match vain.about {
            // A thread, and no queue pair.
            Awaited::Others(0) => Some("a thread".to_owned()),
            Awaited::Request(number) | Awaited::Others(number) => {
                context.qps.get(&number).map(|qp| qp.name.clone())
            }
            Awaited::Completions(number) => context.cqs.get(&own.handle(number)).map(|cq| cq.name.clone()),
            Awaited::Answer(_) | Awaited::Rejected(_) => Some("connection".to_owned()),
        };
        let Some(object) = object else { return };
        if !context.is_found_of(std::slice::from_ref(&object)) {
            let (numbers, stack) = (vain.sentence.clone(), stack.clone());
            let found = Found { object, numbers, stack, related: Vec::new() };
            match vain.about {
                Awaited::Others(_) => self.held = Some((found, 0)),
                _ => context.found(&WAITS_IN_VAIN, found),
            }
        }
    }

    fn is_ended_by_signal(&mut self, _: &mut Context) {
        self.is_ended_by_signal = true;
    }

    fn settles(&mut self, context: &mut Context, is_over: bool, _: &mut Vec<Effect>) {
        let is_ended = is_over && self.is_ended_by_signal;
        if let Some((_, looks)) = &mut self.held {
            *looks += 1;
        }
        if let Some((found, _)) = self.held.take_if(|(_, looks)| is_ended || *looks >= LOOKS) {
            context.found(&WAITS_IN_VAIN, found);
        }
    }
}
