//! Memory of the program that requests fill.

use pumice_platform::call_stack::Stack;

/// Memory that a READ or an atomic fills.
#[derive(Debug, Clone)]
pub(in crate::check) struct LandingBuffer {
    pub(in crate::check) number: u32,
    pub(in crate::check) message: u64,
    pub(in crate::check) name: &'static str,
    pub(in crate::check) stack: Stack,
}
