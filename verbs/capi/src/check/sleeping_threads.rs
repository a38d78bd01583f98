//! The descriptors that the threads of this process sleep on.

use crate::platform::thread_calls::threads;

/// Returns those of the descriptors on which a thread sleeps in poll(2), select(2), epoll_wait(2), or a call
/// like these.
pub(super) fn awaited(descriptors: &[i32]) -> Vec<i32> {
    let mut awaited = Vec::new();
    for call in threads().into_iter().filter_map(|thread| thread.call) {
        awaited.extend(descriptors.iter().copied().filter(|descriptor| call.awaits(*descriptor)));
    }
    awaited
}
