//! What one end asks of the other, and what must have come of it in the end.

use std::collections::VecDeque;

use pumice_transport::types::{
    Access, AtomicOperation, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WcOpcode, WcStatus,
};

use crate::kit::host::FakeHost;
use crate::kit::rung::ALL_REMOTE;
use crate::link::Random;
use crate::node::Node;

/// Local data to send, and room for what READs bring.
const LOCAL: u32 = 1;
const LOCAL_BASE: u64 = 0x1000_0000;
/// Memory that the other end uses; its R_Key is the L_Key + 0x1000.
const SHARED: u32 = 2;
const SHARED_RKEY: u32 = 0x1002;
const SHARED_BASE: u64 = 0x2000_0000;
/// Receive buffers.
const INBOX: u32 = 3;
const INBOX_BASE: u64 = 0x3000_0000;
/// The first bytes of the shared memory are a counter.
const COUNTER_BYTES: u64 = 64;

#[derive(Debug, Clone)]
struct PlannedRequest {
    opcode: SendOpcode,
    /// Offset in local memory, of data sent or brought.
    local: u64,
    /// Offset in the peer's shared memory.
    remote: u64,
    length: u32,
    add: u64,
    flags: SendFlags,
}

impl PlannedRequest {
    fn takes_receive(&self) -> bool {
        matches!(self.opcode, SendOpcode::Send | SendOpcode::SendWithImm | SendOpcode::RdmaWriteWithImm)
    }
}

/// The requests of one end, made from a seed.
#[derive(Debug)]
pub(crate) struct Workload {
    requests: Vec<PlannedRequest>,
    posted: usize,
    longest: u32,
    receives_posted: u64,
    receives_needed: u64,
}

