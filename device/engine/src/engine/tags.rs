//! Requests of the device itself, on the send queues of queue pairs whose shared receive queue matches tags.

use pumice_memory::MappingCheck;
use pumice_transport::types::PostError;

use super::queue_pairs::QueuePairs;
use super::schedule::Ready;
use crate::resources::Resources;

impl QueuePairs {
    /// Posts what is due. A request for which its queue pair has no room stays due.
    #[cold]
    pub(super) fn post_device_requests(&mut self, resources: &mut Resources, touched: &mut Ready) {
        resources.rendezvous.is_due = false;
        let mut from = 0;
        while let Some((next, request)) = resources.device_request(from) {
            from = next;
            let Some((index, entry)) = self.by_number(request.qpn) else { continue };
            let posted = entry.qp.post_send(&request.request(), &mut resources.host(MappingCheck::Assumed));
            match posted {
                Ok(()) => {
                    resources.device_request_posted(&request);
                    touched.push(index);
                }
                Err(PostError::QueueFull { .. }) => continue,
                Err(_) => resources.device_request_refused(entry.qp.context(), &request),
            }
            // The list has become shorter.
            from = 0;
        }
    }
}
