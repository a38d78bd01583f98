//! What to measure, and which combinations of options mean something.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Work request operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// RDMA WRITE into the peer's memory
    Write,
    /// RDMA READ from the peer's memory
    Read,
    /// SEND into a posted receive
    Send,
    /// Fetch-and-add on eight bytes of the peer's memory
    Atomic,
}

/// Transport service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Service {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
}

impl Operation {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Send => "send",
            Operation::Atomic => "atomic",
        }
    }
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Service::Rc => "rc",
            Service::Uc => "uc",
            Service::Ud => "ud",
        }
    }
}

/// What a test's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Quantity {
    /// Payload bytes per second.
    Bandwidth,
    /// Messages per second.
    Rate,
    /// Time of one message.
    Latency,
}

/// One test, as both ends must know it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) operation: Operation,
    pub(crate) service: Service,
    pub(crate) quantity: Quantity,
    pub(crate) size_bytes: usize,
    pub(crate) mtu_bytes: usize,
    pub(crate) qp_count: usize,
    /// Requests per post.
    pub(crate) post_list: usize,
    /// Requests outstanding on one queue pair.
    pub(crate) depth: usize,
    pub(crate) events: bool,
    pub(crate) passive: bool,
    /// The devices share their UDP ports, as libpumice.so does.
    pub(crate) shared: bool,
    pub(crate) verify: bool,
    /// Measure plain UDP alternately.
    pub(crate) raw: bool,
    pub(crate) rounds: usize,
    pub(crate) round_seconds: f64,
}

/// Messages shorter than this are counted, longer ones are weighed.
const RATE_BELOW_BYTES: usize = 512;
/// Requests that all queue pairs together may have outstanding: what the receiving side has room for.
pub(crate) const MAX_OUTSTANDING: usize = 4096;
const MAX_SIZE_BYTES: usize = 1 << 30;
const MAX_QP_COUNT: usize = 16_000;
/// Memory of one end for messages.
const MAX_BUFFER_BYTES: usize = 256 << 20;

impl Plan {
    /// The quantity that suits a size when no latency was asked for.
    pub(crate) fn throughput_of(size_bytes: usize) -> Quantity {
        if size_bytes < RATE_BELOW_BYTES { Quantity::Rate } else { Quantity::Bandwidth }
    }

    /// Name of the test in reports: service, operation, quantity.
    pub(crate) fn name(&self) -> String {
        let quantity = match self.quantity {
            Quantity::Bandwidth => "bandwidth",
            Quantity::Rate => "rate",
            Quantity::Latency => "latency",
        };
        let mut name = format!("{}_{}_{quantity}", self.service.name(), self.operation.name());
        if self.events {
            name.push_str("_events");
        }
        if self.passive {
            name.push_str("_passive");
        }
        name
    }

    /// Whether the peer answers every message with one of its own; otherwise a message's time is that of
    /// its completion.
    pub(crate) fn ping_pong(&self) -> bool {
        self.quantity == Quantity::Latency && self.operation == Operation::Send
    }

    /// Whether both ends' receive requests come from one shared receive queue.
    pub(crate) fn shared_receives(&self) -> bool {
        self.qp_count > 64
    }

    /// Distinct buffers of `size_bytes` at each end: few enough to stay in the cache, because the plain
    /// stream that serves as the yardstick stays there too.
    pub(crate) fn slot_count(&self) -> usize {
        let by_cache = (512 << 10) / self.size_bytes.max(1);
        self.outstanding().min(by_cache).max(1)
    }

    /// Requests outstanding over all queue pairs.
    pub(crate) fn outstanding(&self) -> usize {
        self.depth.saturating_mul(self.qp_count).min(MAX_OUTSTANDING)
    }

    /// Bytes of a first or only packet beside the payload.
    pub(crate) fn header_bytes(&self) -> usize {
        const BTH_AND_ICRC: usize = 16;
        match (self.operation, self.service) {
            (Operation::Send, Service::Ud) => BTH_AND_ICRC + 8,
            (Operation::Send, _) => BTH_AND_ICRC,
            (Operation::Write | Operation::Read, _) => BTH_AND_ICRC + 16,
            (Operation::Atomic, _) => BTH_AND_ICRC + 28,
        }
    }

