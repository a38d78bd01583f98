//! The personality of a device, and the numbers of failures in the library of its adapter.
//!
//! The numbers of failures in the library of an adapter: the errno of a post that is refused, and
//! `vendor_err` of a completion that failed.

use std::collections::BTreeMap;

use pumice_calls::Call;
use pumice_transport::types::{PostError, QpType, WcStatus};
use serde::{Deserialize, Deserializer, de};

use crate::fates::completion::status_from;

/// A provider library of rdma-core, whose numbers failures have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The library of the kernel's rdma_rxe: no `vendor_err`.
    #[default]
    Rxe,
    /// The library of ConnectX-3 and older.
    Mlx4,
    /// The library of ConnectX-4 and newer.
    Mlx5,
    /// The library of EFA.
    Efa,
}

impl Provider {
    /// Returns the name in a profile.
    pub const fn name(self) -> &'static str {
        match self {
            Provider::Rxe => "rxe",
            Provider::Mlx4 => "mlx4",
            Provider::Mlx5 => "mlx5",
            Provider::Efa => "efa",
        }
    }

    /// Returns the errno with which a post of sends is refused.
    ///
    /// mlx5 counts elements against a limit that is -1 before RTS, so that `ibv_post_send` fails there as it
    /// does with too many of them (qp.c and verbs.c of providers/mlx5); `ibv_wr_complete` knows the state.
    pub const fn errno_of_send(self, error: &PostError, call: PostCall) -> i32 {
        match (self, error) {
            (_, PostError::QueueFull { .. } | PostError::NoMemory)
            | (
                Provider::Mlx4 | Provider::Mlx5,
                PostError::TooManySges { .. } | PostError::InlineTooLong { .. },
            ) => libc::ENOMEM,
            (Provider::Mlx5, PostError::WrongState { .. }) if matches!(call, PostCall::PostSend) => {
                libc::ENOMEM
            }
            _ => libc::EINVAL,
        }
    }

    /// Returns the errno with which a receive request is refused that has more elements than its queue pair
    /// was created for.
    pub const fn errno_of_long_receive(self) -> i32 {
        match self {
            Provider::Mlx4 => libc::ENOMEM,
            Provider::Rxe | Provider::Mlx5 | Provider::Efa => libc::EINVAL,
        }
    }
}

/// The work queue of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkQueueSide {
    Send,
    Receive,
    Both,
}

/// The `vendor_err` of a status, with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VendorErr {
    /// The library.
    pub provider: Provider,
    /// The status of the completion.
    pub status: WcStatus,
    side: WorkQueueSide,
    /// The value of `vendor_err`.
    pub number: u32,
    /// The public report or source that contains it.
    pub source: &'static str,
}

impl VendorErr {
    /// Returns the work queues that the value is for, in words.
    pub const fn queues(&self) -> &'static str {
        match self.side {
            WorkQueueSide::Send => "send",
            WorkQueueSide::Receive => "receive",
            WorkQueueSide::Both => "both",
        }
    }
}

macro_rules! rows {
    ($($provider:ident $status:ident $side:ident $number:literal $source:literal;)+) => {
        /// Every number that is known, and its source. A status without a row has 0.
        pub const VENDOR_ERRS: &[VendorErr] = &[$(VendorErr {
            provider: Provider::$provider,
            status: WcStatus::$status,
            side: WorkQueueSide::$side,
            number: $number,
            source: $source,
        }),+];
    };
}

