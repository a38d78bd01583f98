//! Raw packet queue pairs and the flow rules that steer frames to them.

use crate::ethernet::{Ethernet, FlowRule, RssTable};
use pumice_platform::error::ResourceError;
use pumice_platform::packet_socket::{FrameWire, PacketSocket, PacketSocketError};
use pumice_transport::types::QpType;
use pumice_transport::wire::Qpn;

use super::{Hca, HcaError};
use crate::engine::Engine;

impl Hca {
    /// Adds a flow rule: matching frames come to this raw packet queue pair. Returns the ID of the rule.
    ///
    /// # Errors
    /// `Invalid`: the queue pair is of another type, or the device has no such port. `NotSupported`: UD.
    /// `NoMemory`: the process has too many rules.
    pub fn create_flow(&self, qpn: Qpn, rule: FlowRule) -> Result<u32, HcaError> {
        let id = {
            let mut engine = self.core.lock();
            match engine.queue_pair_type(qpn).ok_or(HcaError::UnknownQueuePair { qpn })? {
                qp_type if qp_type.is_raw() => {}
                qp_type if qp_type.is_datagram() => {
                    let what = "flow rules are for raw packet queue pairs, and this one is UD";
                    return Err(ResourceError::not_supported(what).into());
                }
                other => {
                    let what = format!(
                        "flow rules are for raw packet queue pairs, and this one is {}",
                        other.name()
                    );
                    return Err(ResourceError::invalid(what).into());
                }
            }
            engine.resources.port.ports.require(rule.port_num)?;
            engine.resources.require_ethernet()?.add(qpn, rule)?
        };
        // The background thread may sleep until something arrives on the descriptors that it knew.
        self.core.handover.armed();
        Ok(id)
    }

    /// Removes a flow rule.
    ///
    /// # Errors
    /// No rule has this ID.
    pub fn destroy_flow(&self, id: u32) -> Result<(), HcaError> {
        Ok(self.core.lock().resources.require_ethernet()?.remove(id)?)
    }

    /// Distributes the frames of a raw packet queue pair to others from now on, which must exist as long as
    /// it does.
    ///
    /// # Errors
    /// The queue pair is of another type.
    pub fn spread(&self, qpn: Qpn, spread: RssTable) -> Result<(), HcaError> {
        let mut engine = self.core.lock();
        if !engine.queue_pair_type(qpn).is_some_and(QpType::is_raw) {
            return Err(ResourceError::invalid("only frames of raw packet queue pairs are spread").into());
        }
        engine.resources.require_ethernet()?.spread(qpn, spread);
        Ok(())
    }

    /// Opens packet sockets on the interfaces of the ports, unless they are open.
    ///
    /// # Errors
    /// `NotSupported`: the device has no interface, or one without Ethernet frames. EPERM: the process has no
    /// right to raw packets.
    pub(super) fn join_ethernet(&self, engine: &mut Engine) -> Result<(), ResourceError> {
        if engine.resources.ethernet.is_some() {
            return Ok(());
        }
        if self.core.clock.is_virtual() {
            return Err(ResourceError::not_supported("a simulated network has no raw packets"));
        }
        let mut wires: Vec<(u8, Box<dyn FrameWire>)> = Vec::new();
        for port_num in 1..=self.port_count {
            let port = engine.resources.port.ports.require(port_num)?;
            let index = port.gids.iter().map(|(_, entry)| entry.interface_index).find(|index| *index != 0);
            let missing = || ResourceError::not_supported(format!("port {port_num} has no interface"));
            let socket = PacketSocket::open(index.ok_or_else(missing)?).map_err(refused)?;
            wires.push((port_num, Box::new(socket)));
        }
        engine.resources.ethernet = Some(Box::new(Ethernet::new(wires)));
        Ok(())
    }
}

/// Returns the error of a program that cannot get a packet socket.
fn refused(error: PacketSocketError) -> ResourceError {
    let errno = match &error {
        PacketSocketError::NotPermitted => libc::EPERM,
        PacketSocketError::NotEthernet(_) => return ResourceError::not_supported(error.to_string()),
        PacketSocketError::Socket { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
    };
    ResourceError::Refused { what: error.to_string().into(), errno }
}
