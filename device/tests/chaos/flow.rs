//! One direction of a connection while it runs: posting, and judging completions.

use std::collections::VecDeque;

use pumice_device::hca::HcaError;
use pumice_transport::qp::PostError;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::image::Image;
use crate::kit::{Node, Random};
use crate::plan::Work;
use crate::scenario::Fate;

/// Marks the `wr_id` of receives, and of those from SRQs.
pub const RECV: u64 = 1 << 63;
pub const SHARED: u64 = 1 << 62;
const GRH_BYTES: usize = 40;

/// One side of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    pub node: usize,
    pub qpn: Qpn,
}

pub struct Direction {
    pub index: usize,
    pub qp_type: QpType,
    pub fate: Fate,
    pub from: Endpoint,
    pub to: Endpoint,
    pub works: Vec<Work>,
    pub uses_srq: bool,
    pub signal_all: bool,
    /// Requests, in order, that take a receive.
    pub consuming: Vec<usize>,
    /// Receive buffers of the target's own queue, in order.
    pub buffers: Vec<(usize, u32)>,
    pub ud: Option<UdDestination>,
    posted: usize,
    outstanding: VecDeque<usize>,
    succeeded: usize,
    pub failure: Option<WcStatus>,
    receives_posted: usize,
    receives_ended: usize,
    pub received: usize,
}

impl Direction {
    pub fn new(
        index: usize,
        qp_type: QpType,
        fate: Fate,
        ends: [Endpoint; 2],
        works: Vec<Work>,
    ) -> Direction {
        let consuming = (0..works.len()).filter(|&at| works[at].consumes_receive()).collect();
        Direction {
            index,
            qp_type,
            fate,
            from: ends[0],
            to: ends[1],
            works,
            uses_srq: false,
            signal_all: false,
            consuming,
            buffers: Vec::new(),
            ud: None,
            posted: 0,
            outstanding: VecDeque::new(),
            succeeded: 0,
            failure: None,
            receives_posted: 0,
            receives_ended: 0,
            received: 0,
        }
    }

    /// Plans the receive buffers of the target's own queue.
    pub fn plan_buffers(&mut self, image: &mut Image, random: &mut Random) {
        let exact: Vec<usize> = match self.qp_type {
            QpType::Rc => self.consuming.iter().map(|&at| self.works[at].message.len()).collect(),
            _ => {
                let longest = self.works.iter().map(|work| work.message.len()).max().unwrap_or(0);
                let grh = if self.qp_type == QpType::Ud { GRH_BYTES } else { 0 };
                vec![longest + grh; self.consuming.len() + 4]
            }
        };
        let mut count = exact.len();
        if self.fate == Fate::Starved && count > 0 {
            count = random.below(count as u64) as usize;
        }
        for bytes in exact.into_iter().take(count) {
            let length = bytes + random.choose(&[0, 0, 1, 100]);
            let offset = image.area(&vec![0x77; length]);
            if self.qp_type != QpType::Rc || self.fate != Fate::Completes {
                image.loosen(offset, length);
            }
            self.buffers.push((offset, length as u32));
        }
    }

    pub fn is_done(&self) -> bool {
        let reliable = self.qp_type == QpType::Rc && self.failure.is_none();
        self.posted == self.works.len()
            && self.outstanding.is_empty()
            && (!reliable || self.fate != Fate::Completes || self.received == self.consuming.len())
    }

    pub fn status(&self) -> String {
        format!(
            "direction {} ({} {:?}) {:?} -> {:?}: {} of {} posted, {} outstanding from {:?}, {} of {} \
            received, \
             {} receives posted, failure {:?}",
            self.index,
            self.qp_type.name(),
            self.fate,
            self.from,
            self.to,
            self.posted,
            self.works.len(),
            self.outstanding.len(),
            self.outstanding.front().map(|&at| self.works[at].opcode),
            self.received,
            self.consuming.len(),
            self.receives_posted,
            self.failure
        )
    }

    /// Posts receives to the target's own queue, as far as there is room.
    pub fn post_receives(&mut self, nodes: &[Node], count: usize) {
        let node = &nodes[self.to.node];
        for _ in 0..count {
            let Some(&(offset, length)) = self.buffers.get(self.receives_posted) else { return };
            let wr_id = RECV | (self.index as u64) << 16 | self.receives_posted as u64;
            let request = RecvRequest { wr_id, sges: &[node.sge(offset, length)] };
            match node.hca.post_recv(self.to.qpn, &request) {
                Ok(()) => self.receives_posted += 1,
                Err(error) => {
                    assert_eq!(error.errno(), libc::ENOMEM, "{error}");
                    return;
                }
            }
        }
    }

