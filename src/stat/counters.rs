//! All counters of a process, with their meanings.

use pumice_device::counters::COUNTERS;

/// Counters that are not the device's, but of port sharing.
const SHARING: [(&str, &str); 6] = [
    ("share_forwarded", "runs of packets forwarded to the process they are for"),
    ("share_forward_dropped", "runs of packets lost because that process did not keep up"),
    ("share_taken_over", "runs of packets taken over from other processes"),
    ("share_rejected", "datagrams of others, dropped"),
    (
        "share_rerouted",
        "requests forwarded to another process, because the one that the kernel chose did not run",
    ),
    ("share_mended", "looks at the registry that repair the steering"),
];

/// Returns names and meanings.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    COUNTERS.iter().map(|info| (info.name, info.meaning)).chain(SHARING)
}

/// Returns the meaning of a counter; empty if the process has one that this version does not know.
pub(super) fn meaning(name: &str) -> &'static str {
    all().find(|(other, _)| *other == name).map_or("", |(_, meaning)| meaning)
}
