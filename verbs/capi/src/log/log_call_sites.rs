//! Call sites of the posted requests that log messages are about: another thread writes the log.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::event::QpEvent;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use crate::call_sites::call_site;
use crate::call_sites::state;

/// Largest number of call sites that wait to be written.
const MAX_CALL_SITES: usize = 16;

/// Queue pairs, and return addresses of the program's frames, innermost first.
type PostCallSites = Vec<(Qpn, Vec<u64>)>;

/// Return addresses of the thread that posted, by queue pair.
static CALL_SITES: PerProcess<Mutex<PostCallSites>> = PerProcess::new(|_| Mutex::default());

fn lock() -> MutexGuard<'static, PostCallSites> {
    CALL_SITES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A subscriber that is notified of wrong requests in the thread that posts them, before the log writes about
/// them.
struct PostSubscriber;

impl Subscriber for PostSubscriber {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(cause) } = event
            && is_of_a_call(cause)
        {
            let mut call_sites = lock();
            if call_sites.len() < MAX_CALL_SITES {
                call_sites.push((qp.qpn, call_site::call_stack()));
            }
        }
    }
}

/// Reports whether the program makes the call that causes this while it is reported.
const fn is_of_a_call(cause: &Cause) -> bool {
    matches!(cause, Cause::NoReadDepth { .. } | Cause::RequestFaulty { .. } | Cause::DroppedByReset { .. })
}

/// Returns the subscriber, unless findings have the call sites already.
pub(crate) fn subscriber() -> Option<Box<dyn Subscriber>> {
    (!state::is_on()).then(|| -> Box<dyn Subscriber> { Box::new(PostSubscriber) })
}

/// Takes the lines of the log that say where the request of a cause was posted; empty if that is not known.
pub(crate) fn take(qpn: Qpn, cause: &Cause) -> Vec<String> {
    if !is_of_a_call(cause) {
        return Vec::new();
    }
    let mut call_sites = lock();
    let Some(index) = call_sites.iter().position(|(known, _)| *known == qpn) else { return Vec::new() };
    let (_, stack) = call_sites.remove(index);
    drop(call_sites);
    call_site::call_site_lines(&stack)
}
