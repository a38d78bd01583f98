//! Multicast groups and the queue pairs attached to them.

use std::collections::{HashMap, HashSet};

use pumice_ground::error::ResourceError;
use pumice_transport::types::{Gid, QpType};
use pumice_transport::wire::Qpn;

/// What attaching changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The first member: join the group on the network.
    NewGroup,
    /// One more member.
    NewMember,
    /// A member already: nothing changed.
    Already,
}

/// What detaching changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    /// The last member: leave the group on the network.
    GroupEmpty,
    /// Members are left.
    MembersLeft,
}

/// Groups with at least one member.
#[derive(Debug)]
pub struct MulticastGroups {
    groups: HashMap<Gid, Vec<Qpn>>,
    /// Queue pairs that do not get what they send themselves.
    deaf: HashSet<Qpn>,
    max_groups: u32,
    max_members: u32,
}

impl MulticastGroups {
    /// No groups; at most `max_groups`, of at most `max_members` queue pairs each.
    pub fn new(max_groups: u32, max_members: u32) -> MulticastGroups {
        MulticastGroups { groups: HashMap::new(), deaf: HashSet::new(), max_groups, max_members }
    }

    /// The group as packets name it. IPv4 groups have two spellings, `::ffff:a.b.c.d` (RoCEv2) and
    /// `ff0e::ffff:a.b.c.d` (what librdmacm makes for RoCE v1 GIDs); this is always the first.
    pub fn normalise(gid: Gid) -> Gid {
        match gid.0 {
            [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] if a & 0xf0 == 0xe0 => {
                Gid::from(std::net::Ipv4Addr::new(a, b, c, d))
            }
            _ => gid,
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
    /// `Invalid`: it is not attached, or as [`MulticastGroups::attach`].
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

    /// Queue pairs that get a copy of a datagram to this group, in order of attachment.
    pub fn members(&self, gid: Gid) -> &[Qpn] {
        self.groups.get(&MulticastGroups::normalise(gid)).map_or(&[], Vec::as_slice)
    }

    /// Groups that a queue pair is attached to, in no order.
    pub fn groups_of(&self, qpn: Qpn) -> impl Iterator<Item = Gid> {
        let own = self.groups.iter().filter(move |(_, members)| members.contains(&qpn));
        own.map(|(group, _)| *group)
    }

    /// Says whether a queue pair gets the datagrams that it sends to a group of its own. They do unless told.
    pub fn hear_itself(&mut self, qpn: Qpn, hears: bool) {
        if hears {
            self.deaf.remove(&qpn);
        } else {
            self.deaf.insert(qpn);
        }
    }

    /// Whether a queue pair gets the datagrams that it sends to a group of its own.
    pub fn hears_itself(&self, qpn: Qpn) -> bool {
        !self.deaf.contains(&qpn)
    }

    /// All groups, in no order.
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
    use std::net::IpAddr;

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
    fn queue_pairs_hear_themselves_unless_told() {
        let mut groups = MulticastGroups::new(8, 8);
        groups.hear_itself(Qpn::new(1), false);
        assert!(!groups.hears_itself(Qpn::new(1)) && groups.hears_itself(Qpn::new(2)));
        groups.hear_itself(Qpn::new(1), true);
        assert!(groups.hears_itself(Qpn::new(1)));
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
