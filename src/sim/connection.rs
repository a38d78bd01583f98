//! A connection of a simulation: posts messages, and checks every byte.

use std::sync::Arc;

use pumice_device::hca::{CqSetup, Hca, HcaError, OwnedMemory, QpInit};
use pumice_device::objects::completion_queue::CompletionQueue;
use pumice_device::platform::table::Handle;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{
    Access, AddressVector, AtomicOperation, Gid, Mtu, QpCapacity, QpState, QpType, RecvRequest, SendOpcode,
    SendRequest, WcStatus, WorkCompletion,
};
use pumice_transport::wire::Qpn;

use super::options::SimOperation;

/// Address of the first byte of each region, as devices see it; fixed, so that runs can be compared.
const IOVA: u64 = 0x1_0000_0000;
/// Maximum size of the memory of one side of one connection, in bytes.
const MEMORY_BYTES: u64 = 64 << 20;
const MAX_OUTSTANDING: u64 = 16;
const WORD_BYTES: u32 = 8;

/// A side of the connection.
struct SimEndpoint {
    hca: Arc<Hca>,
    pd: Handle,
    cq: Arc<CompletionQueue>,
    qpn: Qpn,
    memory: OwnedMemory,
}

pub(crate) struct SimConnection {
    requester: SimEndpoint,
    responder: SimEndpoint,
    operation: SimOperation,
    size: u32,
    seed: u64,
    outstanding_limit: u64,
    total: u64,
    posted: u64,
    receives_posted: u64,
    pub(crate) completed: u64,
    received: u64,
    added: u64,
    pub(crate) bytes: u64,
    /// Number of messages with wrong contents.
    pub(crate) wrong: u64,
    pub(crate) failure: Option<WcStatus>,
}

/// The parameters that all connections of a simulation share.
#[derive(Clone, Copy)]
pub(crate) struct ConnectionTerms {
    pub(crate) operation: SimOperation,
    pub(crate) size: u32,
    pub(crate) messages: u32,
    pub(crate) mtu: Mtu,
}

/// Applies the output function of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl SimEndpoint {
    fn new(hca: &Arc<Hca>, outstanding: u32, bytes: usize) -> Result<SimEndpoint, HcaError> {
        let pd = hca.alloc_pd()?;
        let cq = hca.create_cq(CqSetup { depth: 4 * outstanding, ..CqSetup::default() })?;
        let capacity = QpCapacity {
            max_send_wr: outstanding,
            max_recv_wr: outstanding,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit {
            qp_type: QpType::Rc,
            pd: Some(pd),
            send_cq: Some(cq.handle()),
            recv_cq: Some(cq.handle()),
            srq: None,
            xrcd: None,
            capacity,
            signal_all: true,
            cookie: 0,
        };
        let (qpn, _) = hca.create_qp(&init)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let memory = OwnedMemory::register(hca, pd, bytes, IOVA, rights)?;
        Ok(SimEndpoint { hca: Arc::clone(hca), pd, cq, qpn, memory })
    }

    fn connect(&self, peer: &SimEndpoint, mtu: Mtu, psn: [u32; 2]) -> Result<(), HcaError> {
        use AttributeMask as M;
        let dgid = peer.hca.gids().first().map_or(Gid::ZERO, |(_, entry)| entry.gid);
        let mut a = QpAttributes {
            qp_state: QpState::Init as u32,
            port_num: 1,
            access: 15,
            address_vector: AddressVector { is_global: true, dgid, port_num: 1, ..AddressVector::default() },
            path_mtu: mtu as u32,
            dest_qp_num: peer.qpn.value(),
            rq_psn: psn[1],
            sq_psn: psn[0],
            max_dest_rd_atomic: 16,
            max_rd_atomic: 16,
            min_rnr_timer: 1,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttributes::default()
        };
        self.hca.modify_qp(self.qpn, &a, M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)?;
        a.qp_state = QpState::Rtr as u32;
        let rtr = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        self.hca.modify_qp(self.qpn, &a, M::STATE | rtr)?;
        a.qp_state = QpState::Rts as u32;
        let rts = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
        self.hca.modify_qp(self.qpn, &a, M::STATE | rts)
    }

    fn drain(&self, mut each: impl FnMut(&WorkCompletion)) {
        let mut some = [WorkCompletion::default(); 16];
        loop {
            let count = self.cq.poll(&mut some);
            some.iter().take(count).for_each(&mut each);
            if count < some.len() {
                return;
            }
        }
    }
}

