//! Threads that wait for what does not come.

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found};
use crate::check::kind::WAITS_IN_VAIN;
use crate::check::told::Check;
use crate::waits::{Awaited, Vain};

/// Something is waited for in vain, and no other finding tells of the queue that it is about.
#[derive(Debug, Default)]
pub(super) struct VainWaits;

impl Check for VainWaits {
    fn waits_in_vain(&mut self, context: &mut Context, vain: &Vain, stack: &Stack) {
        let own = context.own;
        let object = match vain.about {
            Awaited::Request(number) | Awaited::Others(number) => {
                context.qps.get(&number).map(|qp| qp.name.clone())
            }
            Awaited::Completions(number) => context.cqs.get(&own.handle(number)).map(|cq| cq.name.clone()),
            Awaited::Answer(_) | Awaited::Rejected(_) => Some("connection".to_owned()),
        };
        let Some(object) = object else { return };
        if !context.is_found_of(std::slice::from_ref(&object)) {
            let (numbers, stack) = (vain.sentence.clone(), stack.clone());
            context.found(&WAITS_IN_VAIN, Found { object, numbers, stack, related: Vec::new() });
        }
    }
}
