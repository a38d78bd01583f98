//! Requests of the device itself, on the send queues of queue pairs whose shared receive queue matches tags.

use pumice_transport::types::PostError;

use super::Engine;
use pumice_memory::MappingCheck;

impl Engine {
    /// Posts what is due. A request for which its queue pair has no room stays due.
    #[cold]
    pub(super) fn post_device_requests(&mut self) {
        self.resources.rendezvous.is_due = false;
        let mut from = 0;
        while let Some((next, request)) = self.resources.device_request(from) {
            from = next;
            let Some((index, entry)) = self.queue_pairs.by_number(request.qpn) else { continue };
            let posted =
                entry.qp.post_send(&request.request(), &mut self.resources.host(MappingCheck::Assumed));
            match posted {
                Ok(()) => {
                    self.resources.device_request_posted(&request);
                    self.turns.touched.push(index);
                }
                Err(PostError::QueueFull { .. }) => continue,
                Err(_) => self.resources.device_request_refused(entry.qp.context(), &request),
            }
            // The list has become shorter.
            from = 0;
        }
    }
}