impl SimConnection {
    /// Creates both ends and connects them.
    ///
    /// # Errors
    /// The error of the device.
    pub(crate) fn new(
        ends: [&Arc<Hca>; 2],
        terms: ConnectionTerms,
        seed: u64,
    ) -> Result<SimConnection, HcaError> {
        let stride_bytes = u64::from(terms.size.max(WORD_BYTES)).next_multiple_of(8);
        let outstanding_limit = (MEMORY_BYTES / stride_bytes).clamp(1, MAX_OUTSTANDING);
        let bytes = usize::try_from(stride_bytes * outstanding_limit).unwrap_or(usize::MAX) + 8;
        let requester = SimEndpoint::new(ends[0], outstanding_limit as u32, bytes)?;
        let responder = SimEndpoint::new(ends[1], outstanding_limit as u32, bytes)?;
        let psn = [(mix(seed) & 0xff_ffff) as u32, (mix(seed ^ 1) & 0xff_ffff) as u32];
        requester.connect(&responder, terms.mtu, psn)?;
        responder.connect(&requester, terms.mtu, [psn[1], psn[0]])?;
        Ok(SimConnection {
            requester,
            responder,
            operation: terms.operation,
            size: terms.size,
            seed,
            outstanding_limit,
            total: u64::from(terms.messages),
            posted: 0,
            receives_posted: 0,
            completed: 0,
            received: 0,
            added: 0,
            bytes: 0,
            wrong: 0,
            failure: None,
        })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.failure.is_some() || self.completed == self.total
    }

    fn opcode(&self, message: u64) -> SendOpcode {
        let all = [SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::Send, SendOpcode::FetchAdd];
        match self.operation {
            SimOperation::Write => SendOpcode::RdmaWrite,
            SimOperation::Read => SendOpcode::RdmaRead,
            SimOperation::Send => SendOpcode::Send,
            SimOperation::Atomic => SendOpcode::FetchAdd,
            SimOperation::Mixed => {
                all.get((mix(self.seed ^ message << 1) % 4) as usize).copied().unwrap_or(SendOpcode::Send)
            }
        }
    }

    /// Returns the offset of the buffers of message `message`, on either side.
    fn offset(&self, message: u64) -> u64 {
        message % self.outstanding_limit * u64::from(self.size.max(WORD_BYTES)).next_multiple_of(8)
    }

    /// Returns the offset of the word behind all buffers, for atomics.
    fn word_offset(&self) -> u64 {
        self.offset(self.outstanding_limit - 1) + u64::from(self.size.max(WORD_BYTES)).next_multiple_of(8)
    }

    fn contents(&self, message: u64) -> Vec<u8> {
        let start = mix(self.seed.wrapping_add(message << 20));
        let words = (0..u64::from(self.size).div_ceil(8)).map(|k| mix(start.wrapping_add(k)).to_le_bytes());
        let mut bytes: Vec<u8> = words.flatten().collect();
        bytes.truncate(self.size as usize);
        bytes
    }

    /// Polls, checks what arrived, and posts as many messages as have room.
    ///
    /// # Errors
    /// The device refuses a request.
    pub(crate) fn turn(&mut self) -> Result<(), HcaError> {
        self.take_receives();
        self.take_completions();
        if self.failure.is_some() {
            return Ok(());
        }
        while self.posted < self.total && self.posted - self.completed < self.outstanding_limit {
            self.post(self.posted)?;
            self.posted += 1;
        }
        Ok(())
    }

