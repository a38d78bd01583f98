//! Settings of mlx5's users for the memory of queues. They do not move the queues of this device; but a user
//! who demands huge pages gets an error if the host has none, as with mlx5.

use pumice_device::outside::{environment, files};
use pumice_device::profile::Vendor;

use super::context::Context;
use crate::platform::errno::Errno;

/// The variables, and the value that demands huge pages.
pub(crate) const OF_COMPLETION_QUEUES: &str = "MLX_CQ_ALLOC_TYPE";
pub(crate) const OF_QUEUE_PAIRS: &str = "MLX_QP_ALLOC_TYPE";
pub(crate) const OF_SHARED_RECEIVE_QUEUES: &str = "MLX_SRQ_ALLOC_TYPE";
const HUGE_PAGES_ONLY: &str = "HUGE";
/// File with the number of the host's huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Checks that a queue can be in the memory that the variable demands.
///
/// # Errors
/// Fails with ENOMEM if the device looks like mlx5, the variable demands huge pages, and the host has none.
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