    /// Says what does not fit together.
    ///
    /// # Errors
    /// One sentence that names the wrong thing and the remedy.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (operation, service) = (self.operation.name(), self.service.name().to_uppercase());
        let fail = |sentence: String| Err(sentence);
        if !matches!(self.mtu_bytes, 256 | 512 | 1024 | 2048 | 4096) {
            return fail(format!(
                "a path MTU of {} bytes does not exist: use 256, 512, 1024, 2048 or 4096",
                self.mtu_bytes
            ));
        }
        match (self.service, self.operation) {
            (Service::Uc, Operation::Read | Operation::Atomic)
            | (Service::Ud, Operation::Read | Operation::Atomic | Operation::Write) => {
                let use_instead = if self.operation == Operation::Write {
                    "--transport rc or uc"
                } else {
                    "--transport rc"
                };
                return fail(format!("{service} has no {operation}: use {use_instead}"));
            }
            _ => {}
        }
        if self.size_bytes == 0 || self.size_bytes > MAX_SIZE_BYTES {
            return fail(format!("a size of {} bytes is out of range: use 1 to 1G", self.size_bytes));
        }
        if self.operation == Operation::Atomic && self.size_bytes != 8 {
            return fail(format!("an atomic has 8 bytes, not {}: leave out --size", self.size_bytes));
        }
        if self.service == Service::Ud && self.size_bytes > self.mtu_bytes {
            return fail(format!(
                "a UD message of {} bytes does not fit one packet of MTU {}: use a smaller --size or a \
                larger --mtu",
                self.size_bytes, self.mtu_bytes
            ));
        }
        for (option, value, most) in [
            ("--qps", self.qp_count, MAX_QP_COUNT),
            ("--depth", self.depth, MAX_OUTSTANDING),
            ("--post-list", self.post_list, self.depth),
            ("--rounds", self.rounds, 1000),
        ] {
            if value == 0 || value > most {
                return fail(format!("{option} {value} is out of range: use 1 to {most}"));
            }
        }
        if !(0.001..=3600.0).contains(&self.round_seconds) {
            return fail(format!("a round of {} s is out of range: change --duration", self.round_seconds));
        }
        if self.slot_count().saturating_mul(self.size_bytes) > MAX_BUFFER_BYTES {
            let most = MAX_BUFFER_BYTES >> 20;
            return fail(format!("a message needs more than {most} MiB of buffers: use a smaller --size"));
        }
        let latency = self.quantity == Quantity::Latency;
        if latency && (self.qp_count > 1 || self.post_list > 1) {
            return fail(
                "latency is measured with one message on one queue pair: leave out --qps and --post-list"
                    .into(),
            );
        }
        if latency && self.service == Service::Uc && self.operation == Operation::Write {
            return fail(
                "nobody tells when a UC write has arrived: measure its bandwidth, or --transport rc".into(),
            );
        }
        if self.passive && (self.operation == Operation::Send || !latency) {
            return fail(
                "--passive is for --latency of write, read and atomic: a send needs its receiver".into(),
            );
        }
        if self.events && !latency {
            return fail("--events is for --latency".into());
        }
        Ok(())
    }
}

/// Reads "8", "64K", "1M", "1G".
///
/// # Errors
/// A sentence, if it is no size.
pub(crate) fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.trim_end_matches(['B', 'b']).char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 10),
        Some((at, 'm' | 'M')) => (text.get(..at), 20),
        Some((at, 'g' | 'G')) => (text.get(..at), 30),
        _ => (Some(text), 0),
    };
    let number = digits.and_then(|digits| digits.parse::<usize>().ok());
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| format!("\"{text}\" is no size: write bytes, or a number with K, M or G"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::perf) fn plan(operation: Operation, service: Service) -> Plan {
        Plan {
            operation,
            service,
            quantity: Quantity::Rate,
            size_bytes: 8,
            mtu_bytes: 1024,
            qp_count: 1,
            post_list: 1,
            depth: 16,
            events: false,
            passive: false,
            shared: false,
            verify: false,
            raw: false,
            rounds: 1,
            round_seconds: 0.1,
        }
    }

    #[test]
    fn what_each_service_can_do() {
        use Operation::*;
        use Service::*;
        let legal = [(Write, Rc), (Read, Rc), (Send, Rc), (Atomic, Rc), (Write, Uc), (Send, Uc), (Send, Ud)];
        for operation in [Write, Read, Send, Atomic] {
            for service in [Rc, Uc, Ud] {
                let good = plan(operation, service).check().is_ok();
                assert_eq!(good, legal.contains(&(operation, service)), "{operation:?} {service:?}");
            }
        }
    }

    #[test]
    fn a_datagram_fits_one_packet() {
        let mut plan = plan(Operation::Send, Service::Ud);
        plan.size_bytes = 1024;
        assert_eq!(plan.check(), Ok(()));
        plan.size_bytes = 1025;
        assert!(plan.check().is_err_and(|sentence| sentence.contains("1025 bytes")));
    }

    #[test]
    fn sizes_have_suffixes() {
        for (text, bytes) in [("8", 8), ("64K", 65_536), ("1m", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(bytes));
        }
        for text in ["", "K", "1T", "-1", "99999999999999999999", "99999999999999G"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
