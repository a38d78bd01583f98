//! Multicast groups that identifiers are members of: their queue pairs are attached to them.

use super::identifier::{Id, Membership};
use super::objects;

/// Takes the queue pair, which is about to be destroyed, out of its groups.
pub(crate) fn detach_all(id: &Id) {
    for member in &mut id.state().memberships {
        detach(id, member);
        member.attached = false;
    }
}

/// Takes the queue pair, if it was attached, out of the group of one membership.
pub(crate) fn detach(id: &Id, member: &Membership) {
    if member.attached && !id.c.qp().is_null() {
        // The program may have detached it itself.
        let _ = objects::detach(id.c.qp(), member.group);
    }
}
