//! Describes errors of measurements for the command line: the remedies are its options.

use pumice_perf::{Operation, PerfError, PlanError};

/// Returns a sentence about a measurement that failed.
pub(crate) fn in_words(error: &PerfError) -> String {
    match error {
        PerfError::Plan(error) => plan_in_words(error),
        PerfError::LinkMtu { mtu_bytes, most_bytes } => format!(
            "the link carries a path MTU of {most_bytes} at most, not {mtu_bytes}: use --mtu {most_bytes}"
        ),
        PerfError::SameAddress(address) => format!(
            "client and server would both need UDP port 4791 of {address}: use the server's IPv4 address, or \
             --addr"
        ),
        PerfError::NoLoopbackAddress => "no loopback address has UDP port 4791 free: use --addr".to_owned(),
        PerfError::Both { here, server } => format!("{}; the server says: {server}", in_words(here)),
        error => error.to_string(),
    }
}

/// Returns a sentence about a plan that cannot be measured.
pub(crate) fn plan_in_words(error: &PlanError) -> String {
    match error {
        PlanError::NotOfService { operation, service } => {
            let instead = if *operation == Operation::Write { "rc or uc" } else { "rc" };
            let service = service.name().to_uppercase();
            format!("{service} has no {}: use --transport {instead}", operation.name())
        }
        PlanError::Size { size_bytes } => {
            format!("a size of {size_bytes} bytes is out of range: use 1 to 1G")
        }
        PlanError::AtomicSize { size_bytes } => {
            format!("an atomic has 8 bytes, not {size_bytes}: leave out --size")
        }
        PlanError::DatagramSize { size_bytes, mtu_bytes } => format!(
            "a UD message of {size_bytes} bytes does not fit one packet of MTU {mtu_bytes}: use a smaller \
             --size or a larger --mtu"
        ),
        PlanError::Number { field, value, most } => {
            format!("{} {value} is out of range: use 1 to {most}", option_of(field))
        }
        PlanError::RoundSeconds { round_seconds } => {
            format!("a round of {round_seconds} s is out of range: change --for")
        }
        PlanError::Buffers { most_bytes } => {
            format!("a message needs more than {} MiB of buffers: use a smaller --size", most_bytes >> 20)
        }
        PlanError::LatencyOfSeveral => {
            "latency is measured with one message on one queue pair: leave out --qps and --post-list"
                .to_owned()
        }
        PlanError::LatencyOfUnreliableWrite => {
            "no end is told when a UC write has arrived: measure its bandwidth, or --transport rc".to_owned()
        }
        PlanError::Passive => {
            "--passive is for --latency of write, read and atomic: a send needs its receiver".to_owned()
        }
        PlanError::Events => "--events is for --latency".to_owned(),
        error => error.to_string(),
    }
}

/// Returns the option that sets a field of a plan.
fn option_of(field: &str) -> String {
    match field {
        "qp_count" => "--qps".to_owned(),
        field => format!("--{}", field.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_options() {
        let number = |field| PlanError::Number { field, value: 0, most: 9 };
        assert_eq!(plan_in_words(&number("qp_count")), "--qps 0 is out of range: use 1 to 9");
        assert_eq!(plan_in_words(&number("post_list")), "--post-list 0 is out of range: use 1 to 9");
        let here = Box::new(PerfError::LinkMtu { mtu_bytes: 4096, most_bytes: 1024 });
        let both = PerfError::Both { here, server: "no".to_owned() };
        assert!(in_words(&both).ends_with("use --mtu 1024; the server says: no"));
    }
}
