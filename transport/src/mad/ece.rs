//! Connection options of vendors.

/// Connection options of vendors ("enhanced connection establishment"); zeros stand for no options. They
/// travel in reserved bits of REQ and REP and in the attribute modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ece {
    /// Vendor that defines the options (24 bits).
    pub vendor_id: u32,
    /// Bits of the options.
    pub options: u32,
}
