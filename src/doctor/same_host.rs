//! Whether this user's processes here can share memory.

use crate::same_host::SameHost;

use super::finding::Finding;

/// What is set, what is possible, and who is reached. Nothing if the setting has no meaning: that is said of
/// the device.
pub(crate) fn same_host() -> Vec<Finding> {
    SameHost::examine().map(|found| findings(&found)).unwrap_or_default()
}

fn findings(found: &SameHost) -> Vec<Finding> {
    let mut all = vec![Finding::ok("wire", found.setting())];
    match found.possibility() {
        Ok(sentence) => {
            all.push(Finding::ok("shared memory", sentence));
            all.push(Finding::ok("shared memory", format!("reaches {}", found.reach())));
        }
        Err(obstacle) => all.push(Finding::warning(
            "shared memory",
            format!("cannot be used, so that all packets go by UDP: {}", obstacle.sentence),
            obstacle.remedy.clone(),
        )),
    }
    all
}
