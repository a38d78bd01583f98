//! Examines whether this user's processes on this host can share memory.

use pumice_device::findings::Finding;

use crate::same_host::SameHost;

use super::kind::{SHARED_MEMORY, WIRE, ok, warning};

/// Reports the setting, what is possible, and the processes that are reached. Returns nothing if the setting
/// is invalid, because the finding about the device says so.
pub(crate) fn same_host() -> Vec<Finding> {
    SameHost::examine().map(|found| findings(&found)).unwrap_or_default()
}

fn findings(found: &SameHost) -> Vec<Finding> {
    let mut all = vec![ok(&WIRE, found.setting())];
    match found.sharing_possibility() {
        Ok(sentence) => {
            all.push(ok(&SHARED_MEMORY, sentence));
            all.push(ok(&SHARED_MEMORY, format!("reaches {}", found.reach())));
        }
        Err(obstacle) => all.push(warning(
            &SHARED_MEMORY,
            format!("cannot be used, so that all packets go by UDP: {}", obstacle.sentence),
            obstacle.remedy.clone(),
        )),
    }
    all
}
