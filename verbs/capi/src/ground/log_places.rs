//! Where the program posted the requests that the log tells of: another thread writes it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::outside::lineage::PerProcess;
use pumice_transport::event::QpEvent;
use pumice_transport::types::Cause;
use pumice_transport::wire::Qpn;

use super::check;

/// Places that wait to be written.
const MOST: usize = 16;

/// Queue pairs, and return addresses of the program's frames, innermost first.
type Noted = Vec<(Qpn, Vec<u64>)>;

/// Return addresses of the thread that posted, by queue pair.
static PLACES: PerProcess<Mutex<Noted>> = PerProcess::new(|_| Mutex::default());

fn lock() -> MutexGuard<'static, Noted> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hears of requests that are wrong, in the thread that posts them, before the log does.
struct Posts;

impl Subscriber for Posts {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn hear(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(cause) } = event
            && is_of_a_post(cause)
        {
            let mut places = lock();
            if places.len() < MOST {
                places.push((qp.qpn, check::own_stack()));
            }
        }
    }
}

/// Whether the program is told of this while it posts.
const fn is_of_a_post(cause: &Cause) -> bool {
    matches!(cause, Cause::NoReadDepth { .. } | Cause::RequestFaulty { .. })
}

/// It listens, if findings do not have the places.
pub(crate) fn subscriber() -> Option<Box<dyn Subscriber>> {
    (!check::is_on()).then(|| -> Box<dyn Subscriber> { Box::new(Posts) })
}

/// Lines of the log that say where a request was posted that this is about; none if that is not known.
pub(super) fn take(qpn: Qpn, cause: &Cause) -> Vec<String> {
    if !is_of_a_post(cause) {
        return Vec::new();
    }
    let mut places = lock();
    let Some(index) = places.iter().position(|(known, _)| *known == qpn) else { return Vec::new() };
    let (_, stack) = places.remove(index);
    drop(places);
    check::place_of(&stack)
}
