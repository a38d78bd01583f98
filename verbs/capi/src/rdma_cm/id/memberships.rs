//! Memberships of identifiers in multicast groups, to which their queue pairs are attached.

use super::identifier::{GroupMembership, Id};
use super::objects;

/// Detaches the queue pair, which is about to be destroyed, from its groups.
pub(crate) fn detach_all(id: &Id) {
    for member in &mut id.state().memberships {
        detach(id, member);
        member.attached = false;
    }
}

/// Detaches the queue pair, if it was attached, from the group of one membership.
pub(crate) fn detach(id: &Id, member: &GroupMembership) {
    if member.attached && !id.c.qp().is_null() {
        // The program may have detached it itself.
        let _ = objects::detach(id.c.qp(), member.group);
    }
}
