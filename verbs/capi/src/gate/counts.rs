//! Numbers of calls of each name: in the process, and by each thread of the program.

use std::cell::RefCell;

use pumice_calls::{Call, Ordinals};
use pumice_device::hca::CallNumbers;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_device::outside::thread_name::ThreadName;
use pumice_device::platform::ordinal::CallOrdinal;

/// Counts of all calls of this process: a forked process counts from the beginning.
pub(super) static ALL: PerProcess<Ordinals> = PerProcess::new(|_| Ordinals::new());
/// Counts of the first thread, and of threads without a name.
static OTHER_THREADS: PerProcess<Ordinals> = PerProcess::new(|_| Ordinals::new());

thread_local! {
    /// Counts of this thread, if it has a name and is not the first one.
    static OWN: RefCell<Option<Box<Ordinals>>> = const { RefCell::new(None) };
}

/// Counts calls by thread: racing threads get the same ordinals in every run.
pub(super) struct ThreadCallCounts;

impl CallNumbers for ThreadCallCounts {
    fn add(&self, call: Call) -> u64 {
        ALL.add(call);
        let thread = ThreadName::own().filter(|name| *name != ThreadName::MAIN);
        let own = |thread: ThreadName| {
            let nth = OWN.try_with(|own| Some(own.try_borrow_mut().ok()?.get_or_insert_default().add(call)));
            Some(CallOrdinal::of_thread(thread, nth.ok().flatten()?).0)
        };
        // A thread that is ending has no count of its own any more.
        thread.and_then(own).unwrap_or_else(|| OTHER_THREADS.add(call))
    }

    fn take_back(&self, call: Call, ordinal: u64) {
        ALL.take_back(call);
        if CallOrdinal(ordinal).parts().0.is_none() {
            return OTHER_THREADS.take_back(call);
        }
        let _ = OWN.try_with(|own| {
            if let Some(own) = own.try_borrow().ok().as_ref().and_then(|own| own.as_ref()) {
                own.take_back(call);
            }
        });
    }
}