    fn post(&mut self, message: u64) -> Result<(), HcaError> {
        let (offset, at) = (self.offset(message), self.offset(message) as usize);
        let opcode = self.opcode(message);
        let contents = self.contents(message);
        let empty = vec![0; contents.len()];
        let mut sge = [self.requester.memory.sge(offset, self.size)];
        let mut request = SendRequest::new(message, opcode);
        let (here, there) = match opcode {
            SendOpcode::RdmaRead => (&empty, &contents),
            _ => (&contents, &empty),
        };
        self.requester.memory.write(at, here);
        self.responder.memory.write(at, there);
        request.remote = self.responder.memory.target(offset);
        match opcode {
            SendOpcode::Send => {
                let recv =
                    RecvRequest { wr_id: message, sges: &[self.responder.memory.sge(offset, self.size)] };
                self.responder.hca.post_recv(self.responder.qpn, &recv)?;
                self.receives_posted += 1;
            }
            SendOpcode::FetchAdd => {
                request.remote = self.responder.memory.target(self.word_offset());
                request.atomic = Some(AtomicOperation::FetchAdd { add: message + 1 });
                sge = [self.requester.memory.sge(offset, WORD_BYTES)];
            }
            _ => {}
        }
        request.sges = &sge;
        self.requester.hca.post_send(self.requester.qpn, &request)
    }

    /// Takes completions of receives, which complete before their SENDs do, in order.
    fn take_receives(&mut self) {
        let mut arrived = Vec::new();
        self.responder.drain(|wc| arrived.push((wc.wr_id, wc.status, wc.byte_len)));
        for (message, status, length) in arrived {
            if status == WcStatus::Success {
                self.received += 1;
                self.wrong += u64::from(length != self.size || !self.matches(&self.responder, message));
            }
        }
    }

    fn take_completions(&mut self) {
        let mut done = Vec::new();
        self.requester.drain(|wc| done.push((wc.wr_id, wc.status)));
        for (message, status) in done {
            if status != WcStatus::Success {
                self.failure.get_or_insert(status);
                continue;
            }
            let right = message == self.completed
                && match self.opcode(message) {
                    SendOpcode::RdmaWrite => self.matches(&self.responder, message),
                    SendOpcode::RdmaRead => self.matches(&self.requester, message),
                    SendOpcode::FetchAdd => self.fetched_as_expected(message),
                    _ => true,
                };
            self.wrong += u64::from(!right);
            self.completed += 1;
            let atomic = self.opcode(message) == SendOpcode::FetchAdd;
            self.bytes += u64::from(if atomic { WORD_BYTES } else { self.size });
        }
        if self.completed == self.total && self.received != self.receives_posted {
            self.take_receives();
            self.wrong += self.receives_posted - self.received;
        }
    }

    fn matches(&self, side: &SimEndpoint, message: u64) -> bool {
        let mut found = vec![0; self.size as usize];
        side.memory.read(self.offset(message) as usize, &mut found) && found == self.contents(message)
    }

    /// Checks that each addition returns the sum of those before it.
    fn fetched_as_expected(&mut self, message: u64) -> bool {
        let mut word = [0; 8];
        let read = self.requester.memory.read(self.offset(message) as usize, &mut word);
        let before = self.added;
        self.added = self.added.wrapping_add(message + 1);
        read && u64::from_ne_bytes(word) == before
    }
}

impl Drop for SimConnection {
    fn drop(&mut self) {
        for side in [&self.requester, &self.responder] {
            // The HCAs are dropped next, with everything that could not be destroyed.
            let _ = side.hca.destroy_qp(side.qpn);
            let _ = side.hca.destroy_cq(side.cq.handle());
            let _ = side.hca.dealloc_pd(side.pd);
        }
    }
}
