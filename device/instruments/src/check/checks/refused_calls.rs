//! Calls that are refused because of what the program asks for.

use pumice_calls::Call;

use crate::check::context::{Context, Found};
use crate::check::kind::CALL_REFUSED;
use crate::check::told::Check;

/// A call was refused which only a mistake of the program makes fail.
///
/// Programs also ask in order to learn: they register memory to see whether that can be done, make objects
/// that may be too large, post until a queue is full. Such calls are answered, and nothing is said of them.
#[derive(Debug, Default)]
pub(super) struct RefusedCalls;

impl Check for RefusedCalls {
    fn call_refused(&mut self, context: &mut Context, call: Call, errno: i32, sentence: &str) {
        if is_mistake(call, errno) {
            let (object, numbers) = (call.name().to_owned(), sentence.to_owned());
            let stack = context.here();
            if context.is_found_at(&stack) {
                // Another finding says more of this call.
                return;
            }
            context.found(&CALL_REFUSED, Found { object, numbers, stack, related: Vec::new() });
        }
    }
}

/// Whether a correct program does not get this errno from this call.
fn is_mistake(call: Call, errno: i32) -> bool {
    match call {
        // A queue that is full is how programs know that they have to poll.
        _ if call.posts() => matches!(errno, libc::EINVAL | libc::EFAULT | libc::EPERM),
        Call::ibv_modify_qp => !matches!(errno, libc::EOPNOTSUPP | libc::EIO | libc::ETIMEDOUT),
        Call::ibv_modify_srq | Call::ibv_modify_wq | Call::ibv_modify_cq => errno == libc::EINVAL,
        _ => false,
    }
}
