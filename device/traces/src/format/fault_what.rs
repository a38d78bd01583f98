//! What rules of fault plans do, as a number in a record.

/// Makes the kinds of deeds and their numbers.
macro_rules! kinds_of_fault {
    ($($(#[$doc:meta])* $number:literal $name:ident,)*) => {
        /// What a rule of a fault plan did.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum FaultWhat {
            $($(#[$doc])* $name = $number,)*
        }

        impl FaultWhat {
            /// What a number in a record stands for; `None`: a newer version has it.
            pub const fn of(number: u8) -> Option<FaultWhat> {
                match number { $($number => Some(FaultWhat::$name),)* _ => None }
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
    /// The sender is told of congestion.
    9 Notified,
    /// The request is refused in the peer's name.
    10 Refused,
    /// A request for a connection is rejected in the peer's name, or has no answer.
    11 Rejected,
    /// Nothing passes from here on.
    12 Partition,
    /// Something happens to the device.
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
}
