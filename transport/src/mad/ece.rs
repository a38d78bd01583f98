//! Connection options of vendors.

/// Connection options of vendors ("enhanced connection establishment"); zeros are none. They travel in
/// reserved bits of REQ and REP and in the attribute modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ece {
    /// Whose options (24 bits).
    pub vendor_id: u32,
    /// Which.
    pub options: u32,
}
