//! The connection of MRC queue pairs: from their attributes to the protocol.

use pumice_model::addresses::address_handle;
use pumice_model::port::batch::Peer;
use pumice_transport::event::QpEvent;
use pumice_transport::mrc::congestion::Unlimited;
use pumice_transport::mrc::paths::PathState;
use pumice_transport::mrc::{MrcQueuePair, MrcSettings, RequesterAttributes, ResponderAttributes};
use pumice_transport::types::{Access, Mtu};
use pumice_transport::wire::{Psn, Qpn};

use super::error::HcaError;
use crate::engine::{BufferWindow, ControlError, Engine, MrcChosen, automatic, with_ports};

/// Bytes of a packet beside its data, as the window counts them.
const HEADER_BYTES: usize = 92;
/// Most packets of full size that leave by one path in a row. Packets of one path leave together, by UDP with
/// one system call.
const PACKETS_IN_A_ROW: u8 = 16;
/// Number of received bytes after which a SACK is sent. Each is a system call by UDP, here and at the peer.
const SACK_BYTES: u32 = 64 << 10;

/// Returns the refusal of a call about an MRC queue pair.
pub(super) fn refused(qpn: Qpn, what: impl Into<String>) -> HcaError {
    HcaError::Mrc { qpn, what: what.into(), errno: libc::EINVAL }
}

/// Brings a queue pair to RTR by its attributes.
pub(super) fn connect(engine: &mut Engine, index: u32, now_ns: u64) -> Result<(), HcaError> {
    let Engine { mrc, resources, port, .. } = engine;
    let (classes, udp_port) = (mrc.classes, mrc.udp_port);
    let Some(entry) = mrc.at_mut(index) else { return Ok(()) };
    let (qpn, own) = (entry.context.qpn, &entry.attributes);
    let in_entry = |error| HcaError::Entry { qpn, error };
    let mut path = address_handle::resolve(&own.address_vector, &resources.port.ports).map_err(in_entry)?;
    path.flow.destination_port = udp_port;
    let device_port = resources.port.ports.require(own.address_vector.port_num).map_err(in_entry)?;
    let active_mtu = device_port.active_mtu();
    let mtu = Mtu::from_verbs(own.path_mtu).filter(|mtu| *mtu <= active_mtu).ok_or_else(|| {
        let most = active_mtu.bytes();
        refused(qpn, format!("path_mtu is {}, and the port carries up to {most} bytes", own.path_mtu))
    })?;
    let pkey = device_port.pkeys.pkey(own.pkey_index.into()).map_err(in_entry)?;
    if pkey == 0 {
        return Err(refused(qpn, format!("P_Key index {} is empty", own.pkey_index)));
    }
    let peer = Qpn::new(own.dest_qp_num);
    port.expects(now_ns, &path, Peer { address: path.flow.destination, process: peer.process() });
    let settings = MrcSettings {
        pkey,
        access: Access::from_bits_truncate(own.access),
        max_send_wr: entry.capacity.max_send_wr,
        has_dynamic_mpr: entry.chosen.cap & MrcChosen::DYNAMIC_MPR != 0,
        peer_address: Some(path.flow.destination),
        connection: entry.connection,
        reports_states: entry.twin_of.is_none(),
        ..MrcSettings::new(entry.context, peer, mtu)
    };
    let mut qp = MrcQueuePair::new(settings);
    qp.to_rtr(&ResponderAttributes {
        mpr_dest: entry.chosen.mpr_dest,
        max_wimm_dest: entry.chosen.max_wimm_dest,
        sack_threshold_bytes: SACK_BYTES,
        ..ResponderAttributes::new(Psn::new(own.rq_psn))
    });
    entry.connect(qp, path, classes, peer);
    Ok(())
}

/// Brings a queue pair to RTS by its attributes.
pub(super) fn start_to_send(engine: &mut Engine, index: u32, now_ns: u64) -> Result<(), HcaError> {
    let Engine { mrc, port, resources, .. } = engine;
    let (planes, enabled) = (mrc.planes, mrc.enabled());
    let Some(entry) = mrc.at_mut(index) else { return Ok(()) };
    let (chosen, first_psn, qpn) = (entry.chosen, Psn::new(entry.attributes.sq_psn), entry.context.qpn);
    let seed = u64::from(qpn.value()) << 24 | u64::from(first_psn.value());
    let of_control = |error: ControlError| HcaError::Mrc { qpn, what: error.what, errno: error.errno };
    let values = match chosen.ev_profile {
        None => None,
        Some(id) => mrc.control.values(id, planes, seed).map_err(of_control)?,
    };
    let mtu_bytes = mrc.at_mut(index).and_then(|entry| Some(entry.qp.as_ref()?.settings().mtu.bytes()));
    let algorithm = match chosen.cc_profile {
        None => None,
        Some(id) => {
            let profile = mrc.control.online_cc(id).map_err(of_control)?;
            profile.make(mtu_bytes.unwrap_or_default() as u32)
        }
    };
    let Some(entry) = mrc.at_mut(index) else { return Ok(()) };
    let (Some(qp), Some(ways)) = (&mut entry.qp, &entry.paths.ways) else { return Ok(()) };
    let peer = Peer { address: ways.base().flow.destination, process: entry.peer.process() };
    let profile = match values {
        None => automatic(&mut **port, now_ns, ways.base(), peer, planes, seed),
        Some((profile, names)) => {
            let profile = with_ports(&mut **port, now_ns, ways.base(), planes, profile);
            entry.paths.names = profile.evs.iter().copied().zip(names).collect();
            profile
        }
    };
    let mut made = [0_u32; 32];
    for ev in &profile.evs {
        made.iter_mut().skip(ev.plane.0.into()).take(1).for_each(|count| *count += 1);
    }
    let packet_bytes = qp.settings().mtu.bytes() + HEADER_BYTES;
    let algorithm = algorithm.unwrap_or_else(|| Box::new(Unlimited));
    let congestion = BufferWindow::new(&port.limits(peer), packet_bytes, algorithm);
    qp.set_local_planes(enabled);
    qp.to_rts(RequesterAttributes {
        mpr: chosen.mpr,
        max_wimm: chosen.max_wimm,
        timeout: chosen.timeout,
        linear_cnt: chosen.linear_cnt,
        exp_cnt: chosen.exp_cnt,
        packets_in_a_row: PACKETS_IN_A_ROW,
        congestion: Box::new(congestion),
        ..RequesterAttributes::new(first_psn, profile, seed)
    });
    let context = entry.context;
    for (plane, paths) in (0..).zip(made).filter(|(_, paths)| *paths > 0) {
        resources.emit(&context, QpEvent::PathsMade { plane, planes, paths });
    }
    let denied = chosen.ev_profile.map(|id| mrc.control.evs(id)).unwrap_or_default();
    if let Some(entry) = mrc.at_mut(index) {
        for slot in denied.slots.iter().filter(|slot| slot.state == PathState::Denied) {
            entry.apply_state(now_ns, slot.name, PathState::Denied);
        }
    }
    Ok(())
}
