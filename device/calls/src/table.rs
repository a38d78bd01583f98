//! The table: rows of all families, and what follows from a row.

use core::fmt;

use crate::errnos::Errnos;
use crate::names;
use crate::row::{Act, Family, Object, Row};

/// Rows of one family after the other, each as `family { name: row, … }`, become [`Call`] and its table.
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

        static TABLE: [Row; Call::COUNT] = [$($({
            #[allow(unused_imports, reason = "not every row has a version, an object or errnos")]
            use crate::{errnos::*, row::{Object::*, *}, $family::*};
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

gather! { [verbs connections sockets private mlx5 mlx4 efa mana] }

/// The indices of calls, by their names.
const BY_NAME: [u16; Call::COUNT] = names::sorted(&NAMES);

impl Call {
    /// How many there are.
    pub const COUNT: usize = ALL.len();
    /// All, family by family.
    pub const ALL: &'static [Call] = ALL;

    /// The call of this name.
    pub fn of(name: &str) -> Option<Call> {
        let found =
            BY_NAME.binary_search_by(|index| NAMES.get(usize::from(*index)).copied().cmp(&Some(name)));
        let index = BY_NAME.get(found.ok()?)?;
        ALL.get(usize::from(*index)).copied()
    }

    /// All, by name.
    pub fn by_name() -> impl Iterator<Item = Call> {
        BY_NAME.iter().filter_map(|index| ALL.get(usize::from(*index)).copied())
    }

    /// The one with this index by name, below [`Call::COUNT`].
    pub(crate) const fn nth(index: usize) -> Call {
        ALL[BY_NAME[index] as usize]
    }

    /// What is known of it.
    #[inline]
    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name in C.
    #[inline]
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// What a fault plan may have it fail with; `None`: a plan has it not fail.
    pub const fn errnos(self) -> Option<Errnos> {
        self.row().errnos
    }

    /// Whether it gives an object back.
    pub const fn gives_back(self) -> bool {
        matches!(self.row().act, Act::GiveBack)
    }

    /// Whether it posts requests.
    pub const fn posts(self) -> bool {
        matches!(self.row().act, Act::Post)
    }

    /// Whether it puts requests to send together, or posts them.
    pub const fn sends(self) -> bool {
        matches!(self.row().act, Act::Build) || matches!(self, Call::ibv_post_send)
    }

    /// Whether it arms, or posts what waits for a peer: nothing leaves this process because of it.
    pub const fn expects(self) -> bool {
        matches!(self.row().act, Act::Arm) || (self.posts() && !self.sends())
    }

    /// Whether it makes, changes or gives back an object of the device, or posts; lists are no such objects.
    pub const fn changes_objects(self) -> bool {
        let is_list = matches!(
            (self.row().act, self.row().on),
            (Act::Make(Object::DeviceList | Object::AddressList), _)
                | (_, Object::DeviceList | Object::AddressList | Object::Process)
        );
        let changes = matches!(
            self.row().act,
            Act::Make(_) | Act::GiveBack | Act::Change | Act::Listen | Act::Build | Act::Post | Act::Arm
        );
        changes && !is_list && (self.is_of_verbs() || self.is_of_connections())
    }

    /// Whether it looks for completions: those of a device that was pulled out are there.
    pub const fn polls(self) -> bool {
        matches!((self.row().act, self.row().on), (Act::Poll, Object::CompletionQueue))
    }

    /// Whether peers can connect when it has returned.
    pub const fn listens(self) -> bool {
        matches!(self.row().act, Act::Listen)
    }

    /// Whether it is on a queue pair, of which fault plans know the ordinal.
    pub const fn is_on_queue_pair(self) -> bool {
        matches!(self.row().on, Object::QueuePair)
    }

    /// Whether it is of the data path: the gate lets it pass unless a plan, a report or a check looks at all
    /// calls.
    pub const fn is_data_path(self) -> bool {
        matches!(self.row().act, Act::Build | Act::Post | Act::Poll | Act::Arm | Act::Move)
    }

    /// Whether it is a call of libibverbs that programs make.
    pub const fn is_of_verbs(self) -> bool {
        matches!(self.row().family, Family::Verbs)
    }

    /// Whether it is a call of librdmacm, rsockets apart.
    pub const fn is_of_connections(self) -> bool {
        matches!(self.row().family, Family::Connections)
    }

    /// Whether it is a call of rsockets.
    pub const fn is_of_sockets(self) -> bool {
        matches!(self.row().family, Family::Sockets)
    }

    /// Whether it works although the device is lost: what gives back, what takes and acknowledges events, of
    /// which one says that the device is lost, and sockets, which say so themselves.
    pub const fn outlives_device(self) -> bool {
        let takes_events = matches!(
            (self.row().act, self.row().on),
            (Act::Wait, Object::Context | Object::EventChannel) | (Act::Acknowledge, _)
        );
        self.gives_back() || takes_events || self.is_of_sockets()
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
    use crate::row::Answer;

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
            // What cannot fail does not fail by a plan, and what is refused by all fails by no plan.
            assert!(row.errnos.is_none() || row.answer != Answer::Plain, "{call}");
            assert!(row.errnos.is_none() || !row.is_refused, "{call}");
            assert!(!row.has_first_version || matches!(row.family, Family::Verbs), "{call}");
            assert!(row.symbol.ends_with(call.name()), "{call}");
        }
    }

    #[test]
    fn what_gives_back_and_what_tells_of_the_end_outlives_the_device() {
        use Call::*;
        for call in
            [ibv_destroy_qp, ibv_dealloc_pd, ibv_dereg_mr, ibv_close_xrcd, ibv_free_dm, rdma_destroy_id]
        {
            assert!(call.gives_back() && call.outlives_device(), "{call}");
        }
        assert!(!ibv_create_qp.gives_back() && !ibv_detach_mcast.gives_back());
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
