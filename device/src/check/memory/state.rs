//! What is known of the memory that a program gives to its device.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use pumice_transport::types::RemoteRange;

use super::payload::Reader;
use super::regions::Regions;
use super::requests::Requests;
use super::span::Span;

/// The memory of a program, as far as its device has to do with it.
#[derive(Debug, Default)]
pub(in crate::check) struct Memory {
    pub(super) reader: Reader,
    pub(super) regions: Regions,
    pub(super) requests: Requests,
    /// By the number of the queue pair that serves it: what the latest request of the peer names, and where
    /// that is while its packets arrive.
    pub(super) named: HashMap<u32, (RemoteRange, Option<Span>), FnvBuildHasher>,
}