    /// Posts sends as far as there is room.
    pub fn post_sends(&mut self, nodes: &[Node], count: usize) {
        let (from, to) = (&nodes[self.from.node], &nodes[self.to.node]);
        for _ in 0..count {
            let Some(work) = self.works.get(self.posted) else { return };
            let sges: Vec<Sge> =
                work.buffers.iter().map(|&(offset, length)| from.sge(offset, length)).collect();
            let request = SendRequest {
                flags: work.flags,
                sges: &sges,
                inline_data: &work.inline_data,
                imm_data: work.imm,
                remote: to.target(work.remote_offset),
                atomic: work.atomic,
                ud: self.ud.clone(),
                ..SendRequest::new((self.index as u64) << 16 | self.posted as u64, work.opcode)
            };
            match from.hca.post_send(self.from.qpn, &request) {
                Ok(()) => {
                    self.outstanding.push_back(self.posted);
                    self.posted += 1;
                }
                Err(HcaError::Post { error: PostError::QueueFull { .. }, .. }) => return,
                Err(error) => panic!("{error}: {work:?}"),
            }
        }
    }

    fn is_signaled(&self, at: usize) -> bool {
        self.signal_all || self.works[at].flags.contains(SendFlags::SIGNALED)
    }

    /// A completion of a send request.
    pub fn sent(&mut self, wc: &WorkCompletion) {
        assert_eq!(wc.qp_num, self.from.qpn.value());
        let at = (wc.wr_id & 0xffff) as usize;
        while let Some(front) = self.outstanding.pop_front() {
            if front == at {
                break;
            }
            // Only an unsignaled success makes no completion.
            assert!(front < at && !self.is_signaled(front) && self.failure.is_none(), "{}", self.status());
            self.succeeded += 1;
            assert!(!self.outstanding.is_empty(), "completion {wc:?} of nothing posted: {}", self.status());
        }
        match (wc.status, self.failure) {
            (WcStatus::Success, None) => {
                assert!(self.is_signaled(at), "{wc:?} of an unsignaled request: {}", self.status());
                assert_eq!(wc.opcode, expected_opcode(self.works[at].opcode));
                self.succeeded += 1;
            }
            (WcStatus::WrFlushErr, Some(_)) => {}
            (status, None) => {
                self.failure = Some(status);
                let specified = match self.fate {
                    Fate::Completes => None,
                    Fate::Cut => Some((WcStatus::RetryExcErr, at)),
                    // Exactly the request that finds no receive.
                    Fate::Starved => Some((WcStatus::RnrRetryExcErr, self.consuming[self.buffers.len()])),
                };
                assert_eq!(Some((status, at)), specified, "{}", self.status());
            }
            (status, Some(_)) => panic!("{status:?} after a failure: {}", self.status()),
        }
    }

    /// A completion of a receive of the target's own queue.
    pub fn received_own(&mut self, wc: &WorkCompletion, node: &Node, image: &mut Image) {
        let at = (wc.wr_id & 0xffff) as usize;
        assert_eq!(at, self.receives_ended, "receives complete in order: {}", self.status());
        assert!(at < self.receives_posted, "{wc:?} was never posted: {}", self.status());
        self.receives_ended += 1;
        let buffer = self.buffers[at];
        self.receive(wc, buffer, node, image);
    }

    /// Judges one receive completion against the message it must be of.
    pub fn receive(&mut self, wc: &WorkCompletion, buffer: (usize, u32), node: &Node, image: &mut Image) {
        assert_eq!(wc.qp_num, self.to.qpn.value());
        if wc.status == WcStatus::WrFlushErr && self.fate != Fate::Completes {
            return;
        }
        assert_eq!(wc.status, WcStatus::Success, "{}", self.status());
        let at = if self.qp_type == QpType::Rc {
            self.consuming[self.received]
        } else {
            u32::from_be_bytes(wc.imm_data) as usize
        };
        self.received += 1;
        let work = &self.works[at];
        assert_eq!(wc.src_qp, self.from.qpn.value());
        let grh = if self.qp_type == QpType::Ud { GRH_BYTES } else { 0 };
        assert_eq!(wc.byte_len as usize, work.message.len() + grh, "{wc:?} of {at}: {}", self.status());
        let has_imm = work.opcode != SendOpcode::Send;
        assert_eq!(wc.flags.contains(WcFlags::WITH_IMM), has_imm);
        if has_imm {
            assert_eq!(wc.imm_data, work.imm);
        }
        if work.opcode == SendOpcode::RdmaWriteWithImm {
            assert_eq!(wc.opcode, WcOpcode::RecvRdmaWithImm);
            return;
        }
        assert_eq!(wc.opcode, WcOpcode::Recv);
        let offset = buffer.0 + grh;
        assert!(node.memory.read(offset, work.message.len()) == work.message, "{}", self.status());
        image.expect(offset, &work.message);
    }
}

fn expected_opcode(opcode: SendOpcode) -> WcOpcode {
    match opcode {
        SendOpcode::Send | SendOpcode::SendWithImm => WcOpcode::Send,
        SendOpcode::RdmaWrite | SendOpcode::RdmaWriteWithImm => WcOpcode::RdmaWrite,
        SendOpcode::RdmaRead => WcOpcode::RdmaRead,
        SendOpcode::CompareSwap => WcOpcode::CompareSwap,
        SendOpcode::FetchAdd => WcOpcode::FetchAdd,
        SendOpcode::AtomicWrite => WcOpcode::AtomicWrite,
        other => panic!("{other:?} is not planned"),
    }
}
