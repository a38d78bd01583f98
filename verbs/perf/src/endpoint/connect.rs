//! The connection of one end to the other.

use pumice_transport::types::Mtu;
use pumice_verbs::{
    PathOptions, RcConnectOptions, RcEndpoint, RemoteSlice, UcConnectOptions, UcEndpoint, UdEndpoint,
    UdQueuePair,
};

use super::buffers::target_stride;
use super::end::Endpoint;
use super::info::EndpointInfo;
use super::queue_pairs::ServiceQueuePairs;
use crate::error::{PerfError, Result, of_device};
use crate::plan::Plan;

const QKEY: u32 = 0x1234_5678;

impl Endpoint {
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

/// Checks that the link carries the plan's path MTU.
fn check_mtu(largest: Mtu, plan: &Plan) -> Result<()> {
    let (mtu_bytes, most_bytes) = (plan.mtu_bytes, largest.bytes());
    if mtu_bytes <= most_bytes { Ok(()) } else { Err(PerfError::LinkMtu { mtu_bytes, most_bytes }) }
}
