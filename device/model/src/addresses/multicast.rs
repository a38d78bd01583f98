//! Multicast groups and the queue pairs attached to them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use pumice_platform::error::ResourceError;
use pumice_transport::types::{Gid, QpType};
use pumice_transport::wire::Qpn;

/// The result of attaching a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The queue pair is the first member: join the group on the network.
    NewGroup,
    /// The queue pair is one more member.
    NewMember,
    /// The queue pair was a member already: nothing changed.
    Already,
}

/// The result of detaching a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    /// The queue pair was the last member: leave the group on the network.
    GroupEmpty,
    /// Members are left.
    MembersLeft,
}

/// The groups with at least one member.
#[derive(Debug)]
pub struct MulticastGroups {
    groups: HashMap<Gid, Vec<Qpn>>,
    /// The queue pairs that do not get what they send themselves.
    loopback_disabled: HashSet<Qpn>,
    max_groups: u32,
    max_members: u32,
}

impl MulticastGroups {
    /// Returns an instance without groups, for at most `max_groups` of at most `max_members` queue pairs
    /// each.
    pub fn new(max_groups: u32, max_members: u32) -> MulticastGroups {
        MulticastGroups { groups: HashMap::new(), loopback_disabled: HashSet::new(), max_groups, max_members }
    }

    /// Returns the group as packets name it. IPv4 groups have two forms, `::ffff:a.b.c.d` (RoCEv2) and
    /// `ff0e::ffff:a.b.c.d` (what librdmacm makes for RoCE v1 GIDs); the result is always the first.
    pub fn normalise(gid: Gid) -> Gid {
        match gid.0 {
            [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if a & 0xf0 == 0xe0 => {
                Gid::from(std::net::Ipv4Addr::new(a, b, c, d))
            }
            _ => gid,
        }
    }

    /// Reports whether no datagram to a group leaves its host, because the group's scope is an interface
    /// (ff01::).
    pub fn stays_on_host(group: IpAddr) -> bool {
        matches!(group, IpAddr::V6(group) if group.is_multicast() && group.octets()[1] & 0xf == 1)
    }

    /// Returns the reason why datagrams to a group reach no queue pair that waits for them, as the end of a
    /// sentence.
    pub fn explain_undelivered(group: IpAddr) -> &'static str {
        if MulticastGroups::stays_on_host(group) {
            "its scope is an interface (ff01::), so that no datagram leaves the host; between hosts choose a \
             group of a wider scope at both ends, such as ff0e::1:1 (--MGID of perftest)"
        } else {
            "is ibv_attach_mcast missing?"
        }
    }

    /// Attaches a queue pair to a group. Returns the group's normal GID and what changed.
    ///
    /// # Errors
    /// `Invalid`: not a UD queue pair, or not a multicast GID. `NoMemory`: a limit is reached.
    pub fn attach(&mut self, gid: Gid, qpn: Qpn, qp_type: QpType) -> Result<(Gid, Attached), ResourceError> {
        let group = MulticastGroups::check(gid, qp_type)?;
        let group_count = self.groups.len();
        let members = match self.groups.get_mut(&group) {
            Some(members) => members,
            None if group_count >= self.max_groups as usize => {
                return Err(ResourceError::no_memory(format!(
                    "the device has at most {} multicast groups",
                    self.max_groups
                )));
            }
            None => self.groups.entry(group).or_default(),
        };
        //= man:ibv_attach_mcast
        //| A queue pair that is attached several times gets a single copy.
        if members.contains(&qpn) {
            return Ok((group, Attached::Already));
        }
        //= linux:rxe_mcast.c#__rxe_init_mca
        //| A group has at most as many members as the device allows.
        if members.len() >= self.max_members as usize {
            return Err(ResourceError::no_memory(format!(
                "multicast group {group} has at most {} queue pairs",
                self.max_members
            )));
        }
        members.push(qpn);
        let attached = if members.len() == 1 { Attached::NewGroup } else { Attached::NewMember };
        Ok((group, attached))
    }

    /// Detaches a queue pair from a group. Returns the group's normal GID and what changed.
    ///
    /// # Errors
    /// `Invalid`: the queue pair is not attached, or as [`MulticastGroups::attach`].
    pub fn detach(&mut self, gid: Gid, qpn: Qpn, qp_type: QpType) -> Result<(Gid, Detached), ResourceError> {
        let group = MulticastGroups::check(gid, qp_type)?;
        //= linux:rxe_mcast.c#rxe_detach_mcg
        //| A queue pair that is not attached cannot be detached.
        let not_attached =
            || ResourceError::invalid(format!("queue pair {qpn} is not attached to multicast group {gid}"));
        let members = self.groups.get_mut(&group).ok_or_else(not_attached)?;
        let index = members.iter().position(|member| *member == qpn).ok_or_else(not_attached)?;
        members.remove(index);
        if members.is_empty() {
            self.groups.remove(&group);
            return Ok((group, Detached::GroupEmpty));
        }
        Ok((group, Detached::MembersLeft))
    }

    /// Returns the queue pairs that get a copy of a datagram to this group, in order of attachment.
    pub fn members(&self, gid: Gid) -> &[Qpn] {
        self.groups.get(&MulticastGroups::normalise(gid)).map_or(&[], Vec::as_slice)
    }

    /// Returns the groups that a queue pair is attached to, in no order.
    pub fn groups_of(&self, qpn: Qpn) -> impl Iterator<Item = Gid> {
        let own = self.groups.iter().filter(move |(_, members)| members.contains(&qpn));
        own.map(|(group, _)| *group)
    }

