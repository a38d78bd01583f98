//! The steering program, by which the kernel chooses a socket of the group for each batch.

use std::io;
use std::os::fd::RawFd;

use libc::sock_filter;
use pumice_transport::mad::attribute;
use pumice_transport::wire::peek;

use super::system;

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Offset of the high half of the service id in a request.
const SERVICE_HIGH_OFFSET: usize = peek::SERVICE_ID_OFFSET;
/// Offset of the low half of the service id in a request.
const SERVICE_LOW_OFFSET: usize = SERVICE_HIGH_OFFSET + 4;
/// Largest number of services in a program: five instructions each, of 4096.
pub(crate) const MAX_SERVICES: usize = 512;

/// The sockets of a group that packets are steered to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Targets {
    /// Index of the socket in the group, for each process index.
    pub(crate) processes: [u8; 256],
    /// Index of the socket for requests of services, by the low half of the service id, in order. The high
    /// half is 0, as in the ids of rdma_cm.
    pub(crate) services: Vec<(u32, u8)>,
}

impl Targets {
    /// Returns the socket that gets requests for a service without an entry: the one for process index 0.
    fn default(&self) -> u8 {
        self.processes.first().copied().unwrap_or(0)
    }
}

/// Makes the group of the socket `fd` choose by the process index, the top byte of the destination queue pair
/// number (for queue pair 1, of the communication id), and requests by their service. Replaces the group's
/// program.
pub(crate) fn attach(fd: RawFd, targets: &Targets) -> io::Result<()> {
    let mut services = targets.services.as_slice();
    services = services.get(..MAX_SERVICES).unwrap_or(services);
    loop {
        // The program has fewer than 4096 instructions.
        match system::attach_program(fd, &mut program(targets, services)) {
            // Older kernels have room for fewer instructions (net.core.optmem_max): requests of the other
            // services are forwarded.
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && !services.is_empty() => {
                services = services.get(..services.len() / 2).unwrap_or(&[]);
            }
            attached => return attached,
        }
    }
}

/// Generates the program: the prologue, a search tree over the runs of process indices that have the same
/// target, and one over services.
fn program(targets: &Targets, services: &[(u32, u8)]) -> Vec<sock_filter> {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for (byte, &target) in (0..=u8::MAX).zip(&targets.processes) {
        if runs.last().is_none_or(|&(_, last)| last != target) {
            runs.push((byte, target));
        }
    }
    let default = targets.default();
    let mut program = prologue(default).to_vec();
    emit(&runs, &mut program);
    let distance = program.len() - REQUEST_JUMP - 1;
    if let Some(jump) = program.get_mut(REQUEST_JUMP) {
        jump.k = distance as u32;
    }
    if !services.is_empty() {
        program.extend([
            instruction(LOAD_WORD, SERVICE_HIGH_OFFSET as u32),
            equal(0, 1, 0),
            instruction(RETURN, default.into()),
            instruction(LOAD_WORD, SERVICE_LOW_OFFSET as u32),
        ]);
        emit_services(services, default, &mut program);
    } else {
        program.push(instruction(RETURN, default.into()));
    }
    program
}

/// Index of the instruction of the prologue that jumps to the services.
const REQUEST_JUMP: usize = 9;

/// Generates the prologue, which loads the process index: the top byte of the queue pair number, or for queue
/// pair 1 that of the receiver's communication id. In most messages that id is the second word behind the
/// MAD's header, in a SIDR_REP the first. In requests, 0 or 255 is there, which is no process's. Requests go
/// on to the services. (A packet too short for a load goes to the first socket: it is dropped wherever it
/// goes.)
fn prologue(default: u8) -> [sock_filter; 13] {
    [
        instruction(LOAD_BYTE, peek::PROCESS_OFFSET as u32),
        equal(0, 0, 11), // else to the search
        instruction(LOAD_HALF, peek::INDEX_OFFSET as u32),
        equal(1, 1, 0),
        instruction(RETURN, default.into()),
        instruction(LOAD_HALF, peek::ATTRIBUTE_OFFSET as u32),
        equal(attribute::REQ.into(), 2, 0),
        equal(attribute::SIDR_REQ.into(), 1, 0),
        equal(attribute::SIDR_REP.into(), 3, 1),
        instruction(JUMP, 0), // to the services
        instruction(LOAD_BYTE, peek::SECOND_ID_OFFSET as u32),
        instruction(JUMP, 1), // to the search
        instruction(LOAD_BYTE, peek::FIRST_ID_OFFSET as u32),
    ]
}

