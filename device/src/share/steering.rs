//! The program by which the kernel chooses a socket of the group for each train.

use std::io;
use std::mem;
use std::os::fd::RawFd;

use libc::{c_int, sock_filter};

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Where in a packet (from the BTH on) the top byte of the destination queue pair number is.
pub(super) const SLOT_OFFSET: usize = 5;

/// Makes the group of the socket `fd` choose by the top byte of the destination queue pair number: the
/// socket whose index is at that place of `targets`. Replaces the group's program.
pub(super) fn attach(fd: RawFd, targets: &[u8; 256]) -> io::Result<()> {
    let mut program = program(targets);
    // At most 767 instructions.
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
    let mut program = vec![instruction(LOAD_BYTE, SLOT_OFFSET as u32)];
    emit(&runs, &mut program);
    program
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
        assert_eq!(check(&[3; 256]), 2);
        let mut one = [0; 256];
        one[17] = 9;
        assert!(check(&one) <= 6);
        let all: [u8; 256] = std::array::from_fn(|byte| (byte as u8).wrapping_mul(77));
        assert!(check(&all) <= 18);
        assert!(program(&all).len() <= 767);
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
