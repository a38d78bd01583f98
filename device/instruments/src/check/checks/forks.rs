//! Forks beside registered memory.

use pumice_calls::Call;

use crate::check::context::{Context, Found, counted, related};
use crate::check::kind::FORK_WITHOUT_INIT;
use crate::check::objects::REGION;
use crate::check::told::Check;

/// The program forks, has memory registered, and has not cared for forks.
#[derive(Debug, Default)]
pub(super) struct Forks {
    /// The program has asked for safe forks, or asked whether they are.
    are_known: bool,
}

impl Check for Forks {
    fn enters(&mut self, _: &mut Context, call: Call, _: u64) {
        self.are_known |= call == Call::ibv_fork_init;
    }

    fn cares_for_forks(&mut self) {
        self.are_known = true;
    }

    fn forks(&mut self, context: &mut Context) {
        let regions = context.objects.count(REGION);
        if regions == 0 || self.are_known {
            return;
        }
        let stack = context.here();
        let first = context.objects.live().into_iter().find(|object| object.kind == REGION);
        let related: Vec<_> =
            first.iter().map(|one| related(format!("{} was made here", one.name()), &one.made)).collect();
        let object = first.map(|one| one.name()).unwrap_or_default();
        let numbers = format!("registered at the fork: {}", counted(regions as u64, REGION));
        context.found(&FORK_WITHOUT_INIT, Found { object, numbers, stack, related });
    }
}
