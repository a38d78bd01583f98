//! The paths that the device chooses for a queue pair, where no profile does.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pumice_model::port::Port;
use pumice_model::port::batch::{Peer, PeerMedium};
use pumice_transport::mrc::constants::{DEFAULT_ACTIVE_EVS, DEFAULT_BACKUP_EVS};
use pumice_transport::mrc::entropy::{Entropy, Plane};
use pumice_transport::mrc::paths::{Ev, EvProfile};
use pumice_transport::path::{Flow, Path};
use pumice_transport::wire::source_port;

/// Number of paths where each costs a socket. All queue pairs of an address share them.
const POOLED_EVS: u16 = 32;

/// Returns the paths from `path` to a peer. Through UDP each is a source port that the device can send from,
/// from a small pool; elsewhere the entropy value only chooses the way.
pub(crate) fn automatic(
    port: &mut dyn Port,
    now_ns: u64,
    path: &Path,
    peer: Peer,
    planes: u8,
    seed: u64,
) -> EvProfile {
    let is_pooled = matches!(port.medium_to(peer), PeerMedium::Udp(_));
    let (count, active_count, seed) = match is_pooled {
        true => (POOLED_EVS, POOLED_EVS, seed_of(&path.flow)),
        false => (DEFAULT_ACTIVE_EVS + DEFAULT_BACKUP_EVS, DEFAULT_ACTIVE_EVS, seed),
    };
    let drawn = EvProfile::automatic(seed, planes, true);
    let each = u16::from(planes.max(1));
    let (count, active_count) = (count.next_multiple_of(each), active_count.next_multiple_of(each));
    let mut known = BTreeSet::new();
    let mut evs = Vec::with_capacity(count.into());
    for ev in drawn.evs.iter().take(count.into()) {
        let wanted = port_in_plane(ev.entropy.source_port(), ev.plane.0, planes);
        let given = port.source_port(now_ns, &Flow { source_port: wanted, ..path.flow });
        if known.insert(given) {
            evs.push(Ev { entropy: Entropy::of(0, given), plane: plane_of(given, planes) });
        }
    }
    let active_count = active_count.min(evs.len() as u16);
    EvProfile { evs, active_count, min_active: EvProfile::default_min_active(active_count) }
}

/// Returns the plane that packets from a UDP source port travel in: both ends and the network know it
/// without a word in the packet.
pub(super) const fn plane_of(source_port: u16, planes: u8) -> Plane {
    Plane(if planes < 2 { 0 } else { (source_port % planes as u16) as u8 })
}

/// Returns the values of a controller's profile as packets from `path` can carry them: each leaves from the
/// UDP source port that is nearest to its own in its plane.
pub(crate) fn with_ports(
    port: &mut dyn Port,
    now_ns: u64,
    path: &Path,
    planes: u8,
    mut profile: EvProfile,
) -> EvProfile {
    for ev in &mut profile.evs {
        let wanted = port_in_plane(ev.entropy.source_port() | source_port::FIRST, ev.plane.0, planes);
        let given = port.source_port(now_ns, &Flow { source_port: wanted, ..path.flow });
        *ev = Ev { entropy: Entropy::of(0, given), plane: plane_of(given, planes) };
    }
    profile
}

/// Returns the seed of the ports that all queue pairs of an address share.
fn seed_of(flow: &Flow) -> u64 {
    let mut hasher = DefaultHasher::new();
    flow.source.hash(&mut hasher);
    hasher.finish()
}

/// Returns the port nearest to one of the range that packets of a plane leave from.
fn port_in_plane(near: u16, plane: u8, planes: u8) -> u16 {
    if planes < 2 {
        return near;
    }
    let (planes, plane) = (u32::from(planes), u32::from(plane));
    let near = u32::from(near | source_port::FIRST);
    let below = near - near % planes + plane;
    let port = match below {
        low if low < u32::from(source_port::FIRST) => low + planes,
        high if high > u32::from(u16::MAX) => high - planes,
        fits => fits,
    };
    port as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_near_another_one_is_in_its_plane() {
        for planes in [1, 2, 3, 8, 32] {
            for near in [0xc000, 0xc001, 0xd357, 0xfffe, 0xffff] {
                for plane in 0..planes {
                    let port = port_in_plane(near, plane, planes);
                    assert!(port >= source_port::FIRST && port.abs_diff(near) < 64, "{near:#x} {port:#x}");
                    assert_eq!(plane_of(port, planes).0, plane, "{near:#x} of {planes}");
                }
            }
        }
    }
}