rows! {
    Mlx5 LocLenErr Both 0x68 "openucx/ucx#1821";
    Mlx5 LocQpOpErr Both 0x68 "openucx/ucx#1151";
    Mlx5 LocProtErr Send 0x51 "NVIDIA/nccl#928, linux-rdma/perftest#173";
    Mlx5 LocProtErr Receive 0x32 "openucx/ucx#7801, openucx/ucx#9167";
    Mlx5 WrFlushErr Both 0xf9 "NVIDIA/nccl#1353, NVIDIA/nccl#1405, linux-nvme/nvme-cli#3268";
    Mlx5 RemInvReqErr Both 0x8a "charmplusplus/charm#2532, openucx/ucx#4176";
    Mlx5 RemAccessErr Both 0x88 "ofiwg/libfabric#4283, openucx/ucx#1569";
    Mlx5 RemOpErr Both 0x89 "openucx/ucx#5472";
    Mlx5 RetryExcErr Both 0x81 "NVIDIA/nccl#1664, NVIDIA/nccl#1814, openucx/ucx#6669";
    Mlx5 RnrRetryExcErr Both 0x87 "Open MPI users 2011/12/17939, of an older adapter of the family";
    Mlx4 LocLenErr Both 0x69 "Open MPI users 2010/07/13701";
    Mlx4 WrFlushErr Both 0xf9 "Open MPI users 2010/07/13701";
    Mlx4 RemAccessErr Both 0x88 "Open MPI users 2010/07/13701, NVIDIA forum 207715";
    Mlx4 RnrRetryExcErr Both 0x87 "Open MPI users 2011/12/17939";
    Efa LocLenErr Both 6 "rdma-core, providers/efa/efa_io_defs.h";
    Efa LocQpOpErr Both 2 "rdma-core, providers/efa/efa_io_defs.h";
    Efa LocProtErr Both 5 "rdma-core, providers/efa/efa_io_defs.h";
    Efa WrFlushErr Both 1 "rdma-core, providers/efa/efa_io_defs.h";
    Efa BadRespErr Both 12 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RemInvReqErr Both 11 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RemAccessErr Both 7 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RemOpErr Both 14 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RnrRetryExcErr Both 10 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RemInvRdReqErr Both 9 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RemAbortErr Both 8 "rdma-core, providers/efa/efa_io_defs.h";
    Efa RespTimeoutErr Both 13 "rdma-core, providers/efa/efa_io_defs.h";
}

/// The call by which a send request is posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostCall {
    /// The call is `ibv_post_send`.
    PostSend,
    /// The call is `ibv_wr_complete`, after builders of requests.
    WrComplete,
}

/// The `vendor_err` by status of a profile (`[vendor_err]`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnVendorErrs(Vec<(WcStatus, u32)>);

impl<'de> Deserialize<'de> for OwnVendorErrs {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<OwnVendorErrs, D::Error> {
        let given = BTreeMap::<String, u32>::deserialize(input)?;
        let each = given.iter().map(|(name, number)| Ok((status_from(name)?, *number)));
        each.collect::<Result<_, String>>().map(OwnVendorErrs).map_err(de::Error::custom)
    }
}

/// The numbers of a device's failures.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failures {
    /// The library whose numbers are used.
    pub provider: Provider,
    own: OwnVendorErrs,
}

impl Failures {
    /// Returns the numbers of a library, except where the profile has its own.
    pub const fn new(provider: Provider, own: OwnVendorErrs) -> Failures {
        Failures { provider, own }
    }

    /// Returns the `vendor_err` of a completion that failed.
    pub fn vendor_err(&self, status: WcStatus, is_receive: bool) -> u32 {
        if let Some((_, number)) = self.own.0.iter().find(|(of, _)| *of == status) {
            return *number;
        }
        let other = if is_receive { WorkQueueSide::Send } else { WorkQueueSide::Receive };
        let row = VENDOR_ERRS
            .iter()
            .find(|row| row.provider == self.provider && row.status == status && row.side != other);
        row.map_or(0, |row| row.number)
    }
}

/// The availability of a vendor's calls (`efadv_*`, `mlx5dv_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectCalls {
    /// All vendor calls are refused.
    #[default]
    None,
    /// The vendor calls that are implemented work.
    Calls,
}

/// The time after which the number of a destroyed queue pair is given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QpnReuse {
    /// Numbers go round: a number is reused after all others.
    #[default]
    Late,
    /// The next queue pair gets the number. A late packet then reaches that one.
    AtOnce,
}

