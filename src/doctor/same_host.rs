//! Whether this user's processes here can share memory.

use pumice_device::findings::Finding;

use crate::same_host::SameHost;

use super::kind::{SHARED_MEMORY, WIRE, ok, warning};

/// What is set, what is possible, and who is reached. Nothing if the setting has no meaning: that is said of
/// the device.
pub(crate) fn same_host() -> Vec<Finding> {
    SameHost::examine().map(|found| findings(&found)).unwrap_or_default()
}

fn findings(found: &SameHost) -> Vec<Finding> {
    let mut all = vec![ok(&WIRE, found.setting())];
    match found.possibility() {
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
