//! The connection of one end to the other, data that they exchange, and completions of one end.

use std::time::{Duration, Instant};

use pumice_transport::types::Mtu;
use pumice_verbs::{
    Counter, Device, PathOptions, RcConnectOptions, RcEndpoint, RemoteSlice, UcConnectOptions, UcEndpoint,
    UdEndpoint, UdQueuePair, WcFlags, WorkCompletion,
};
use serde::{Deserialize, Serialize};

use super::Endpoint;
use super::queue_pairs::{ServiceQueuePairs, receives_per_queue, target_stride};
use crate::error::{PerfError, Result, of_device};
use crate::plan::{Operation, Plan};

/// Data that the other end needs to connect.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct EndpointInfo {
    /// Queue pairs in the format of verbs.
    endpoints: Vec<[u8; 24]>,
    /// Memory for WRITEs, READs and atomics.
    pub(super) target: [u8; 16],
}

/// Counters of a device since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PacketCounts {
    /// Number of packets sent.
    pub(crate) sent: u64,
    /// Number of packets received.
    pub(crate) received: u64,
    /// Number of packets sent again.
    pub(crate) retransmitted: u64,
    /// Number of times that a peer's answer did not come in time.
    pub(crate) timeouts: u64,
    /// Number of RNR NAKs received: the peer had no receive request for a message.
    pub(crate) receiver_not_ready: u64,
}

/// Time without a message after which no more are expected.
const QUIET_TIME: Duration = Duration::from_millis(5);

/// Methods for completions. Each call fails if a request has failed.
impl Endpoint {
    /// Returns the number in a message's immediate data.
    pub(crate) fn number_of(completion: &WorkCompletion) -> u64 {
        u64::from(u32::from_be_bytes(completion.imm_data))
    }

    /// Reports whether it has one.
    pub(crate) fn has_number(completion: &WorkCompletion) -> bool {
        completion.flags.contains(WcFlags::WITH_IMM)
    }

    /// Takes completions of sends; a poll that finds none drives the device.
    #[inline]
    pub(crate) fn poll_sends(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.sends.poll(out)
    }

    /// Takes completions of receives; a poll that finds none drives the device.
    #[inline]
    pub(crate) fn poll_receives(&mut self, out: &mut [WorkCompletion]) -> Result<usize> {
        self.receives.poll(out)
    }

    /// Takes completions as [`poll_sends`](Endpoint::poll_sends) does, sleeping until there are some.
    pub(crate) fn wait_sends(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.sends.wait(out, limit)
    }

    /// Takes completions as [`poll_receives`](Endpoint::poll_receives) does, sleeping until there are some.
    pub(crate) fn wait_receives(&mut self, out: &mut [WorkCompletion], limit: Duration) -> Result<usize> {
        self.receives.wait(out, limit)
    }

    /// Takes completions of sends that no loop waits for.
    pub(crate) fn discard_sends(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        while !self.sends.cq.is_empty() && self.sends.poll(&mut done)? > 0 {}
        Ok(())
    }

