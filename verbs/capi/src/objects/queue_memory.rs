//! What users of mlx5 say of the memory of queues. Those of this device are where they are; but a user who
//! wants huge pages and nothing else is told if the host has none, as by mlx5.

use pumice_device::outside::{environment, files};
use pumice_device::profile::Vendor;

use super::context::Context;
use crate::ground::errno::Errno;

/// The variables, and what they have to say for that.
pub(crate) const OF_COMPLETION_QUEUES: &str = "MLX_CQ_ALLOC_TYPE";
pub(crate) const OF_QUEUE_PAIRS: &str = "MLX_QP_ALLOC_TYPE";
pub(crate) const OF_SHARED_RECEIVE_QUEUES: &str = "MLX_SRQ_ALLOC_TYPE";
const HUGE_PAGES_ONLY: &str = "HUGE";
/// How many huge pages the host has.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Checks that a queue can be where the variable says.
///
/// # Errors
/// ENOMEM: the device looks like mlx5, the variable wants huge pages, and the host has none.
pub(crate) fn check(open: &Context, variable: &'static str) -> Result<(), Errno> {
    if !open.is_of(Vendor::Mellanox)
        || environment::variable(variable).is_none_or(|value| value != HUGE_PAGES_ONLY)
    {
        return Ok(());
    }
    let count = files::fact_text(HUGE_PAGES).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if count.is_some_and(|count| count > 0) {
        return Ok(());
    }
    Err(Errno(libc::ENOMEM).because(|| {
        format!(
            "{variable} is {HUGE_PAGES_ONLY}, and this host has no huge pages; say PREFER_HUGE, or \
             reserve some (vm.nr_hugepages)"
        )
    }))
}