fn equal(k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: JUMP_IF_EQUAL, jt, jf, k }
}

/// Emits code that returns the index for the loaded service, or else the default.
fn emit_services(services: &[(u32, u8)], default: u8, program: &mut Vec<sock_filter>) {
    let (lower, upper) = services.split_at(services.len() / 2);
    let Some(&(first, target)) = upper.first() else { return };
    if lower.is_empty() {
        program.push(equal(first, 0, 1));
        program.push(instruction(RETURN, target.into()));
        program.push(instruction(RETURN, default.into()));
        return;
    }
    branch(first, program, |program| emit_services(lower, default, program));
    emit_services(upper, default, program);
}

/// Emits a branch: `less` emits the code for values less than `first`, and the code emitted next is for the
/// others.
fn branch(first: u32, program: &mut Vec<sock_filter>, less: impl FnOnce(&mut Vec<sock_filter>)) {
    // Conditional jumps reach 255 instructions, unconditional ones any number.
    program.push(sock_filter { jf: 1, ..instruction(JUMP_IF_AT_LEAST, first) });
    let jump = program.len();
    program.push(instruction(JUMP, 0));
    less(program);
    let distance = program.len() - jump - 1;
    if let Some(jump) = program.get_mut(jump) {
        jump.k = distance as u32;
    }
}

fn emit(runs: &[(u8, u8)], program: &mut Vec<sock_filter>) {
    let (lower, upper) = runs.split_at(runs.len() / 2);
    let Some(&(first, target)) = upper.first() else { return };
    if lower.is_empty() {
        program.push(instruction(RETURN, target.into()));
        return;
    }
    branch(first.into(), program, |program| emit(lower, program));
    emit(upper, program);
}

fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use pumice_transport::mad::{
        CmMessage, CommId, Dreq, PortSpace, PrivateData, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
    };
    use pumice_transport::wire::Qpn;

    use super::super::simulation::run_filter as run;
    use super::*;

    fn plain(processes: [u8; 256]) -> Targets {
        Targets { processes, services: Vec::new() }
    }

    fn check(targets: &[u8; 256]) -> usize {
        let program = program(&plain(*targets), &[]);
        let mut longest = 0;
        for byte in 0..=u8::MAX {
            let (index, steps) = run(&program, &[0, 0, 0, 0, 0, byte, 0, 0]);
            assert_eq!(index, u32::from(targets[usize::from(byte)]), "byte {byte}");
            longest = longest.max(steps);
        }
        longest
    }

    #[test]
    fn every_byte_finds_its_target_in_few_steps() {
        assert_eq!(check(&[3; 256]), 5);
        let mut one = [0; 256];
        one[17] = 9;
        assert!(check(&one) <= 9);
        let all: [u8; 256] = std::array::from_fn(|byte| (byte as u8).wrapping_mul(77));
        assert!(check(&all) <= 20);
        assert!(program(&plain(all), &[]).len() <= 780);
    }

    #[test]
    fn messages_to_queue_pair_1_find_the_process_in_their_communication_id() {
        let targets: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        let program = program(&plain(targets), &[]);
        let packet = |message: CmMessage| {
            let mut packet = vec![0x64, 0, 0xff, 0xff, 0, 0, 0, 1];
            packet.resize(20, 0);
            packet.extend(message.emit(0x0102_0304_0506_0708));
            packet
        };
        let (local_id, remote_id) = (CommId(0x3300_0001), CommId(0x4400_0002));
        let qpn = Qpn::new(0x55_0003);
        let rtu = Rtu { local_id, remote_id, private_data: PrivateData::NONE };
        let dreq = Dreq { local_id, remote_id, remote_qpn: qpn, private_data: PrivateData::NONE };
        let service_id = ServiceId::rdma_cm(PortSpace::Udp, 0x6666);
        let (request_id, pkey) = (remote_id, 0xffff);
        let ask = SidrReq { request_id, pkey, service_id, private_data: PrivateData::NONE };
        let answer = SidrRep {
            request_id,
            status: SidrStatus::SUCCESS,
            info_length: 0,
            qpn,
            service_id,
            q_key: 7,
            info: PrivateData::NONE,
            private_data: PrivateData::NONE,
        };
        for (message, process) in [
            (CmMessage::Rtu(rtu), 0x44),
            (CmMessage::Dreq(dreq), 0x44),
            (CmMessage::SidrRep(answer), 0x44),
            // For the lowest process index.
            (CmMessage::SidrReq(ask), 0),
        ] {
            let mut packet = packet(message);
            assert_eq!(run(&program, &packet).0, process, "{message:?}");
            // The same bytes for another queue pair.
            packet[7] = 2;
            assert_eq!(run(&program, &packet).0, 0);
            packet[5..8].copy_from_slice(&[9, 0, 1]);
            assert_eq!(run(&program, &packet).0, 9);
        }
    }

    #[test]
    fn requests_find_the_process_that_listens() {
        let processes: [u8; 256] = std::array::from_fn(|byte| byte as u8 | 1);
        for count in [0, 1, 2, 3, 100, MAX_SERVICES] {
            let services: Vec<(u32, u8)> =
                (0..count as u32).map(|n| (0x0106_0000 + 5 * n, (n % 250) as u8 + 3)).collect();
            let program = program(&Targets { processes, services: services.clone() }, &services);
            assert!(program.len() <= 4096);
            let mut longest = 0;
            for port in 0..5 * count as u16 + 5 {
                for (attribute, high) in [
                    (attribute::REQ, 0_u32),
                    (attribute::SIDR_REQ, 0),
                    (attribute::REQ, 1),
                    (attribute::MRA, 0),
                ] {
                    let mut packet = vec![0; 64];
                    packet[7] = 1;
                    packet[peek::ATTRIBUTE_OFFSET + 1] = attribute as u8;
                    packet[peek::SECOND_ID_OFFSET] = 77;
                    packet[52..56].copy_from_slice(&high.to_be_bytes());
                    packet[56..60].copy_from_slice(&(0x0106_0000 + u32::from(port)).to_be_bytes());
                    let (index, steps) = run(&program, &packet);
                    longest = longest.max(steps);
                    let listener = services
                        .iter()
                        .find(|_| high == 0)
                        .and_then(|_| services.iter().find(|(id, _)| *id == 0x0106_0000 + u32::from(port)));
                    let expected =
                        if attribute == attribute::MRA { 77 } else { listener.map_or(1, |&(_, at)| at) };
                    assert_eq!(index, u32::from(expected), "{count} services, port {port}, {attribute:#x}");
                    // The same bytes for another queue pair.
                    packet[5] = 9;
                    assert_eq!(run(&program, &packet).0, 9);
                }
            }
            assert!(longest <= 40, "{longest} steps");
        }
    }

    #[test]
    fn the_kernel_takes_the_longest_program() {
        let all: [u8; 256] = std::array::from_fn(|byte| (byte as u8).wrapping_mul(77));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        let services = (0..MAX_SERVICES as u32 + 7).map(|port| (0x0106_0000 + port, 3)).collect();
        attach(socket.as_raw_fd(), &Targets { processes: all, services }).unwrap();
        let alone = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        assert_eq!(attach(alone.as_raw_fd(), &plain(all)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
