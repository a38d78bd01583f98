//! Connecting queue pairs, with the data that peers exchange out of band.

use std::fmt;
use std::marker::PhantomData;

use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{AddressVector, Gid, Mtu, QpState};
use pumice_transport::wire::Qpn;

use super::{MODIFY, QueuePair};
use crate::error::{Result, VerbsError};
use crate::transport::{ConnectOptions, Connected, Transport};

/// The data that a peer needs to connect to a queue pair. Exchange it out of band, as its 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Endpoint<T> {
    /// Address.
    pub gid: Gid,
    /// Queue pair number.
    pub qpn: Qpn,
    /// First PSN that the queue pair sends; 24 bits.
    pub psn: u32,
    /// Largest path MTU of its port: the connection uses the smaller one of both ends.
    pub mtu: Mtu,
    transport: PhantomData<T>,
}

impl<T: Transport> Endpoint<T> {
    /// Length of the encoded form in bytes.
    pub const LEN: usize = 24;

    /// Creates an endpoint whose parts were exchanged by other means.
    pub fn new(gid: Gid, qpn: Qpn, psn: u32, mtu: Mtu) -> Endpoint<T> {
        Endpoint { gid, qpn, psn: psn & 0xff_ffff, mtu, transport: PhantomData }
    }

    /// Encodes GID (16 bytes), transport (1), queue pair number (3), path MTU (1) and PSN (3); big-endian.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        let numbers = u64::from(T::TYPE as u8) << 56
            | u64::from(self.qpn.value()) << 32
            | u64::from(self.mtu as u8) << 24
            | u64::from(self.psn & 0xff_ffff);
        let gid_bytes = u128::from_be_bytes(self.gid.0).to_be_bytes();
        bytes[..16].copy_from_slice(&gid_bytes);
        bytes[16..].copy_from_slice(&numbers.to_be_bytes());
        bytes
    }

    /// Decodes what [`Endpoint::to_bytes`] encoded.
    ///
    /// # Errors
    /// `Invalid`: the bytes are of another transport, or are no endpoint.
    pub fn from_bytes(bytes: &[u8; 24]) -> Result<Endpoint<T>> {
        let invalid = |problem| VerbsError::Invalid {
            object: "endpoint",
            attribute: "bytes",
            problem,
            remedy: "pass what `to_bytes` of a queue pair of the same transport gave",
        };
        let number = |from: usize, to: usize| {
            bytes.iter().take(to).skip(from).fold(0, |sum, &byte| sum << 8 | u32::from(byte))
        };
        if number(16, 17) != T::TYPE as u32 {
            let (wanted, found) = (T::TYPE.name(), number(16, 17));
            return Err(invalid(format!("are not of {wanted}: transport number {found}")));
        }
        let mtu = Mtu::from_verbs(number(20, 21))
            .ok_or_else(|| invalid(format!("name path MTU {}, which is none", number(20, 21))))?;
        let mut gid = [0; 16];
        gid.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
        Ok(Endpoint::new(Gid(gid), Qpn::new(number(17, 20)), number(21, 24), mtu))
    }
}

impl<T: Transport> fmt::Debug for Endpoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, mtu) = (T::TYPE.name(), self.mtu.bytes());
        write!(f, "Endpoint({name} {} qpn {} psn {:#08x} mtu {mtu})", self.gid, self.qpn, self.psn)
    }
}

impl<T: Connected> QueuePair<T> {
    /// Returns the data that the peer needs to connect to this queue pair.
    pub fn endpoint(&self) -> Endpoint<T> {
        let local = self.local();
        Endpoint::new(local.gid, self.qpn(), local.psn, local.mtu)
    }

    /// Connects to a peer, which must connect to this queue pair's [`QueuePair::endpoint`] as well: INIT,
    /// then RTR, then RTS. Sends no packet, so the order in which the two sides connect does not matter,
    /// except that a side must have connected before the other one's first request arrives (it is repeated
    /// until then on reliable transports).
    ///
    /// # Errors
    /// `Refused`: an option is out of range, the peer's address is not one or leads nowhere, the queue pair
    /// is connected already ([`QueuePair::reset`] it).
    pub fn connect(&self, peer: &Endpoint<T::Peer>, options: &T::Options) -> Result<()> {
        self.call(MODIFY, || self.connect_from(peer, self.local().psn, options))
    }

    /// Connects as [`QueuePair::connect`] does, inside of a call, and with another first PSN to send than
    /// that of [`QueuePair::endpoint`].
    pub(crate) fn connect_from(
        &self,
        peer: &Endpoint<T::Peer>,
        first_psn: u32,
        options: &T::Options,
    ) -> Result<()> {
        if self.current_state()? == QpState::Reset {
            self.initialise()?;
        }
        let local = self.local();
        let path = options.path();
        let mut attributes = QpAttributes {
            qp_state: QpState::Rtr as u32,
            path_mtu: path.mtu.unwrap_or(local.mtu.min(peer.mtu)) as u32,
            dest_qp_num: peer.qpn.value(),
            rq_psn: peer.psn,
            sq_psn: first_psn,
            address_vector: AddressVector {
                is_global: true,
                dgid: peer.gid,
                sgid_index: local.gid_index,
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
                flow_label: path.flow_label,
                port_num: 1,
                sl: path.service_level,
                ..AddressVector::default()
            },
            ..QpAttributes::default()
        };
        let mask = AttributeMask::STATE
            | AttributeMask::AV
            | AttributeMask::PATH_MTU
            | AttributeMask::DEST_QPN
            | AttributeMask::RQ_PSN
            | options.ready_to_receive::<T>(&mut attributes);
        self.change(&attributes, mask)?;
        attributes.qp_state = QpState::Rts as u32;
        let mask = AttributeMask::STATE | AttributeMask::SQ_PSN | options.ready_to_send(&mut attributes);
        self.change(&attributes, mask)
    }
}
