//! The order in which messages of SRD leave.

/// The order in which messages of SRD leave. SRD promises none, so it can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SrdOrder {
    /// The seed decides: messages overtake each other.
    #[default]
    Seed,
    /// Messages leave in the order in which they were posted.
    InOrder,
    /// The newest of the messages that were posted within a short time leaves first.
    Reverse,
}

impl SrdOrder {
    /// Parses `seed`, `in-order` or `reverse`.
    ///
    /// # Errors
    /// The value is none of them.
    pub fn parse(value: &str) -> Result<SrdOrder, &'static str> {
        match value {
            "seed" => Ok(SrdOrder::Seed),
            "in-order" => Ok(SrdOrder::InOrder),
            "reverse" => Ok(SrdOrder::Reverse),
            _ => Err("it is seed, in-order or reverse"),
        }
    }
}
