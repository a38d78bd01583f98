//! In which order messages of SRD leave.

/// SRD promises no order. What there is of it can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SrdOrder {
    /// As the seed says: messages overtake each other.
    #[default]
    Seed,
    /// As they were posted.
    InOrder,
    /// Of those that were posted within a short time, the newest first.
    Reverse,
}

impl SrdOrder {
    /// `seed`, `in-order` or `reverse`.
    ///
    /// # Errors
    /// It is none of them.
    pub fn parse(value: &str) -> Result<SrdOrder, &'static str> {
        match value {
            "seed" => Ok(SrdOrder::Seed),
            "in-order" => Ok(SrdOrder::InOrder),
            "reverse" => Ok(SrdOrder::Reverse),
            _ => Err("it is seed, in-order or reverse"),
        }
    }
}
