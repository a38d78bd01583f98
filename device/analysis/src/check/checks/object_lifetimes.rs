//! Lives of objects: those that are used after their end, and those that are never destroyed.

use pumice_platform::call_stack::Stack;

use crate::check::context::{CheckContext, FindingParts, related};
use crate::check::kind::{OBJECT_OF_OTHER_CONTEXT, OBJECTS_LEFT, USED_AFTER_DESTROY, USED_AFTER_FORK};
use crate::check::notified::Check;
use crate::check::objects::Object;

/// The check for objects that the program uses after it gave them back, or does not destroy.
#[derive(Debug, Default)]
pub(super) struct ObjectLifetimes;

impl Check for ObjectLifetimes {
    fn object_left_behind(&mut self, context: &mut CheckContext, object: &Object) {
        let stack = context.here();
        report_left(context, object, stack, "when its device was closed");
    }

    fn used(&mut self, context: &mut CheckContext, address: u64, call: &str) {
        if let Some(former) = context.objects.former(address).cloned() {
            let stack = context.here();
            let name = former.object.name();
            let related = vec![
                related(format!("{name} was destroyed here"), &former.destroyed),
                related(format!("{name} was made here"), &former.object.made),
            ];
            let numbers = format!("{call} is given {name}, which is destroyed");
            context.found(&USED_AFTER_DESTROY, FindingParts { object: name, numbers, stack, related });
        } else if let Some(object) = context.objects.inherited(address).cloned() {
            let stack = context.here();
            let name = object.name();
            let numbers = format!("the child calls {call} with {name} of its parent");
            let related = vec![related(format!("{name} was made here, by the parent"), &object.made)];
            context.found(&USED_AFTER_FORK, FindingParts { object: name, numbers, stack, related });
        }
    }

    fn of_other_context(&mut self, context: &mut CheckContext, object: &str) {
        let stack = context.here();
        let numbers = format!("the {object} is of another context");
        let found = FindingParts { object: object.to_owned(), numbers, stack, related: Vec::new() };
        context.found(&OBJECT_OF_OTHER_CONTEXT, found);
    }

    fn ends(&mut self, context: &mut CheckContext) {
        for object in context.objects.live() {
            let stack = object.made.clone();
            report_left(context, &object, stack, "at the end of the process");
        }
    }
}

fn report_left(context: &mut CheckContext, object: &Object, stack: Stack, when: &str) {
    if object.is_excused {
        return;
    }
    let name = object.name();
    let numbers = format!("{name}, made by {}, was there {when}", object.call);
    let related = vec![related(format!("{name} was made here"), &object.made)];
    context.found(&OBJECTS_LEFT, FindingParts { object: name, numbers, stack, related });
}