/// The node type in verbs and sysfs; discriminants are those of `ibv_node_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum NodeType {
    /// A channel adapter.
    #[default]
    Ca = 1,
    /// A node of none of the kinds that verbs know, as EFA reports.
    Unspecified = 7,
}

impl NodeType {
    /// Returns the node type as sysfs writes it.
    pub const fn sysfs(self) -> &'static str {
        match self {
            NodeType::Ca => "1: CA",
            NodeType::Unspecified => "7: unspecified",
        }
    }

    /// Returns the `ibv_transport_type`: that of InfiniBand, which RoCE has too, or none that verbs know.
    pub const fn transport(self) -> i32 {
        match self {
            NodeType::Ca => 0,
            NodeType::Unspecified => 4,
        }
    }
}

/// The link layer of a port; discriminants are those of `ibv_port_attr::link_layer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum LinkLayer {
    /// A link layer that verbs do not know, as EFA reports.
    Unspecified = 0,
    /// Ethernet.
    #[default]
    Ethernet = 2,
}

impl LinkLayer {
    /// Returns the link layer as sysfs and tools write it.
    pub const fn name(self) -> &'static str {
        match self {
            LinkLayer::Unspecified => "Unspecified",
            LinkLayer::Ethernet => "Ethernet",
        }
    }
}

/// The kinds of queue pairs that programs may create, by their names in a profile.
const KINDS: [(&str, &[QpType]); 7] = [
    ("rc", &[QpType::Rc]),
    ("uc", &[QpType::Uc]),
    ("ud", &[QpType::Ud]),
    ("xrc", &[QpType::XrcDuplex, QpType::XrcInitiator, QpType::XrcTarget]),
    ("raw", &[QpType::RawPacket]),
    ("srd", &[QpType::Srd]),
    ("dc", &[QpType::Dci, QpType::Dct]),
];

/// A set of kinds of queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairKinds(u8);

impl Default for QueuePairKinds {
    fn default() -> QueuePairKinds {
        // The default contains all kinds that verbs create; SRD and DC are created by vendor calls.
        QueuePairKinds((1 << 5) - 1)
    }
}

impl QueuePairKinds {
    /// Reports whether programs may create queue pairs of a type.
    pub fn has(self, qp_type: QpType) -> bool {
        let kind = KINDS.iter().position(|(_, types)| types.contains(&qp_type));
        kind.is_some_and(|index| self.0 >> index & 1 != 0)
    }

    /// Returns the names of the kinds, with commas between them.
    pub fn words(self) -> String {
        let each = KINDS.iter().enumerate().filter(|(index, _)| self.0 >> index & 1 != 0);
        each.map(|(_, (word, _))| *word).collect::<Vec<_>>().join(", ")
    }
}

impl<'de> Deserialize<'de> for QueuePairKinds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<QueuePairKinds, D::Error> {
        let mut set = 0;
        for word in Vec::<String>::deserialize(input)? {
            let Some(index) = KINDS.iter().position(|(known, _)| *known == word) else {
                let known = KINDS.map(|(known, _)| known).join(", ");
                return Err(de::Error::custom(format!(
                    "no kind of queue pairs is {word}; there are {known}"
                )));
            };
            set |= 1 << index;
        }
        Ok(QueuePairKinds(set))
    }
}

/// The calls that the device refuses with EOPNOTSUPP, as the driver of the imitated device does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusals(Vec<Call>);

impl Refusals {
    /// Reports whether a call is refused.
    pub fn has(&self, call: Call) -> bool {
        self.0.contains(&call)
    }

