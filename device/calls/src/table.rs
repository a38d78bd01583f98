//! The table: rows of all families, and what follows from a row.

use core::fmt;

use crate::errnos::Errnos;
use crate::names;
use crate::row::{CallAction, CallFacts, CallFamily, CallObject};

/// Makes [`Call`] and its table from the rows of one family after the other, each as `family { name: row, …
/// }`.
macro_rules! calls {
    ($($family:ident { $($name:ident: $row:expr,)* })*) => {
        /// A call, by its name in C.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[allow(non_camel_case_types, missing_docs, reason = "each is the call of that name")]
        pub enum Call {
            $($($name,)*)*
        }

        /// All calls, each at its own index.
        const ALL: &[Call] = &[$($(Call::$name,)*)*];

        static TABLE: [CallFacts; Call::COUNT] = [$($({
            #[allow(unused_imports, reason = "not every row has a version, an object or errnos")]
            use crate::{errnos::*, row::{CallObject::*, *}, $family::*};
            $row.named(stringify!($name), crate::$family::FAMILY)
        },)*)*];

        const NAMES: [&str; Call::COUNT] = [$($(stringify!($name),)*)*];
    };
}

/// Collects the rows of families, which are the macro `rows` of their files.
macro_rules! gather {
    ([] $($rows:tt)*) => {
        calls! { $($rows)* }
    };
    ([$family:ident $($more:ident)*] $($rows:tt)*) => {
        crate::$family::rows! { gather [$($more)*] $($rows)* }
    };
}

gather! { [verbs connections sockets private mlx5 mlx4 efa mana mrc] }

/// Indices of calls, by their names.
const BY_NAME: [u16; Call::COUNT] = names::sorted(&NAMES);

impl Call {
    /// Number of calls.
    pub const COUNT: usize = ALL.len();
    /// All calls, family by family.
    pub const ALL: &'static [Call] = ALL;

    /// Returns the call of this name.
    pub fn of(name: &str) -> Option<Call> {
        let found =
            BY_NAME.binary_search_by(|index| NAMES.get(usize::from(*index)).copied().cmp(&Some(name)));
        let index = BY_NAME.get(found.ok()?)?;
        ALL.get(usize::from(*index)).copied()
    }

    /// Returns all calls, by name.
    pub fn by_name() -> impl Iterator<Item = Call> {
        BY_NAME.iter().filter_map(|index| ALL.get(usize::from(*index)).copied())
    }

    /// Returns the call with this index by name, below [`Call::COUNT`].
    pub(crate) const fn nth(index: usize) -> Call {
        ALL[BY_NAME[index] as usize]
    }

