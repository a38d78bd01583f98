//! Any bytes as packets for queue pair 1 of a device that listens and connects: nothing panics, tables stay
//! within their limits, and when the program has gone, time removes everything.

use std::sync::Arc;

use pumice_device::gsi::{CmChannel, ServiceEntry};
use pumice_transport::cm::{
    AcceptParams, BacklogOverflow, CmEvent, CmPath, ConnectParams, ListenScope, MadRoute, Served, SidrReply,
};
use pumice_transport::mad::{PortSpace, ServiceId};
use pumice_transport::types::{Access, Gid, Mtu};
use pumice_transport::wire::{Psn, Qpn};

use super::scene::{FuzzScene, packets};

const BACKLOG: usize = 4;
/// Longer than all timers of the connection manager together.
const FOR_EVER_NS: u64 = 5_000_000_000_000;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let mut scene = FuzzScene::new(Access::empty());
    let hca = Arc::clone(&scene.hca);
    let channel = Arc::new(CmChannel::new().unwrap());
    let tcp = ServiceId::rdma_cm(PortSpace::Tcp, 1);
    let mut bindings = Vec::new();
    for service_id in [tcp, ServiceId::rdma_cm(PortSpace::Udp, 1)] {
        let entry = ServiceEntry { service_id, mask: u64::MAX, scope: ListenScope::Everywhere };
        let binding = hca.cm_bind(&entry).unwrap();
        hca.cm_listen(binding, Served::Anything, BACKLOG, BacklogOverflow::Reject, &channel).unwrap();
        bindings.push(binding);
    }
    let address = |last: u8| Gid::from(std::net::Ipv4Addr::new(10, 0, 0, last));
    let route = MadRoute { local: address(1), remote: address(9), ..MadRoute::default() };
    let params = ConnectParams::new(tcp, CmPath::new(route, Mtu::Mtu1024), Qpn::new(0x22), Psn::new(0));
    let mut ids = vec![hca.cm_connect(&params, &channel).unwrap()];
    let mut events = 0;
    for packet in packets(bytes) {
        scene.inject(Qpn::GSI, packet);
        scene.answers();
        assert!(hca.cm_connection_count() <= 4096, "what is refused leaves nothing");
        while let Some(event) = hca.cm_event(&channel) {
            events += 1;
            ids.push(event.id());
            match event {
                CmEvent::ConnectRequest { id, .. } => {
                    let _ = hca.cm_accept(id, &AcceptParams::new(Qpn::new(0x22), Psn::new(0)));
                }
                CmEvent::ConnectResponse { id, .. } => drop(hca.cm_send_rtu(id, &[])),
                CmEvent::SidrRequest { id, .. } => {
                    let _ = hca.cm_sidr_reply(id, &SidrReply::queue_pair(Qpn::new(0x22), 1, &[]));
                }
                _ => {}
            }
        }
    }
    bindings.into_iter().for_each(|binding| hca.cm_unbind(binding).unwrap());
    ids.into_iter().for_each(|id| drop(hca.cm_destroy(id)));
    scene.world.run_until(FOR_EVER_NS, || hca.cm_connection_count() == 0);
    assert_eq!((hca.cm_connection_count(), channel.queued()), (0, 0));
    events
}
