//! The numbers of failures in the library of an adapter: the errno of a post that is refused, and
//! `vendor_err` of a completion that failed.

use std::collections::BTreeMap;

use crate::fates::status::status_from;
use pumice_transport::types::{PostError, WcStatus};
use serde::{Deserialize, Deserializer, de};

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

impl Provider {
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