    /// Returns the calls that are refused.
    pub fn calls(&self) -> &[Call] {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Refusals {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Refusals, D::Error> {
        let call_of = |name: &String| {
            let found = Call::of(name).filter(|call| call.row().answer != pumice_calls::ErrorReturn::Plain);
            // A call that releases something is how programs clean up; calls on the data path are not
            // checked.
            found.filter(|call| !call.destroys() && !call.is_data_path()).ok_or_else(|| {
                de::Error::custom(format!(
                    "{name} is no call that a device may refuse, such as ibv_create_srq"
                ))
            })
        };
        let names = Vec::<String>::deserialize(input)?;
        let calls: Result<Vec<Call>, D::Error> = names.iter().map(call_of).collect();
        Ok(Refusals(calls?))
    }
}

#[cfg(test)]
mod tests {
    use pumice_transport::types::QpState;

    use super::*;
    use crate::profile::Profile;

    fn of(provider: Provider) -> Failures {
        Failures::new(provider, OwnVendorErrs::default())
    }

    #[test]
    fn each_library_has_its_numbers_and_each_number_a_source() {
        assert_eq!(of(Provider::Mlx5).vendor_err(WcStatus::RetryExcErr, false), 129);
        assert_eq!(of(Provider::Mlx5).vendor_err(WcStatus::WrFlushErr, true), 249);
        let protection = |is_receive| of(Provider::Mlx5).vendor_err(WcStatus::LocProtErr, is_receive);
        assert_eq!((protection(false), protection(true)), (81, 50));
        assert_eq!(of(Provider::Efa).vendor_err(WcStatus::WrFlushErr, false), 1);
        for status in WcStatus::ALL {
            assert_eq!(of(Provider::Rxe).vendor_err(status, false), 0);
        }
        for (index, row) in VENDOR_ERRS.iter().enumerate() {
            assert!(row.number != 0 && !row.source.is_empty(), "{row:?}");
            let twice = VENDOR_ERRS.iter().skip(index + 1).find(|other| {
                (other.provider, other.status) == (row.provider, row.status)
                    && (other.side == row.side
                        || WorkQueueSide::Both == row.side
                        || WorkQueueSide::Both == other.side)
            });
            assert_eq!(twice, None, "{row:?}");
        }
    }

    #[test]
    fn a_profile_may_give_numbers_of_its_own() {
        let text = "errors = 'mlx5'\n[vendor_err]\nretry-exceeded = 10\nIBV_WC_FATAL_ERR = 3";
        let failures = Profile::parse(text).unwrap().failures();
        assert_eq!(failures.vendor_err(WcStatus::RetryExcErr, false), 10);
        assert_eq!(failures.vendor_err(WcStatus::FatalErr, true), 3);
        assert_eq!(failures.vendor_err(WcStatus::RemAccessErr, false), 136);
        let sentence = Profile::parse("[vendor_err]\nlost = 1").unwrap_err();
        assert!(sentence.contains("lost is none of local-length, "), "{sentence}");
        assert!(Profile::parse("errors = 'mlx6'").unwrap_err().contains("unknown variant `mlx6`"));
    }

    #[test]
    fn posts_are_refused_with_the_errno_of_the_library() {
        let refusals = [
            PostError::TooManySges { given: 5, allowed: 4 },
            PostError::InlineTooLong { given: 33, allowed: 32 },
            PostError::WrongState { state: QpState::Init },
            PostError::QueueFull { depth: 4, all_unsignaled: false },
            PostError::FlagsOfSrd,
        ];
        let lack_memory = |provider: Provider, call| {
            refusals.each_ref().map(|error| provider.errno_of_send(error, call) == libc::ENOMEM)
        };
        let plain = [false, false, false, true, false];
        assert_eq!(lack_memory(Provider::Rxe, PostCall::PostSend), plain);
        assert_eq!(lack_memory(Provider::Efa, PostCall::WrComplete), plain);
        assert_eq!(lack_memory(Provider::Mlx4, PostCall::PostSend), [true, true, false, true, false]);
        assert_eq!(lack_memory(Provider::Mlx5, PostCall::PostSend), [true, true, true, true, false]);
        assert_eq!(lack_memory(Provider::Mlx5, PostCall::WrComplete), [true, true, false, true, false]);
        assert_eq!(Provider::Mlx4.errno_of_long_receive(), libc::ENOMEM);
        assert_eq!(Provider::Mlx5.errno_of_long_receive(), libc::EINVAL);
    }
}