    /// Sets whether a queue pair gets the datagrams that it sends to a group of its own. By default it does.
    pub fn set_loopback(&mut self, qpn: Qpn, hears: bool) {
        if hears {
            self.loopback_disabled.remove(&qpn);
        } else {
            self.loopback_disabled.insert(qpn);
        }
    }

    /// Reports whether a queue pair gets the datagrams that it sends to a group of its own.
    pub fn has_loopback(&self, qpn: Qpn) -> bool {
        !self.loopback_disabled.contains(&qpn)
    }

    /// Returns all groups, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Gid> {
        self.groups.keys().copied()
    }

    fn check(gid: Gid, qp_type: QpType) -> Result<Gid, ResourceError> {
        //= man:ibv_attach_mcast
        //| Only UD queue pairs take part in multicast.
        if !qp_type.joins_groups() {
            return Err(ResourceError::invalid(format!(
                "only UD queue pairs take part in multicast, not {}",
                qp_type.name()
            )));
        }
        let group = MulticastGroups::normalise(gid);
        if !group.is_multicast() {
            return Err(ResourceError::invalid(format!("{gid} is not a multicast GID")));
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(text: &str) -> Gid {
        Gid::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn attaching_twice_gives_one_copy() {
        let mut groups = MulticastGroups::new(8, 8);
        let group = gid("239.1.2.3");
        let qpn = Qpn::new(0x11);
        assert_eq!(groups.attach(group, qpn, QpType::Ud), Ok((group, Attached::NewGroup)));
        assert_eq!(groups.attach(group, qpn, QpType::Ud), Ok((group, Attached::Already)));
        assert_eq!(groups.attach(group, Qpn::new(0x12), QpType::Ud), Ok((group, Attached::NewMember)));
        assert_eq!(groups.members(group), [qpn, Qpn::new(0x12)]);
        assert_eq!(groups.groups_of(qpn).count(), 1);
        assert_eq!(groups.detach(group, qpn, QpType::Ud), Ok((group, Detached::MembersLeft)));
        assert_eq!(groups.detach(group, qpn, QpType::Ud).unwrap_err().errno(), libc::EINVAL);
        assert_eq!(groups.detach(group, Qpn::new(0x12), QpType::Ud), Ok((group, Detached::GroupEmpty)));
        assert_eq!(groups.iter().count(), 0);
        assert_eq!(groups.members(group), []);
    }

    #[test]
    fn both_spellings_of_an_ipv4_group_are_one_group() {
        let mut groups = MulticastGroups::new(8, 8);
        let (v2, v1) = (gid("239.1.2.3"), gid("ff0e::ffff:239.1.2.3"));
        assert_eq!(groups.attach(v1, Qpn::new(1), QpType::Ud), Ok((v2, Attached::NewGroup)));
        assert_eq!(groups.attach(v2, Qpn::new(1), QpType::Ud), Ok((v2, Attached::Already)));
        assert_eq!(groups.members(v1), groups.members(v2));
        assert_eq!(MulticastGroups::normalise(gid("ff0e::ffff:10.0.0.1")), gid("ff0e::ffff:10.0.0.1"));
        assert_eq!(MulticastGroups::normalise(gid("ff12::1")), gid("ff12::1"));
    }

    #[test]
    fn a_group_of_an_interface_does_not_leave_the_host() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for group in ["ff01::1", "ff01:0:2:c985::1", "ff11::7"] {
            assert!(MulticastGroups::stays_on_host(ip(group)), "{group}");
            assert!(MulticastGroups::explain_undelivered(ip(group)).starts_with("its scope is an interface"));
        }
        for group in ["ff02::1", "ff0e::1", "fd01::1", "239.1.2.3"] {
            assert!(!MulticastGroups::stays_on_host(ip(group)), "{group}");
            assert_eq!(MulticastGroups::explain_undelivered(ip(group)), "is ibv_attach_mcast missing?");
        }
    }

    #[test]
    fn queue_pairs_hear_themselves_unless_told() {
        let mut groups = MulticastGroups::new(8, 8);
        groups.set_loopback(Qpn::new(1), false);
        assert!(!groups.has_loopback(Qpn::new(1)) && groups.has_loopback(Qpn::new(2)));
        groups.set_loopback(Qpn::new(1), true);
        assert!(groups.has_loopback(Qpn::new(1)));
    }

    #[test]
    fn limits_and_wrong_arguments_are_refused() {
        let mut groups = MulticastGroups::new(1, 1);
        let group = gid("ff12::1");
        for (bad, qp_type) in [
            (group, QpType::Rc),
            (group, QpType::Uc),
            (gid("10.0.0.1"), QpType::Ud),
            (gid("fe80::1"), QpType::Ud),
        ] {
            assert_eq!(groups.attach(bad, Qpn::new(1), qp_type).unwrap_err().errno(), libc::EINVAL);
            assert_eq!(groups.detach(bad, Qpn::new(1), qp_type).unwrap_err().errno(), libc::EINVAL);
        }
        groups.attach(group, Qpn::new(1), QpType::Ud).unwrap();
        assert_eq!(groups.attach(group, Qpn::new(2), QpType::Ud).unwrap_err().errno(), libc::ENOMEM);
        let other = gid("ff12::2");
        assert_eq!(groups.attach(other, Qpn::new(1), QpType::Ud).unwrap_err().errno(), libc::ENOMEM);
        assert_eq!(groups.iter().collect::<Vec<_>>(), [group]);
    }
}
