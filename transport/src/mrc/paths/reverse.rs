//! Reverse paths: one entropy value for each plane, by which control packets travel.

use super::Ev;
use crate::mrc::entropy::{Entropy, Plane, Planes};

/// Entropy values for control packets, on which packets are known to arrive.
#[derive(Debug, Clone, Default)]
pub struct ReversePaths {
    known: [Option<Entropy>; 32],
    changed_ns: u64,
}

impl ReversePaths {
    /// Records that a packet of this side has arrived by this value, as a SACK of data or the answer to an EV
    /// probe shows.
    pub fn confirm(&mut self, now_ns: u64, ev: Ev) {
        if let Some(known) = self.known.get_mut(usize::from(ev.plane.0)) {
            *known = Some(ev.entropy);
            self.changed_ns = now_ns;
        }
    }

    /// Returns the path of an answer to a packet that came by this value: the reverse path of its plane, or
    /// that of another plane if its plane is down. If none is known, the value that the packet came by is
    /// used.
    pub fn reverse_path(&self, trigger: Ev, up: Planes) -> Ev {
        let of = |plane: Plane| {
            let known = self.known.get(usize::from(plane.0)).copied().flatten()?;
            up.has(plane).then_some(Ev { entropy: known, plane })
        };
        of(trigger.plane)
            .or_else(|| {
                (!up.has(trigger.plane)).then(|| (0..32).find_map(|plane| of(Plane(plane)))).flatten()
            })
            .unwrap_or(trigger)
    }

    /// Returns the time at which a reverse path was last confirmed; 0 for never.
    pub fn confirmed_ns(&self) -> u64 {
        self.changed_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_take_the_way_that_is_known_of_their_plane() {
        let mut paths = ReversePaths::default();
        let trigger = Ev { entropy: Entropy(7), plane: Plane(1) };
        assert_eq!(paths.reverse_path(trigger, Planes::ALL), trigger);
        let other = Ev { entropy: Entropy(8), plane: Plane(2) };
        paths.confirm(1, other);
        assert_eq!(paths.reverse_path(trigger, Planes::ALL), trigger);
        assert_eq!(paths.reverse_path(trigger, Planes::ALL.without(Plane(1))), other);
        paths.confirm(2, Ev { entropy: Entropy(9), plane: Plane(1) });
        assert_eq!(paths.reverse_path(trigger, Planes::ALL).entropy, Entropy(9));
        assert_eq!(paths.reverse_path(trigger, Planes(0)), trigger);
        paths.confirm(3, Ev { entropy: Entropy(9), plane: Plane(77) });
        assert_eq!(paths.confirmed_ns(), 2);
    }
}
