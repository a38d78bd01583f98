//! Changes of a queue pair's state and attributes (`ibv_modify_qp`).

use pumice_model::addresses::gid_table::GidTable;
use pumice_model::addresses::{DevicePort, Ports};
use pumice_model::port::batch::Peer;
use pumice_platform::error::ResourceError;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Host;
use pumice_transport::qp::{AttributeMask, ModifyLimits, QpAttributes, QueuePair};
use pumice_transport::types::QpState;
use pumice_transport::wire::Qpn;

use super::paths::{Paths, empty_gid_entry};
use super::{Hca, HcaError, MrcAttributes, mrc_twin};
use crate::engine::Acknowledge;
use crate::resources::MappingCheckPolicy;
use pumice_memory::MappingCheck;

impl Hca {
    /// Returns the limits of a queue pair on a port; a port that does not exist is refused by its number.
    fn modify_limits(&self, ports: &Ports, port: Option<&DevicePort>) -> ModifyLimits {
        ModifyLimits {
            active_mtu: port.map_or_else(|| ports.longest_mtu(), DevicePort::active_mtu),
            max_rd_atomic_initiator: self.settings.limits.max_init_rd_atomic,
            max_rd_atomic_target: self.settings.limits.max_rd_atomic,
            pkey_table_len: port.map_or(1, |port| port.pkeys.len()),
            gid_table_len: GidTable::LEN,
            port_count: self.port_count,
            privileged_qkey: true,
        }
    }

    /// Changes state and attributes of a queue pair; on failure nothing has changed.
    ///
    /// # Errors
    /// An attribute is missing, not allowed or wrong for the transition; an address vector that leads
    /// nowhere; an unknown number.
    pub fn modify_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        if self.core.lock().mrc.by_number(qpn).is_some() {
            return self.modify_mrc_qp(qpn, attributes, mask, &MrcAttributes::default());
        }
        self.modify_other_qp(qpn, attributes, mask)?;
        if self.settings.carries_by_mrc {
            let mut engine = self.core.lock();
            let now_ns = self.core.clock.now_ns();
            mrc_twin::follow(&mut engine, qpn, now_ns);
            engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
            self.core.note_deadline(&engine, now_ns);
        }
        Ok(())
    }

    /// Changes a queue pair that is none of MRC, as [`Hca::modify_qp`] does.
    fn modify_other_qp(
        &self,
        qpn: Qpn,
        attributes: &QpAttributes,
        mask: AttributeMask,
    ) -> Result<(), HcaError> {
        let mut guard = self.core.lock();
        let engine = &mut *guard;
        let unknown = HcaError::UnknownQueuePair { qpn };
        let in_entry = |error| HcaError::Entry { qpn, error };
        let (index, entry) = engine.queue_pairs.by_number(qpn).ok_or(unknown)?;
        // Another process may have changed the queue pair.
        entry
            .with(&mut engine.resources.host(MappingCheck::Assumed), |_, _| ())
            .map_err(|why| why.error(qpn))?;
        let qp_type = entry.qp.qp_type();
        let port_num = port_after(&entry.qp, attributes, mask);
        let port = engine.resources.port.ports.get(port_num);
        let limits = self.modify_limits(&engine.resources.port.ports, port);
        let takes_path = mask.contains(AttributeMask::AV) && qp_type.is_connected();
        // The check comes first: a missing attribute is reported before an address vector is resolved.
        check_transition(&engine.resources.port.ports, &entry.qp, attributes, mask, &limits)?;
        if self.port_count > 1 {
            check_paths_port(&entry.qp, attributes, mask, port_num).map_err(in_entry)?;
        }
        let now_ns = self.core.clock.now_ns();
        let mut paths = Paths::new(&engine.resources.port.ports, &mut *engine.port, now_ns);
        let named = paths.named_by_tables(port, &entry.qp, attributes, mask);
        let (pkey, alternate) = named.map_err(in_entry)?;
        let resolved = match takes_path {
            true => Some(paths.resolved(&entry.qp, attributes, mask, limits.active_mtu).map_err(in_entry)?),
            false => None,
        };
        let replaced = paths.replaced;
        let destination = resolved.as_ref().map(|resolved| resolved.path.flow.destination);
        let modified = entry.with(&mut engine.resources.host(MappingCheck::Assumed), |qp, host| {
            qp.modify(attributes, mask, &limits, resolved, host)?;
            if let Some(pkey) = pkey {
                qp.set_pkey(pkey);
            }
            alternate.into_iter().for_each(|alternate| qp.set_alternate(alternate));
            if let Some((computed, given)) = replaced {
                host.emit(qp.context(), QpEvent::SourcePortReplaced { computed, given });
            }
            Ok(())
        });
        modified.map_err(|why| why.error(qpn))?.map_err(|error| HcaError::Modify { qpn, error })?;
        let state = entry.qp.state();
        if self.port_count > 1 && mask.contains(AttributeMask::PORT) {
            if qp_type.is_datagram() {
                entry.takes_at = port_num;
                entry.qp.set_port_mtu(limits.active_mtu);
            }
            engine.resources.put_at_port(qpn, port_num);
        }
        engine.resources.put_frames_at(qpn, qp_type, port_num);
        if state == QpState::Reset {
            entry.posted_sends = 0;
            engine.resources.reset_qp(qpn);
        }
        let process = Qpn::new(entry.qp.query().dest_qp_num).process();
        let peer = destination.map(|address| Peer { address, process });
        engine.set_peer(index, peer, state == QpState::Reset);
        engine.touch(index);
        let now_ns = self.core.clock.now_ns();
        engine.transmit(now_ns, Acknowledge::Now, MappingCheckPolicy::Datagrams);
        self.core.note_deadline(engine, now_ns);
        Ok(())
    }
}

/// Checks a change of state and attributes before anything of it is done.
///
/// # Errors
/// An attribute is missing, not allowed or wrong, or an entry of the GID table is empty.
fn check_transition(
    ports: &Ports,
    qp: &QueuePair,
    attributes: &QpAttributes,
    mask: AttributeMask,
    limits: &ModifyLimits,
) -> Result<(), HcaError> {
    let qpn = qp.context().qpn;
    let checked = pumice_transport::qp::transition::check(qp.qp_type(), qp.state(), attributes, mask, limits);
    checked.map_err(|error| match empty_gid_entry(ports, attributes, &error) {
        Some(empty) => HcaError::Entry { qpn, error: empty },
        None => HcaError::Modify { qpn, error },
    })?;
    Ok(())
}

/// Returns the port that a queue pair is on when attributes have been applied.
fn port_after(qp: &QueuePair, attributes: &QpAttributes, mask: AttributeMask) -> u8 {
    if mask.contains(AttributeMask::PORT) {
        return attributes.port_num;
    }
    // In RESET the queue pair is on no port yet, and the first one is used.
    qp.query().port_num.max(1)
}

/// Checks that the path of a connected queue pair begins at the port that the queue pair is on.
fn check_paths_port(
    qp: &QueuePair,
    attributes: &QpAttributes,
    mask: AttributeMask,
    port_num: u8,
) -> Result<(), ResourceError> {
    let path_port = if mask.contains(AttributeMask::AV) {
        attributes.address_vector.port_num
    } else if mask.contains(AttributeMask::PORT) && qp.state() >= QpState::Rtr {
        qp.query().address_vector.port_num
    } else {
        return Ok(());
    };
    if path_port == port_num || !qp.qp_type().is_connected() {
        return Ok(());
    }
    Err(ResourceError::invalid(format!(
        "ah_attr.port_num is {path_port}, and the queue pair is on port {port_num}: give both the same"
    )))
}