    /// Returns the facts about the call.
    #[inline]
    pub const fn row(self) -> &'static CallFacts {
        &TABLE[self as usize]
    }

    /// Returns its name in C.
    #[inline]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the errnos with which a fault plan may make it fail; `None` if a plan cannot.
    pub const fn errnos(self) -> Option<Errnos> {
        self.row().errnos
    }

    /// Reports whether it gives an object back.
    pub const fn destroys(self) -> bool {
        matches!(self.row().act, CallAction::Destroy)
    }

    /// Reports whether it posts requests.
    pub const fn posts(self) -> bool {
        matches!(self.row().act, CallAction::Post)
    }

    /// Reports whether it builds requests to send, or posts them.
    pub const fn sends(self) -> bool {
        matches!(self.row().act, CallAction::Build)
            || matches!(self, Call::ibv_post_send | Call::mrc_post_send)
    }

    /// Reports whether it arms, or posts what waits for a peer: nothing leaves this process because of it.
    pub const fn expects(self) -> bool {
        matches!(self.row().act, CallAction::Arm) || (self.posts() && !self.sends())
    }

    /// Reports whether it makes, changes or gives back an object of the device, or posts; lists are no such
    /// objects.
    pub const fn changes_objects(self) -> bool {
        let is_list = matches!(
            (self.row().act, self.row().on),
            (CallAction::Create(CallObject::DeviceList | CallObject::AddressList), _)
                | (_, CallObject::DeviceList | CallObject::AddressList | CallObject::Process)
        );
        let changes = matches!(
            self.row().act,
            CallAction::Create(_)
                | CallAction::Destroy
                | CallAction::Change
                | CallAction::Listen
                | CallAction::Build
                | CallAction::Post
                | CallAction::Arm
        );
        changes && !is_list && (self.is_of_verbs() || self.is_of_connections() || self.is_of_mrc())
    }

    /// Reports whether it polls for completions: those of a device that was pulled out can still be polled.
    pub const fn polls(self) -> bool {
        matches!((self.row().act, self.row().on), (CallAction::Poll, CallObject::CompletionQueue))
    }

    /// Reports whether peers can connect when it has returned.
    pub const fn listens(self) -> bool {
        matches!(self.row().act, CallAction::Listen)
    }

    /// Reports whether it is on a queue pair, of which fault plans know the ordinal.
    pub const fn is_on_queue_pair(self) -> bool {
        matches!(self.row().on, CallObject::QueuePair)
    }

    /// Reports whether it is of the data path: the gate lets it pass unless a plan, a report or a check
    /// observes all calls.
    pub const fn is_data_path(self) -> bool {
        matches!(
            self.row().act,
            CallAction::Build | CallAction::Post | CallAction::Poll | CallAction::Arm | CallAction::Transfer
        )
    }

    /// Reports whether it is a call of libibverbs that programs make.
    pub const fn is_of_verbs(self) -> bool {
        matches!(self.row().family, CallFamily::Verbs)
    }

    /// Reports whether it is a call of librdmacm, rsockets apart.
    pub const fn is_of_connections(self) -> bool {
        matches!(self.row().family, CallFamily::Connections)
    }

    /// Reports whether it is a call of libmrc.
    pub const fn is_of_mrc(self) -> bool {
        matches!(self.row().family, CallFamily::Mrc)
    }

    /// Reports whether it is a call of rsockets.
    pub const fn is_of_sockets(self) -> bool {
        matches!(self.row().family, CallFamily::Sockets)
    }

    /// Reports whether it works although the device is lost: calls that give back, calls that take and
    /// acknowledge events, of which one says that the device is lost, and sockets, which report it
    /// themselves.
    pub const fn outlives_device(self) -> bool {
        let takes_events = matches!(
            (self.row().act, self.row().on),
            (CallAction::Wait, CallObject::Context | CallObject::MrcContext | CallObject::EventChannel)
                | (CallAction::Acknowledge, _)
        );
        self.destroys() || takes_events || self.is_of_sockets()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::ErrorReturn;

    #[test]
    fn each_call_is_found_by_its_name() {
        for (index, call) in Call::ALL.iter().enumerate() {
            assert_eq!((*call as usize, Call::of(call.name())), (index, Some(*call)));
        }
        assert!(Call::by_name().is_sorted_by(|one, next| one.name() < next.name()));
        assert_eq!(Call::by_name().count(), Call::COUNT);
        assert_eq!(Call::of("ibv_close_xrc"), None);
    }

    #[test]
    fn rows_agree_with_themselves() {
        for call in Call::ALL {
            let row = call.row();
            // A call that cannot fail does not fail by a plan, and a call that every device refuses fails by
            // no plan.
            assert!(row.errnos.is_none() || row.answer != ErrorReturn::Plain, "{call}");
            assert!(row.errnos.is_none() || !row.is_refused, "{call}");
            assert!(!row.has_first_version || matches!(row.family, CallFamily::Verbs), "{call}");
            assert!(row.symbol.ends_with(call.name()), "{call}");
        }
    }

    #[test]
    fn what_gives_back_and_what_tells_of_the_end_outlives_the_device() {
        use Call::*;
        for call in
            [ibv_destroy_qp, ibv_dealloc_pd, ibv_dereg_mr, ibv_close_xrcd, ibv_free_dm, rdma_destroy_id]
        {
            assert!(call.destroys() && call.outlives_device(), "{call}");
        }
        assert!(!ibv_create_qp.destroys() && !ibv_detach_mcast.destroys());
        for call in [ibv_get_async_event, ibv_ack_async_event, rdma_get_cm_event, rdma_ack_cm_event, raccept]
        {
            assert!(call.outlives_device(), "{call}");
        }
        for call in [ibv_get_cq_event, ibv_poll_cq, ibv_detach_mcast, rdma_get_request, rdma_connect] {
            assert!(!call.outlives_device(), "{call}");
        }
        assert!(ibv_next_poll.polls() && !rpoll.polls() && rpoll.is_data_path());
    }
}
