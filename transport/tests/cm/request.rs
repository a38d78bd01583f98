//! A request for a reliable connection without a fault: what is wrong with a test's, the test
//! says.

use std::net::IpAddr;

use pumice_transport::mad::{CommId, Ece, IpHeader, PathFields, PrivateData, Req, ServiceId, TransportType};
use pumice_transport::types::Gid;
use pumice_transport::wire::{Psn, Qpn};

/// From port 4000 of `source`. The sender's id, node, queue pair and first PSN are `number`: with another it
/// is another sender's.
pub(crate) fn request(number: u32, service_id: ServiceId, source: IpAddr, destination: IpAddr) -> Req {
    Req {
        local_id: CommId(number),
        service_id,
        local_ca_guid: u64::from(number),
        ece: Ece::default(),
        local_q_key: 0,
        local_qpn: Qpn::new(number),
        responder_resources: 1,
        local_eecn: 0,
        initiator_depth: 1,
        remote_eecn: 0,
        remote_response_timeout: 20,
        transport: TransportType::Rc,
        flow_control: false,
        starting_psn: Psn::new(number),
        local_response_timeout: 20,
        retry_count: 7,
        pkey: 0xffff,
        path_mtu: 3,
        rdc_exists: false,
        rnr_retry_count: 7,
        max_cm_retries: 15,
        srq: false,
        primary: PathFields {
            local_gid: Gid::from(source),
            remote_gid: Gid::from(destination),
            hop_limit: 64,
            local_ack_timeout: 17,
            ..PathFields::default()
        },
        alternate: PathFields::default(),
        private_data: PrivateData::new(&IpHeader { source_port: 4000, source, destination }.emit()).unwrap(),
    }
}
