//! The objects that exist when a recording begins.

use pumice_model::recording::{Existing, QpSnapshot, RegionSnapshot};

use super::inspect::DeviceView;
use super::queue_pairs::QpEntry;

impl Existing for DeviceView<'_> {
    fn queue_pairs(&self, visit: &mut dyn FnMut(&QpSnapshot)) {
        for (_, QpEntry { qp, .. }) in self.queue_pairs.starting_at(0) {
            let context = qp.context();
            visit(&QpSnapshot {
                ordinal: context.ordinal,
                qpn: context.qpn.value(),
                send_cq: context.send_cq,
                recv_cq: context.recv_cq,
                service: qp.qp_type().name(),
                state: qp.state() as u8,
                connection: qp.connection(),
                peer: qp.peer().map(|(address, qpn)| (address, qpn.value())),
                next: qp.statistics().posted,
                sends: qp.unreported_sends(),
                receives: self.resources.objects.own_receives(context.recv_queue).unwrap_or(0),
                send_depth: qp.capacity().max_send_wr,
                reads: qp.max_rd_atomic(),
            });
        }
        self.visit_mrc_snapshots(visit);
    }

    fn regions(&self, visit: &mut dyn FnMut(&RegionSnapshot)) {
        self.resources.objects.for_each_region(visit);
    }

    fn completion_queues(&self, visit: &mut dyn FnMut(u32, u32)) {
        self.resources.objects.for_each_cq(visit);
    }
}
