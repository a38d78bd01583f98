//! The program by which the kernel chooses a socket of the group for each train.

use std::io;
use std::mem;
use std::os::fd::RawFd;

use libc::{c_int, sock_filter};
use pumice_transport::mad::attribute;

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where in a packet (from the BTH on) the top byte of the destination queue pair number is.
pub(super) const SLOT_OFFSET: usize = 5;
/// The other two bytes of that number.
const LOW_QPN_OFFSET: u32 = 6;
/// Behind BTH and DETH begins the MAD of a packet for queue pair 1, with the attribute in its header.
const ATTRIBUTE_OFFSET: u32 = 20 + 16;
/// Top byte of the receiver's communication id, the slot of its process: in most messages the second word
/// behind the MAD's header, in a SIDR_REP the first. In requests, 0 or 255 is there, which is nobody's slot.
const REMOTE_ID_OFFSET: u32 = 20 + 24 + 4;
const REQUEST_ID_OFFSET: u32 = 20 + 24;

/// Makes the group of the socket `fd` choose by the slot, the top byte of the destination queue pair number
/// (for queue pair 1, of the communication id): the socket whose index is at that place of `targets`.
/// Replaces the group's program.
pub(super) fn attach(fd: RawFd, targets: &[u8; 256]) -> io::Result<()> {
    let mut program = program(targets);
    // At most 777 instructions.
    let whole = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program is a live array of the length given, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF as c_int,
            (&raw const whole).cast(),
            mem::size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A search tree over the runs of bytes that have the same target.
fn program(targets: &[u8; 256]) -> Vec<sock_filter> {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for (byte, &target) in (0..=u8::MAX).zip(targets) {
        if runs.last().is_none_or(|&(_, last)| last != target) {
            runs.push((byte, target));
        }
    }
    let mut program = prologue().to_vec();
    emit(&runs, &mut program);
    program
}

/// Loads the slot: the top byte of the queue pair number, or for queue pair 1 that of the communication id.
/// (A packet too short for what is looked at goes to the first socket: it is dropped wherever it goes.)
fn prologue() -> [sock_filter; 11] {
    let equal = |k, jt, jf| sock_filter { code: JUMP_IF_EQUAL, jt, jf, k };
    [
        instruction(LOAD_HALF, LOW_QPN_OFFSET),
        equal(1, 0, 8), // else to the last
        instruction(LOAD_BYTE, SLOT_OFFSET as u32),
        equal(0, 0, 7), // else done
        instruction(LOAD_HALF, ATTRIBUTE_OFFSET),
        equal(attribute::SIDR_REP.into(), 2, 0),
        instruction(LOAD_BYTE, REMOTE_ID_OFFSET),
        instruction(JUMP, 3), // done
        instruction(LOAD_BYTE, REQUEST_ID_OFFSET),
        instruction(JUMP, 1), // done
        instruction(LOAD_BYTE, SLOT_OFFSET as u32),
    ]
}

fn emit(runs: &[(u8, u8)], program: &mut Vec<sock_filter>) {
    let (lower, upper) = runs.split_at(runs.len() / 2);
    let Some(&(first, target)) = upper.first() else { return };
    if lower.is_empty() {
        program.push(instruction(RETURN, target.into()));
        return;
    }
    // Conditional jumps reach 255 instructions, unconditional ones any number.
    program.push(sock_filter { jf: 1, ..instruction(JUMP_IF_AT_LEAST, first.into()) });
    let jump = program.len();
    program.push(instruction(JUMP, 0));
    emit(lower, program);
    let distance = program.len() - jump - 1;
    if let Some(jump) = program.get_mut(jump) {
        jump.k = distance as u32;
    }
    emit(upper, program);
}

fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_transport::mad::{
        CmMessage, CommId, Dreq, PortSpace, PrivateData, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
    };
    use pumice_transport::wire::Qpn;
    use std::os::fd::AsRawFd;

    /// What the kernel does with a program, in steps.
    fn run(program: &[sock_filter], packet: &[u8]) -> (u32, usize) {
        let (mut at, mut accumulator, mut steps) = (0, 0, 0);
        loop {
            let step = program[at];
            steps += 1;
            at += 1;
            match step.code {
                LOAD_BYTE => accumulator = u32::from(packet[step.k as usize]),
                LOAD_HALF => {
                    let at = step.k as usize;
                    accumulator = u32::from(packet[at]) << 8 | u32::from(packet[at + 1]);
                }
                JUMP_IF_EQUAL => at += usize::from(if accumulator == step.k { step.jt } else { step.jf }),
                JUMP_IF_AT_LEAST => at += usize::from(if accumulator >= step.k { step.jt } else { step.jf }),
                JUMP => at += step.k as usize,
                RETURN => return (step.k, steps),
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn check(targets: &[u8; 256]) -> usize {
        let program = program(targets);
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
        assert_eq!(check(&[3; 256]), 4);
        let mut one = [0; 256];
        one[17] = 9;
        assert!(check(&one) <= 8);
        let all: [u8; 256] = std::array::from_fn(|byte| (byte as u8).wrapping_mul(77));
        assert!(check(&all) <= 20);
        assert!(program(&all).len() <= 777);
    }

    #[test]
    fn messages_to_queue_pair_1_find_the_process_in_their_communication_id() {
        let targets: [u8; 256] = std::array::from_fn(|byte| byte as u8);
        let program = program(&targets);
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
        for (message, slot) in [
            (CmMessage::Rtu(rtu), 0x44),
            (CmMessage::Dreq(dreq), 0x44),
            (CmMessage::SidrRep(answer), 0x44),
            // Nobody's slot.
            (CmMessage::SidrReq(ask), 0xff),
        ] {
            let mut packet = packet(message);
            assert_eq!(run(&program, &packet).0, slot, "{message:?}");
            // The same bytes for another queue pair.
            packet[7] = 2;
            assert_eq!(run(&program, &packet).0, 0);
            packet[5..8].copy_from_slice(&[9, 0, 1]);
            assert_eq!(run(&program, &packet).0, 9);
        }
    }

    #[test]
    fn the_kernel_takes_the_longest_program() {
        let all: [u8; 256] = std::array::from_fn(|byte| (byte as u8).wrapping_mul(77));
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        attach(socket.as_raw_fd(), &all).unwrap();
        let alone = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        assert_eq!(attach(alone.as_raw_fd(), &all).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
