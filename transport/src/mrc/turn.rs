//! State that the halves of a queue pair share while a packet is handled.

use super::paths::ReversePaths;
use super::settings::MrcSettings;
use super::statistics::MrcStatistics;

pub(crate) struct MrcCallContext<'a, H> {
    pub(crate) settings: &'a MrcSettings,
    pub(crate) now_ns: u64,
    pub(crate) statistics: &'a mut MrcStatistics,
    pub(crate) reverse: &'a mut ReversePaths,
    pub(crate) host: &'a mut H,
}
