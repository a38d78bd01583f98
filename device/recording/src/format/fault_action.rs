//! The actions of fault plan rules, as a number in a record.

/// Makes the enum of the actions and their numbers.
macro_rules! kinds_of_fault {
    ($($(#[$doc:meta])* $number:literal $name:ident,)*) => {
        /// The action of a fault plan rule.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum TracedFaultAction {
            $($(#[$doc])* $name = $number,)*
        }

        impl TracedFaultAction {
            /// Returns the action with this number, or `None` if only a newer version knows it.
            pub const fn of(number: u8) -> Option<TracedFaultAction> {
                match number { $($number => Some(TracedFaultAction::$name),)* _ => None }
            }
        }
    };
}

kinds_of_fault! {
    /// A packet is lost.
    1 Lost,
    /// A packet leaves later.
    2 Delayed,
    /// Later packets leave before a packet.
    3 Reordered,
    /// Copies leave with a packet.
    4 Duplicated,
    /// Bits of a packet are flipped.
    5 Corrupted,
    /// Bits of its payload are flipped, and the ICRC is right.
    6 CorruptedSilently,
    /// A part of a packet is sent.
    7 Truncated,
    /// A packet is marked as congested.
    8 Marked,
    /// A congestion notification is sent to the sender.
    9 Notified,
    /// The request is refused in the peer's name.
    10 Refused,
    /// A request for a connection is rejected in the peer's name, or has no answer.
    11 Rejected,
    /// A partition begins: all packets are lost from here on.
    12 Partition,
    /// An incident happens to the device.
    13 Incident,
    /// A call fails.
    14 CallFailed,
    /// A call takes longer.
    15 CallSlowed,
    /// A request ends with another status.
    16 Status,
    /// A completion comes later.
    17 CompletionLate,
    /// An event of a completion channel comes later.
    18 EventLate,
    /// Events of a completion channel come together.
    19 EventsMerged,
    /// The data of a packet of MRC is cut off, as by a switch in congestion.
    20 Trimmed,
    /// A SACK of MRC arrives with a wrong state of its path.
    21 Reflected,
}
