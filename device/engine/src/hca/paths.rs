//! The paths of queue pairs: from address vectors, with a UDP source port each.

use std::sync::Arc;

use pumice_model::addresses::{DevicePort, PkeyTable, Ports, address_handle};
use pumice_model::port::Port;
use pumice_model::port::batch::Peer;
use pumice_platform::error::ResourceError;
use pumice_transport::path::Path;
use pumice_transport::qp::{
    AlternatePath, AttributeMask, ModifyError, QpAttributes, QueuePair, ResolvedPath,
};
use pumice_transport::types::{AddressVector, Mtu};
use pumice_transport::wire::{Qpn, source_port};

use crate::engine::{read_limit_packets, window_limit_packets};

/// The parts from which paths of queue pairs are made.
pub(super) struct Paths<'a> {
    ports: &'a Ports,
    port: &'a mut dyn Port,
    now_ns: u64,
    /// The UDP source port that was computed for a path, and the one that replaces it.
    pub(super) replaced: Option<(u16, u16)>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(ports: &'a Ports, port: &'a mut dyn Port, now_ns: u64) -> Paths<'a> {
        Paths { ports, port, now_ns, replaced: None }
    }

    /// Returns the path of an address vector from a queue pair to another one.
    fn path(&mut self, vector: &AddressVector, local: Qpn, remote: Qpn) -> Result<Path, ResourceError> {
        let mut path = address_handle::resolve(vector, self.ports)?;
        let peer = Peer { address: path.flow.destination, process: remote.process() };
        let computed = match path.flow_label {
            // One batch in a ring carries the packets of many connections.
            0 if self.port.coalesces_flows(peer) => source_port::FIRST,
            //= statement:5
            //| A queue pair sends from the port that its flow label or both queue pair numbers say.
            label => source_port::of_connection(label, local, remote),
        };
        path.flow.source_port = computed;
        let given = self.port.source_port(self.now_ns, &path.flow);
        path.flow.source_port = given;
        if given != computed {
            self.replaced = Some((computed, given));
        }
        Ok(path)
    }

    /// Returns the path that attributes give a connected queue pair, with the limits of the way.
    pub(super) fn resolved(
        &mut self,
        qp: &QueuePair,
        attributes: &QpAttributes,
        mask: AttributeMask,
        active_mtu: Mtu,
    ) -> Result<ResolvedPath, ResourceError> {
        let remote = remote_of(qp, attributes, mask);
        let path = self.path(&attributes.address_vector, qp.context().qpn, remote)?;
        let mtu_bytes = match Mtu::from_verbs(attributes.path_mtu) {
            Some(mtu) if mask.contains(AttributeMask::PATH_MTU) => mtu.bytes(),
            _ => active_mtu.bytes(),
        };
        let peer = Peer { address: path.flow.destination, process: remote.process() };
        self.port.expects(self.now_ns, &path, peer);
        let limits = self.port.limits(peer);
        Ok(ResolvedPath {
            path: Arc::new(path),
            window_limit_packets: window_limit_packets(&limits),
            read_limit_packets: read_limit_packets(&limits, mtu_bytes),
        })
    }

    /// Returns the partition and the alternate path that attributes name by indices of the tables of a port.
    pub(super) fn named_by_tables(
        &mut self,
        port: Option<&DevicePort>,
        qp: &QueuePair,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(Option<u16>, Option<AlternatePath>), ResourceError> {
        let has = |bit| mask.contains(bit);
        let pkey = match port {
            Some(port) if has(AttributeMask::PKEY_INDEX) => {
                Some(partition(&port.pkeys, attributes.pkey_index)?)
            }
            _ => None,
        };
        if !has(AttributeMask::ALT_PATH) {
            return Ok((pkey, None));
        }
        let remote = remote_of(qp, attributes, mask);
        let path = self.path(&attributes.alt_address_vector, qp.context().qpn, remote)?;
        let pkeys = &self.ports.require(attributes.alt_port_num)?.pkeys;
        let pkey_of_path = partition(pkeys, attributes.alt_pkey_index)?;
        Ok((pkey, Some(AlternatePath { path: Arc::new(path), pkey: pkey_of_path })))
    }
}

/// Returns the queue pair that a queue pair is connected to when attributes have been applied.
fn remote_of(qp: &QueuePair, attributes: &QpAttributes, mask: AttributeMask) -> Qpn {
    Qpn::new(match mask.contains(AttributeMask::DEST_QPN) {
        true => attributes.dest_qp_num,
        false => qp.query().dest_qp_num,
    })
}

/// Returns the empty entry of the GID table that is behind a destination which is no address: programs give
/// their peers what `ibv_query_gid` returned for the index, and get it back.
pub(super) fn empty_gid_entry(
    ports: &Ports,
    attributes: &QpAttributes,
    error: &ModifyError,
) -> Option<ResourceError> {
    let ModifyError::BadDestination { attribute, .. } = error else { return None };
    let vector = match *attribute {
        "ah_attr" => &attributes.address_vector,
        _ => &attributes.alt_address_vector,
    };
    ports.get(vector.port_num)?.gids.entry(vector.sgid_index).err()
}

/// Returns the key at an index; an empty entry is no partition.
fn partition(pkeys: &PkeyTable, index: u16) -> Result<u16, ResourceError> {
    match pkeys.pkey(index.into())? {
        0 => {
            Err(ResourceError::invalid(format!("P_Key index {index} is empty; index 0 has the default key")))
        }
        pkey => Ok(pkey),
    }
}
