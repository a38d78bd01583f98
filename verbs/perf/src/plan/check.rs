//! The checks whether a plan can be measured.

use std::fmt;

use super::{MAX_OUTSTANDING, MeasuredQuantity, Operation, Plan, Service};

const MAX_SIZE_BYTES: usize = 1 << 30;
const MAX_QP_COUNT: usize = 16_000;
const MAX_ROUNDS: usize = 1000;
/// Largest memory of one end for messages, in bytes.
const MAX_BUFFER_BYTES: usize = 256 << 20;

/// A contradiction in a plan. The sentence names the wrong thing and the remedy.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// No path has this MTU.
    Mtu {
        /// The MTU asked for, in bytes.
        mtu_bytes: usize,
    },
    /// The service does not have the operation.
    NotOfService {
        /// Operation that the service does not have.
        operation: Operation,
        /// The service.
        service: Service,
    },
    /// The size of messages is not between 1 byte and 1 GiB.
    Size {
        /// Size that was asked for, in bytes.
        size_bytes: usize,
    },
    /// The size of an atomic is not 8 bytes.
    AtomicSize {
        /// Size that was asked for, in bytes.
        size_bytes: usize,
    },
    /// A datagram is longer than the path MTU.
    DatagramSize {
        /// Size that was asked for, in bytes.
        size_bytes: usize,
        /// The path MTU, in bytes.
        mtu_bytes: usize,
    },
    /// A number of the plan is zero or too large.
    Number {
        /// The field of [`Plan`]: "qp_count", "depth", "post_list" or "rounds".
        field: &'static str,
        /// Its value.
        value: usize,
        /// The largest value possible.
        most: usize,
    },
    /// The length of rounds is not between 0.001 and 3600 seconds.
    RoundSeconds {
        /// Length that was asked for, in seconds.
        round_seconds: f64,
    },
    /// The buffers of messages need more memory than one end may have.
    Buffers {
        /// Largest memory that it may have, in bytes.
        most_bytes: usize,
    },
    /// The plan asks for the latency of several messages at a time.
    LatencyOfSeveral,
    /// The plan asks for the latency of an unreliable WRITE, of which no end is notified.
    LatencyOfUnreliableWrite,
    /// The plan has a passive target for a SEND, or for another quantity than a latency.
    Passive,
    /// The plan has completion events for another quantity than a latency.
    Events,
}

impl PlanError {
    /// Returns the services that have an operation, for an operation that one of them does not have.
    fn instead(operation: Operation) -> &'static str {
        if operation == Operation::Write { "RC or UC" } else { "RC" }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlanError::Mtu { mtu_bytes } => {
                write!(f, "a path MTU of {mtu_bytes} bytes does not exist: use 256, 512, 1024, 2048 or 4096")
            }
            PlanError::NotOfService { operation, service } => {
                let (name, instead) = (service.name().to_uppercase(), PlanError::instead(*operation));
                write!(f, "{name} has no {}: use {instead}", operation.name())
            }
            PlanError::Size { size_bytes } => {
                write!(f, "a size of {size_bytes} bytes is out of range: use 1 to {MAX_SIZE_BYTES}")
            }
            PlanError::AtomicSize { size_bytes } => {
                write!(f, "an atomic has 8 bytes, not {size_bytes}: leave out the size")
            }
            PlanError::DatagramSize { size_bytes, mtu_bytes } => write!(
                f,
                "a UD message of {size_bytes} bytes does not fit one packet of MTU {mtu_bytes}: use a \
                 smaller size or a larger MTU"
            ),
            PlanError::Number { field, value, most } => {
                write!(f, "{field} {value} is out of range: use 1 to {most}")
            }
            PlanError::RoundSeconds { round_seconds } => {
                write!(f, "a round of {round_seconds} s is out of range: use 0.001 to 3600")
            }
            PlanError::Buffers { most_bytes } => {
                let most = most_bytes >> 20;
                write!(f, "a message needs more than {most} MiB of buffers: use a smaller size")
            }
            PlanError::LatencyOfSeveral => f.write_str(
                "latency is measured with one message on one queue pair: use a qp_count and a post_list of 1",
            ),
            PlanError::LatencyOfUnreliableWrite => f.write_str(
                "no end is told when a UC write has arrived: measure its bandwidth, or the latency of RC",
            ),
            PlanError::Passive => f.write_str(
                "a passive target is for the latency of write, read and atomic: a send needs its receiver",
            ),
            PlanError::Events => f.write_str("completion events are for latencies: poll instead"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Checks that the parts of the plan fit together.
    ///
    /// # Errors
    /// Fails with the first contradiction.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_service()?;
        self.check_size()?;
        self.check_numbers()?;
        self.check_quantity()
    }

    fn check_service(&self) -> Result<(), PlanError> {
        if !matches!(self.mtu_bytes, 256 | 512 | 1024 | 2048 | 4096) {
            return Err(PlanError::Mtu { mtu_bytes: self.mtu_bytes });
        }
        match (self.service, self.operation) {
            (Service::Uc, Operation::Read | Operation::Atomic)
            | (Service::Ud, Operation::Read | Operation::Atomic | Operation::Write) => {
                Err(PlanError::NotOfService { operation: self.operation, service: self.service })
            }
            _ => Ok(()),
        }
    }

    fn check_size(&self) -> Result<(), PlanError> {
        let (size_bytes, mtu_bytes) = (self.size_bytes, self.mtu_bytes);
        if size_bytes == 0 || size_bytes > MAX_SIZE_BYTES {
            return Err(PlanError::Size { size_bytes });
        }
        if self.operation == Operation::Atomic && size_bytes != 8 {
            return Err(PlanError::AtomicSize { size_bytes });
        }
        if self.service == Service::Ud && size_bytes > mtu_bytes {
            return Err(PlanError::DatagramSize { size_bytes, mtu_bytes });
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), PlanError> {
        for (field, value, most) in [
            ("qp_count", self.qp_count, MAX_QP_COUNT),
            ("depth", self.depth, MAX_OUTSTANDING),
            ("post_list", self.post_list, self.depth),
            ("rounds", self.rounds, MAX_ROUNDS),
        ] {
            if value == 0 || value > most {
                return Err(PlanError::Number { field, value, most });
            }
        }
        if !(0.001..=3600.0).contains(&self.round_seconds) {
            return Err(PlanError::RoundSeconds { round_seconds: self.round_seconds });
        }
        if self.buffer_count().saturating_mul(self.size_bytes) > MAX_BUFFER_BYTES {
            return Err(PlanError::Buffers { most_bytes: MAX_BUFFER_BYTES });
        }
        Ok(())
    }

    fn check_quantity(&self) -> Result<(), PlanError> {
        let latency = self.quantity == MeasuredQuantity::Latency;
        if latency && (self.qp_count > 1 || self.post_list > 1) {
            return Err(PlanError::LatencyOfSeveral);
        }
        if latency && self.service == Service::Uc && self.operation == Operation::Write {
            return Err(PlanError::LatencyOfUnreliableWrite);
        }
        if self.passive && (self.operation == Operation::Send || !latency) {
            return Err(PlanError::Passive);
        }
        if self.events && !latency {
            return Err(PlanError::Events);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

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
        assert!(plan.check().is_err_and(|error| error.to_string().contains("1025 bytes")));
    }

    #[test]
    fn a_wrong_number_is_named() {
        let plan = Plan { depth: 4, post_list: 5, ..plan(Operation::Write, Service::Rc) };
        let sentence = plan.check().expect_err("more than outstanding").to_string();
        assert_eq!(sentence, "post_list 5 is out of range: use 1 to 4");
    }
}
