//! Destinations of datagrams.

use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::platform::table::Handle;
use pumice_transport::path::Path;
use pumice_transport::types::{AddressVector, Gid, UdDestination};
use pumice_transport::wire::Qpn;

use super::ProtectionDomain;
use crate::device::calls::gated_call;
use crate::error::{Result, VerbsError};
use crate::transport::PathOptions;

/// The data that others need to send datagrams to a queue pair. Exchange it out of band, as its 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdEndpoint {
    /// Address.
    pub gid: Gid,
    /// Queue pair number.
    pub qpn: Qpn,
    /// Q_Key: datagrams with another one are dropped.
    pub qkey: u32,
}

impl UdEndpoint {
    /// Length of the encoded form in bytes.
    pub const LEN: usize = 24;

    /// Encodes GID (16 bytes), queue pair number (4) and Q_Key (4); big-endian.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let parts = [&self.gid.0[..], &self.qpn.value().to_be_bytes(), &self.qkey.to_be_bytes()];
        bytes.iter_mut().zip(parts.into_iter().flatten()).for_each(|(to, &from)| *to = from);
        bytes
    }

    /// Decodes what [`UdEndpoint::to_bytes`] encoded.
    pub fn from_bytes(bytes: &[u8; 24]) -> UdEndpoint {
        let number = |from: usize| bytes.iter().skip(from).take(4).fold(0, |sum, &b| sum << 8 | u32::from(b));
        let mut gid = [0; 16];
        gid.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        UdEndpoint { gid: Gid(gid), qpn: Qpn::new(number(16)), qkey: number(20) }
    }
}

/// A path to a port or multicast group. Cheap to clone; destroyed with its last clone.
#[derive(Debug, Clone)]
pub struct AddressHandle(Arc<AddressInner>);

#[derive(Debug)]
struct AddressInner {
    domain: ProtectionDomain,
    handle: Handle,
    path: Arc<Path>,
}

impl ProtectionDomain {
    /// Creates an address handle from the local address `gid_index` to `gid`. A datagram has no path MTU to
    /// choose: `path.mtu` is ignored.
    ///
    /// # Errors
    /// `Refused`: no such index, or addresses of different IP versions.
    pub fn address_handle(&self, gid: Gid, gid_index: u32, path: &PathOptions) -> Result<AddressHandle> {
        let vector = AddressVector {
            is_global: true,
            dgid: gid,
            sgid_index: gid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            flow_label: path.flow_label,
            port_num: 1,
            sl: path.service_level,
            ..AddressVector::default()
        };
        let (handle, path) = gated_call(self.device(), Call::ibv_create_ah, || {
            let made = self.device().hca().create_ah(self.handle(), &vector);
            made.map_err(VerbsError::refused("address handle"))
        })?;
        Ok(AddressHandle(Arc::new(AddressInner { domain: self.clone(), handle, path })))
    }

    /// Returns the address of a datagram endpoint, from GID index 0.
    ///
    /// # Errors
    /// The errors of [`ProtectionDomain::address_handle`].
    pub fn ud_address(&self, endpoint: &UdEndpoint) -> Result<UdAddress> {
        let handle = self.address_handle(endpoint.gid, 0, &PathOptions::default())?;
        Ok(handle.queue_pair(endpoint.qpn, endpoint.qkey))
    }
}

impl AddressHandle {
    /// Returns the address of a queue pair there, for members of `qkey`. With the top bit of `qkey` set, the
    /// sending queue pair's own Q_Key is sent.
    pub fn queue_pair(&self, qpn: Qpn, qkey: u32) -> UdAddress {
        UdAddress { handle: self.clone(), qpn, qkey }
    }

    /// Returns the address of all queue pairs attached to the multicast group there, for members of `qkey`.
    pub fn multicast(&self, qkey: u32) -> UdAddress {
        self.queue_pair(Qpn::MULTICAST, qkey)
    }
}

impl Drop for AddressInner {
    fn drop(&mut self) {
        let _ = self.domain.device().hca().destroy_ah(self.handle);
    }
}

/// The destination of a datagram.
#[derive(Debug, Clone)]
pub struct UdAddress {
    handle: AddressHandle,
    /// Queue pair at the destination.
    pub qpn: Qpn,
    /// Q_Key that is sent.
    pub qkey: u32,
}

impl UdAddress {
    pub(crate) fn destination(&self) -> UdDestination {
        UdDestination { path: Arc::clone(&self.handle.0.path), qpn: self.qpn, qkey: self.qkey }
    }
}