    /// Takes the completions that an earlier round left.
    pub(crate) fn drain(&mut self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 32];
        while self.sends.poll(&mut done)? > 0 {}
        loop {
            let count = self.receives.poll(&mut done)?;
            if count == 0 {
                return Ok(());
            }
            for completion in done.iter().take(count) {
                self.post_receive_again(completion)?;
            }
        }
    }

    /// Lets the device receive until no more messages arrive; acknowledged messages are here already, so a
    /// reliable service need not wait.
    pub(crate) fn settle(&mut self, reliable: bool) -> Result<()> {
        if reliable {
            return Ok(());
        }
        let received = |device: &Device| device.counters().value(Counter::RxPackets);
        let (mut before, mut since) = (received(&self.device), Instant::now());
        while since.elapsed() < QUIET_TIME {
            self.idle.poll(&mut [WorkCompletion::default()]);
            let now = received(&self.device);
            if now != before {
                (before, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Reports whether messages arrive with a completion each.
    pub(crate) fn receives_messages(&self) -> bool {
        self.plan.operation == Operation::Send
    }

    /// Returns the number of messages whose contents the destination can hold side by side.
    pub(crate) fn checkable_messages(&self) -> u64 {
        let distinct = if self.plan.operation == Operation::Send && self.plan.qp_count > 1 {
            // Receives of different queue pairs may share memory.
            let receives = receives_per_queue(&self.plan) * self.plan.qp_count;
            if self.plan.shared_receives() || self.buffers.targets.len() < receives {
                1
            } else {
                self.buffers.sources.len()
            }
        } else {
            self.buffers.sources.len().min(self.buffers.targets.len())
        };
        distinct.max(1) as u64
    }

    /// Returns the counters of the device.
    pub(crate) fn traffic(&self) -> PacketCounts {
        let count = |counter| self.device.counters().value(counter);
        PacketCounts {
            sent: count(Counter::TxPackets),
            received: count(Counter::RxPackets),
            retransmitted: count(Counter::RetransmittedPackets),
            timeouts: count(Counter::Timeout),
            receiver_not_ready: count(Counter::RxRnrNak),
        }
    }

    /// Returns the data that the other end needs to connect.
    pub(crate) fn info(&self) -> EndpointInfo {
        let gid = self.device.gids().first().map(|(_, entry)| entry.gid).unwrap_or_default();
        let endpoints = match &self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => qps.iter().map(|qp| qp.endpoint().to_bytes()).collect(),
            ServiceQueuePairs::Uc(qps) => qps.iter().map(|qp| qp.endpoint().to_bytes()).collect(),
            ServiceQueuePairs::Ud(qps, _) => {
                let endpoint = |qp: &UdQueuePair| UdEndpoint { gid, qpn: qp.qpn(), qkey: QKEY };
                qps.iter().map(|qp| endpoint(qp).to_bytes()).collect()
            }
        };
        EndpointInfo { endpoints, target: self.buffers.target.remote().to_bytes() }
    }

    /// Connects all queue pairs.
    pub(crate) fn connect(&mut self, peer: &EndpointInfo) -> Result<()> {
        let path = PathOptions { mtu: Mtu::from_bytes(self.plan.mtu_bytes), ..PathOptions::default() };
        let rd_atomic = self.plan.depth.clamp(1, 128) as u8;
        if peer.endpoints.len() != self.plan.qp_count {
            let sentence = "the other end made another number of queue pairs";
            return Err(PerfError::Control(sentence.to_owned()));
        }
        match &mut self.queue_pairs {
            ServiceQueuePairs::Rc(qps) => {
                let options = RcConnectOptions {
                    path,
                    max_rd_atomic: rd_atomic,
                    max_dest_rd_atomic: rd_atomic,
                    ..RcConnectOptions::default()
                };
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    let endpoint = RcEndpoint::from_bytes(bytes).map_err(of_device)?;
                    check_mtu(endpoint.mtu, &self.plan)?;
                    qp.connect(&endpoint, &options).map_err(of_device)?;
                }
            }
            ServiceQueuePairs::Uc(qps) => {
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    let endpoint = UcEndpoint::from_bytes(bytes).map_err(of_device)?;
                    check_mtu(endpoint.mtu, &self.plan)?;
                    qp.connect(&endpoint, &UcConnectOptions { path }).map_err(of_device)?;
                }
            }
            ServiceQueuePairs::Ud(qps, addresses) => {
                check_mtu(self.device.active_mtu(), &self.plan)?;
                for (qp, bytes) in qps.iter().zip(&peer.endpoints) {
                    qp.activate(QKEY).map_err(of_device)?;
                    let endpoint = UdEndpoint::from_bytes(bytes);
                    addresses.push(self.domain.ud_address(&endpoint).map_err(of_device)?);
                }
            }
        }
        let whole = RemoteSlice::from_bytes(&peer.target);
        let (stride, length) = (target_stride(&self.plan), self.plan.size_bytes);
        let slice = |index: usize| whole.slice(index * stride..index * stride + length);
        let count = self.plan.buffer_count().max(1);
        self.buffers.remotes =
            (0..count).map(slice).collect::<std::result::Result<_, _>>().map_err(of_device)?;
        Ok(())
    }
}

const QKEY: u32 = 0x1234_5678;

/// Checks that the link carries the plan's path MTU.
fn check_mtu(largest: Mtu, plan: &Plan) -> Result<()> {
    let (mtu_bytes, most_bytes) = (plan.mtu_bytes, largest.bytes());
    if mtu_bytes <= most_bytes { Ok(()) } else { Err(PerfError::LinkMtu { mtu_bytes, most_bytes }) }
}
