//! Numbers and distances of the buffers that the messages of a plan use.

use crate::plan::{MAX_OUTSTANDING, Operation, Plan, Service};

/// Length in bytes of the area before a received datagram.
const GRH_BYTES: usize = 40;
/// Number of requests beyond the depth: for replies and credits.
pub(super) const SPARE_BUFFERS: usize = 64;
/// Largest number of receives of one queue pair.
const MAX_RECEIVES: usize = 8192;
/// Largest memory of receive buffers in bytes before messages share them.
const RECEIVE_BYTES: usize = 2 << 20;
pub(super) const CACHE_LINE: usize = 64;

/// Returns the number of receives posted to a queue at a time.
pub(crate) fn receives_per_queue(plan: &Plan) -> usize {
    match plan.operation {
        _ if plan.shared_receives() => 2 * MAX_OUTSTANDING,
        // The number is larger than what may be outstanding: the device acknowledges messages that the
        // application has yet to see.
        Operation::Send => {
            let count = (4 * plan.depth).min(MAX_RECEIVES) + SPARE_BUFFERS;
            // Receives that share buffers use them in turn; without the rounding, a buffer's turn would come
            // again while the message in it is still to be compared.
            if plan.qp_count == 1 { count.next_multiple_of(plan.buffer_count()) } else { count }
        }
        _ => SPARE_BUFFERS,
    }
}

/// Returns the number of bytes before each received message.
pub(super) fn grh_bytes(plan: &Plan) -> usize {
    if plan.service == Service::Ud { GRH_BYTES } else { 0 }
}

/// Returns the distance in bytes between buffers of outgoing messages.
pub(super) fn source_stride(plan: &Plan) -> usize {
    plan.size_bytes.next_multiple_of(CACHE_LINE)
}

/// Returns the distance in bytes between buffers of incoming messages.
pub(super) fn target_stride(plan: &Plan) -> usize {
    (plan.size_bytes + grh_bytes(plan)).next_multiple_of(CACHE_LINE)
}

/// Returns the number of buffers at the receiving side: one for each receive if a cache can hold that much
/// memory.
pub(super) fn target_buffers(plan: &Plan, receive_count: usize) -> usize {
    let each = receive_count.max(plan.buffer_count());
    if plan.operation == Operation::Send && each * target_stride(plan) <= RECEIVE_BYTES {
        each
    } else {
        plan.buffer_count()
            .max(plan.qp_count.min(MAX_OUTSTANDING) * usize::from(plan.operation == Operation::Atomic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    #[test]
    fn messages_in_a_row_have_buffers_of_their_own() {
        for size_bytes in [8, 1000, 5000, 4096, 70_000, 1 << 20] {
            for depth in [1, 16, 100, 256] {
                let plan = Plan { size_bytes, depth, ..plan(Operation::Send, Service::Uc) };
                let receives = receives_per_queue(&plan);
                let buffers = target_buffers(&plan, receives);
                assert!(receives.is_multiple_of(buffers), "{size_bytes}, {depth}: {receives} on {buffers}");
            }
        }
    }
}