impl Workload {
    /// `count` requests of these kinds, with lengths around the path MTU.
    pub(crate) fn new(random: &mut Random, count: usize, mtu: u32, kinds: &[SendOpcode]) -> Workload {
        let longest = 6 * mtu;
        let mut requests: Vec<PlannedRequest> = Vec::new();
        let mut next = COUNTER_BYTES;
        for number in 0..count {
            let opcode = random.pick(kinds);
            let any = random.below(u64::from(longest)) as u32;
            let length = random.pick(&[0, 1, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu, any]);
            let is_atomic = matches!(opcode, SendOpcode::FetchAdd | SendOpcode::AtomicWrite);
            let length = if is_atomic { 8 } else { length };
            let last_write = requests.iter().rfind(|request| request.opcode == SendOpcode::RdmaWrite);
            let (remote, length) = match (opcode, last_write) {
                (SendOpcode::FetchAdd, _) => (0, length),
                // A READ of what was just written must see it.
                (SendOpcode::RdmaRead, Some(write)) if random.chance(500) => (write.remote, write.length),
                _ => (next, length),
            };
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, number + 1 == count || random.chance(600));
            flags.set(SendFlags::FENCE, random.chance(100));
            requests.push(PlannedRequest {
                opcode,
                local: next,
                remote,
                length,
                add: random.below(1000),
                flags,
            });
            next += u64::from(length).next_multiple_of(8) + 8;
        }
        let receives_needed = requests.iter().filter(|request| request.takes_receive()).count() as u64;
        Workload { requests, posted: 0, longest, receives_posted: 0, receives_needed }
    }

    fn memory_bytes(&self) -> usize {
        let last = self.requests.last().map_or(0, |request| request.local + u64::from(request.length));
        last as usize + 16
    }

    /// Registers what this workload needs at the end that asks and at the end that serves.
    pub(crate) fn prepare(&self, asking: &mut FakeHost, serving: &mut FakeHost, random: &mut Random) {
        let bytes = self.memory_bytes();
        let noise = |random: &mut Random| (0..bytes).map(|_| random.next() as u8).collect();
        asking.region(LOCAL, LOCAL_BASE, bytes, Access::LOCAL_WRITE).bytes = noise(random);
        let shared = serving.region(SHARED, SHARED_BASE, bytes, ALL_REMOTE);
        shared.bytes = noise(random);
        shared.bytes[..COUNTER_BYTES as usize].fill(0);
        let inbox = self.receives_needed as usize * self.longest as usize;
        serving.region(INBOX, INBOX_BASE, inbox, Access::LOCAL_WRITE);
    }

    /// Posts requests while there is room in the queue.
    pub(crate) fn post(&mut self, node: &mut Node) {
        while let Some(request) = self.requests.get(self.posted) {
            let number = self.posted as u64;
            let sges = split(LOCAL_BASE + request.local, request.length, number);
            let posted = SendRequest {
                sges: &sges,
                flags: request.flags,
                imm_data: (number as u32).to_be_bytes(),
                remote: RemoteTarget { address: SHARED_BASE + request.remote, rkey: SHARED_RKEY },
                atomic: Some(AtomicOperation::FetchAdd { add: request.add }),
                ..SendRequest::new(number, request.opcode)
            };
            match node.qp.post_send(&posted, &mut node.host) {
                Ok(()) => self.posted += 1,
                Err(full) if full.is_queue_full() => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Posts the next receive, if one is missing.
    pub(crate) fn post_receive(&mut self, serving: &mut FakeHost) {
        if self.receives_posted < self.receives_needed {
            let address = INBOX_BASE + self.receives_posted * u64::from(self.longest);
            serving.post_recv(self.receives_posted, address, self.longest, INBOX);
            self.receives_posted += 1;
        }
    }

    pub(crate) fn is_done(&self, asking: &FakeHost) -> bool {
        asking.sends_done.last().is_some_and(|done| done.wc.wr_id + 1 == self.requests.len() as u64)
    }

    /// Checks completions, counter, and every byte that moved. `before` is the local memory of the
    /// asking end and the shared memory of the serving end at the start.
    pub(crate) fn check(&self, asking: &mut FakeHost, serving: &mut FakeHost, before: &[Vec<u8>; 2]) {
        let signaled = self.requests.iter().zip(0u64..);
        let expected: Vec<_> = signaled
            .filter(|(request, _)| request.flags.contains(SendFlags::SIGNALED))
            .map(|(_, number)| (number, WcStatus::Success))
            .collect();
        let released: u32 = asking.sends_done.iter().map(|done| done.released).sum();
        assert_eq!(released as usize, self.requests.len(), "entries released");
        assert_eq!(asking.take_sends(), expected, "each signaled request completes once, in order");

        let [mut local, mut shared] = before.clone();
        let mut arrivals = VecDeque::from(std::mem::take(&mut serving.recvs_done));
        let mut sum = 0u64;
        for (request, number) in self.requests.iter().zip(0u32..) {
            let length = request.length as usize;
            let here = request.local as usize..request.local as usize + length;
            let there = request.remote as usize..request.remote as usize + length;
            match request.opcode {
                SendOpcode::RdmaWrite | SendOpcode::RdmaWriteWithImm | SendOpcode::AtomicWrite => {
                    shared[there].copy_from_slice(&local[here.clone()]);
                }
                SendOpcode::RdmaRead => local[here.clone()].copy_from_slice(&shared[there]),
                SendOpcode::FetchAdd => {
                    local[here.clone()].copy_from_slice(&sum.to_ne_bytes());
                    sum += request.add;
                    shared[..8].copy_from_slice(&sum.to_ne_bytes());
                }
                _ => {}
            }
            if request.takes_receive() {
                let done = arrivals.pop_front().unwrap_or_else(|| panic!("request {number} did not arrive"));
                let write = request.opcode == SendOpcode::RdmaWriteWithImm;
                let opcode = if write { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
                assert_eq!((done.wc.status, done.wc.opcode), (WcStatus::Success, opcode), "{number}");
                assert_eq!(done.wc.byte_len, request.length, "{number}");
                if request.opcode != SendOpcode::Send {
                    assert_eq!(done.wc.imm_data, number.to_be_bytes());
                }
                if !write {
                    let at = done.wc.wr_id as usize * self.longest as usize;
                    let inbox = &serving.memory.region(INBOX).bytes[at..at + length];
                    assert!(inbox == &local[here], "contents of SEND {number}");
                }
            }
        }
        assert_eq!(arrivals.len(), 0, "more arrived than was sent");
        assert!(asking.memory.region(LOCAL).bytes == local, "what READs and atomics brought");
        assert!(serving.memory.region(SHARED).bytes == shared, "what WRITEs and atomics left");
    }

    /// Local memory of the asking end, shared memory of the serving one.
    pub(crate) fn snapshot(asking: &mut FakeHost, serving: &mut FakeHost) -> [Vec<u8>; 2] {
        [asking.memory.region(LOCAL).bytes.clone(), serving.memory.region(SHARED).bytes.clone()]
    }
}

/// One run of bytes as one to three buffers.
fn split(address: u64, length: u32, number: u64) -> Vec<Sge> {
    let cut = if number.is_multiple_of(3) { length / 3 } else { 0 };
    let first = Sge { address, length: cut, lkey: LOCAL };
    let second = Sge { address: address + u64::from(cut), length: length - cut, lkey: LOCAL };
    vec![first, Sge::default(), second]
}
