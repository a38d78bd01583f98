//! A model of the kernel's execution of a classic BPF program.

use libc::sock_filter;

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Runs the program on a packet, and returns its result and the number of steps. A load beyond the packet's
/// end gives 0.
pub(crate) fn run(program: &[sock_filter], packet: &[u8]) -> (u32, usize) {
    let (mut at, mut accumulator, mut steps) = (0, 0, 0);
    loop {
        let step = program[at];
        steps += 1;
        at += 1;
        let byte = |offset: usize| packet.get(step.k as usize + offset).copied().map(u32::from);
        match step.code {
            LOAD_BYTE => match byte(0) {
                Some(value) => accumulator = value,
                None => return (0, steps),
            },
            LOAD_HALF => match (byte(0), byte(1)) {
                (Some(high), Some(low)) => accumulator = high << 8 | low,
                _ => return (0, steps),
            },
            LOAD_WORD => match (byte(0), byte(1), byte(2), byte(3)) {
                (Some(a), Some(b), Some(c), Some(d)) => accumulator = a << 24 | b << 16 | c << 8 | d,
                _ => return (0, steps),
            },
            JUMP_IF_EQUAL => at += usize::from(if accumulator == step.k { step.jt } else { step.jf }),
            JUMP_IF_AT_LEAST => at += usize::from(if accumulator >= step.k { step.jt } else { step.jf }),
            JUMP => at += step.k as usize,
            RETURN => return (step.k, steps),
            other => panic!("instruction {other:#x}"),
        }
    }
}
