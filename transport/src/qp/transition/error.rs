//! Reasons why a `modify_qp` call was refused.

use core::fmt;

use super::super::attributes::AttributeMask;
use crate::types::{Gid, Mtu, QpState, QpType};

/// Kind of a refusal, which the C interface turns into an errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The error EINVAL.
    Invalid,
    /// The error EOPNOTSUPP.
    NotSupported,
    /// The error EPERM.
    Permission,
}

impl ErrorClass {
    /// Returns the name of the errno.
    pub const fn errno_name(self) -> &'static str {
        match self {
            ErrorClass::Invalid => "EINVAL",
            ErrorClass::NotSupported => "EOPNOTSUPP",
            ErrorClass::Permission => "EPERM",
        }
    }
}

/// The transition that was asked for. Prints as the state to be reached, or as `RTS→RTS` when only
/// attributes were to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Type of the queue pair.
    pub qp_type: QpType,
    /// State that it is in.
    pub from: QpState,
    /// State that it was to enter.
    pub to: QpState,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to {
            write!(f, "{0}→{0}", self.to.name())
        } else {
            f.write_str(self.to.name())
        }
    }
}

/// Reason why a queue pair was not modified. Displays as one sentence that names the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ModifyError {
    /// `qp_state` is not a state.
    UnknownState {
        /// Number that was given.
        value: u32,
    },
    /// The mask has bits without a meaning, or attributes this device does not have.
    NotSupported {
        /// Transition asked for.
        step: Step,
        /// The offending bits.
        attributes: AttributeMask,
    },
    /// `cur_qp_state` cannot be claimed, or is not the state the queue pair is in.
    WrongCurrentState {
        /// Transition asked for, from the real state.
        step: Step,
        /// Number that was given as `cur_qp_state`.
        claimed: u32,
    },
    /// The state cannot be reached from the current one.
    NoTransition {
        /// Transition asked for.
        step: Step,
    },
    /// Required attributes were not given.
    Missing {
        /// Transition asked for.
        step: Step,
        /// All attributes that were not given.
        attributes: AttributeMask,
    },
    /// Attributes were given that this transition does not take.
    NotAllowed {
        /// Transition asked for.
        step: Step,
        /// All attributes that were given and are not allowed.
        attributes: AttributeMask,
    },
    /// A number is outside its range.
    OutOfRange {
        /// Transition asked for.
        step: Step,
        /// Field of the attributes.
        attribute: &'static str,
        /// Number that was given.
        value: u32,
        /// Smallest legal value.
        lowest: u32,
        /// Largest legal value.
        highest: u32,
    },
    /// The table that an index points into has no such entry.
    NoSuchEntry {
        /// Transition asked for.
        step: Step,
        /// Field of the attributes.
        attribute: &'static str,
        /// Index that was given.
        index: u32,
        /// Number of entries of the table.
        table_len: u32,
    },
    /// The path MTU does not fit the port.
    PathMtuTooLarge {
        /// Transition asked for.
        step: Step,
        /// Path MTU given.
        path_mtu: Mtu,
        /// Active MTU of the port.
        active_mtu: Mtu,
    },
    /// An address vector has no GRH, which RoCE requires.
    NotGlobal {
        /// Transition asked for.
        step: Step,
        /// Name of the attribute: `ah_attr` or `alt_ah_attr`.
        attribute: &'static str,
    },
    /// The destination GID cannot be the address of a peer.
    BadDestination {
        /// Transition asked for.
        step: Step,
        /// Name of the attribute: `ah_attr` or `alt_ah_attr`.
        attribute: &'static str,
        /// Destination given.
        dgid: Gid,
    },
    /// Two fields name different ports.
    PortMismatch {
        /// Transition asked for.
        step: Step,
        /// Name of the attribute: `ah_attr` or `alt_ah_attr`.
        attribute: &'static str,
        /// Port in the address vector.
        path_port: u8,
        /// Port of the queue pair or of the alternate path.
        port_num: u8,
    },
    /// The path migration state needs an alternate path, and there is none.
    NoAlternatePath {
        /// Transition asked for.
        step: Step,
        /// `path_mig_state` given.
        state: u32,
    },
    /// Messages that were started before SQD are still unanswered.
    StillDraining {
        /// Transition asked for.
        step: Step,
    },
    /// An unprivileged process gave a Q_Key with the top bit set.
    PrivilegedQkey {
        /// Transition asked for.
        step: Step,
        /// Q_Key given.
        qkey: u32,
    },
}

