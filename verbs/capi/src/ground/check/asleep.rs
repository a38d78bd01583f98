//! Which descriptors the threads of this process sleep for.

use crate::ground::thread_calls::threads;

/// Those of the descriptors for which a thread sleeps in poll(2), select(2) or epoll_wait(2), or in a call
/// like these.
pub(super) fn awaited(descriptors: &[i32]) -> Vec<i32> {
    let mut awaited = Vec::new();
    for call in threads().into_iter().filter_map(|thread| thread.call) {
        awaited.extend(descriptors.iter().copied().filter(|descriptor| call.awaits(*descriptor)));
    }
    awaited
}
