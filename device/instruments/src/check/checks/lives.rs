//! Lives of objects: those that are used when they are gone, and those that are left.

use pumice_ground::call_stack::Stack;

use crate::check::context::{Context, Found, related};
use crate::check::kind::{OBJECT_OF_OTHER_CONTEXT, OBJECTS_LEFT, USED_AFTER_DESTROY, USED_AFTER_FORK};
use crate::check::objects::Object;
use crate::check::told::Check;

/// The program uses objects that are not its own any more, or does not destroy them.
#[derive(Debug, Default)]
pub(super) struct Lives;

impl Check for Lives {
    fn object_left_behind(&mut self, context: &mut Context, object: &Object) {
        let stack = context.here();
        tell_left(context, object, stack, "when its device was closed");
    }

    fn used(&mut self, context: &mut Context, address: u64, call: &str) {
        if let Some(gone) = context.objects.gone(address).cloned() {
            let stack = context.here();
            let name = gone.object.name();
            let related = vec![
                related(format!("{name} was destroyed here"), &gone.destroyed),
                related(format!("{name} was made here"), &gone.object.made),
            ];
            let numbers = format!("{call} is given {name}, which is destroyed");
            context.found(&USED_AFTER_DESTROY, Found { object: name, numbers, stack, related });
        } else if let Some(object) = context.objects.inherited(address).cloned() {
            let stack = context.here();
            let name = object.name();
            let numbers = format!("the child calls {call} with {name} of its parent");
            let related = vec![related(format!("{name} was made here, by the parent"), &object.made)];
            context.found(&USED_AFTER_FORK, Found { object: name, numbers, stack, related });
        }
    }

    fn of_other_context(&mut self, context: &mut Context, object: &str) {
        let stack = context.here();
        let numbers = format!("the {object} is of another context");
        let found = Found { object: object.to_owned(), numbers, stack, related: Vec::new() };
        context.found(&OBJECT_OF_OTHER_CONTEXT, found);
    }

    fn ends(&mut self, context: &mut Context) {
        for object in context.objects.live() {
            let stack = object.made.clone();
            tell_left(context, &object, stack, "at the end of the process");
        }
    }
}

fn tell_left(context: &mut Context, object: &Object, stack: Stack, when: &str) {
    if object.is_excused {
        return;
    }
    let name = object.name();
    let numbers = format!("{name}, made by {}, was there {when}", object.call);
    let related = vec![related(format!("{name} was made here"), &object.made)];
    context.found(&OBJECTS_LEFT, Found { object: name, numbers, stack, related });
}