impl ModifyError {
    /// Returns the kind of refusal.
    pub const fn class(&self) -> ErrorClass {
        match self {
            ModifyError::NotSupported { .. } => ErrorClass::NotSupported,
            ModifyError::PrivilegedQkey { .. } => ErrorClass::Permission,
            _ => ErrorClass::Invalid,
        }
    }

    /// Returns the name of the errno that `ibv_modify_qp` returns: "EINVAL", "EOPNOTSUPP" or "EPERM".
    pub const fn errno_name(&self) -> &'static str {
        self.class().errno_name()
    }
}

impl core::error::Error for ModifyError {}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ModifyError::UnknownState { value } => {
                write!(f, "modify_qp refused: qp_state {value} is no state (0…6)")
            }
            ModifyError::NotSupported { step, attributes } => {
                write!(f, "{step} refused: {} {attributes} not supported", noun(attributes))
            }
            ModifyError::WrongCurrentState { step, claimed } => wrong_current_state(f, step, claimed),
            ModifyError::NoTransition { step } => {
                let Step { qp_type, from, to } = step;
                write!(
                    f,
                    "{} refused from {}: no such transition for {}",
                    to.name(),
                    from.name(),
                    qp_type.name()
                )
            }
            ModifyError::Missing { step, attributes } => {
                let qp_type = step.qp_type.name();
                write!(f, "{step} refused: {} {attributes} missing for {qp_type}", noun(attributes))
            }
            ModifyError::NotAllowed { step, attributes } => {
                let qp_type = step.qp_type.name();
                write!(f, "{step} refused: {} {attributes} not allowed for {qp_type}", noun(attributes))
            }
            ModifyError::OutOfRange { step, attribute, value, lowest, highest } => {
                write!(f, "{step} refused: {attribute} {value} outside {lowest}…{highest}")
            }
            ModifyError::NoSuchEntry { step, attribute, index, table_len } => {
                write!(f, "{step} refused: {attribute} {index} beyond a table of {table_len}")
            }
            ModifyError::PathMtuTooLarge { step, path_mtu, active_mtu } => write!(
                f,
                "{step} refused: path_mtu of {} bytes exceeds the port's active MTU of {}",
                path_mtu.bytes(),
                active_mtu.bytes()
            ),
            ModifyError::NotGlobal { step, attribute } => {
                write!(f, "{step} refused: {attribute}.is_global must be 1 on RoCE")
            }
            ModifyError::BadDestination { step, attribute, dgid } if dgid.is_zero() => write!(
                f,
                "{step} refused: {attribute}.grh.dgid is all zeros: it was not filled in, or the peer asked \
                 for a GID index that has no GID, for which ibv_query_gid gives zeros"
            ),
            ModifyError::BadDestination { step, attribute, dgid } => {
                write!(f, "{step} refused: {attribute}.grh.dgid {dgid} is not the address of a peer")
            }
            ModifyError::PortMismatch { step, attribute, path_port, port_num } => {
                write!(f, "{step} refused: {attribute}.port_num {path_port} differs from port_num {port_num}")
            }
            ModifyError::NoAlternatePath { step, state } => {
                write!(f, "{step} refused: path_mig_state {state} needs an alternate path: set alt_ah_attr")
            }
            ModifyError::StillDraining { step } => {
                write!(f, "{step} refused: the send queue is still draining; wait for SQ_DRAINED")
            }
            ModifyError::PrivilegedQkey { step, qkey } => {
                write!(f, "{step} refused: qkey {qkey:#010x} has its top bit set, which needs CAP_NET_RAW")
            }
        }
    }
}

fn noun(attributes: AttributeMask) -> &'static str {
    if attributes.bits().count_ones() == 1 { "attribute" } else { "attributes" }
}

fn wrong_current_state(f: &mut fmt::Formatter<'_>, step: Step, claimed: u32) -> fmt::Result {
    match QpState::from_verbs(claimed) {
        Some(state) if state == step.from => {
            write!(f, "{step} refused: cur_qp_state may be RTR, RTS, SQD or SQE, not {}", state.name())
        }
        Some(state) => {
            write!(f, "{step} refused: cur_qp_state is {}, not {}", step.from.name(), state.name())
        }
        None => write!(f, "{step} refused: cur_qp_state {claimed} is no state (0…6)"),
    }
}
