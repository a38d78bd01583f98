//! Forks of programs with registered memory.

use pumice_calls::Call;

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::FORK_WITHOUT_INIT;
use crate::check::notified::Check;
use crate::check::objects::REGION;

/// The check for programs that fork, have memory registered, and have not prepared for forks.
#[derive(Debug, Default)]
pub(super) struct Forks {
    /// The program has asked for safe forks, or queried whether forks are safe.
    are_known: bool,
}

impl Check for Forks {
    fn enters(&mut self, _: &mut CheckContext, call: Call, _: u64) {
        self.are_known |= call == Call::ibv_fork_init;
    }

    fn prepared_for_forks(&mut self) {
        self.are_known = true;
    }

    fn forks(&mut self, context: &mut CheckContext) {
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
        context.found(&FORK_WITHOUT_INIT, FindingParts { object, numbers, stack, related });
    }
}
