//! The seccomp filter, and filters that choose the socket of a shared port.
//!
//! The seccomp filter: calls of the service `Passes` do not stop, nor those that map memory without
//! code; all others do, including unknown ones.
//!
//! The kernel chooses by a random number of its own where a group of sockets has no filter, and where the
//! filter returns an index that no socket has. A filter of a program is changed so that its index is always
//! one of the group; a group without a filter gets one that chooses by the sender's address and port.

use std::collections::BTreeMap;

use libc::sock_filter;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::rows::{ROWS, SyscallClass};

/// Index of the argument of `mmap` with the rights of the memory.
const PROTECTION: u8 = 2;

/// Returns the filter, for this processor.
pub(crate) fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let passing = ROWS.iter().filter(|(_, syscall_class)| *syscall_class == SyscallClass::Passes);
    let mut rules: BTreeMap<i64, _> = passing.map(|(call, _)| (i64::from(call.id()), Vec::new())).collect();
    // Memory that is no code.
    let code = libc::PROT_EXEC as u64;
    let is_data =
        SeccompCondition::new(PROTECTION, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(code), 0)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![is_data])?]);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Trace(0), SeccompAction::Allow, TargetArch::x86_64)?;
    filter.try_into()
}

const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_NUMBER: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_IMM) as u16;
const TO_INDEX: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
const FROM_INDEX: u16 = (libc::BPF_MISC | libc::BPF_TXA) as u16;
const ADD_INDEX: u16 = (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X) as u16;
const MULTIPLY: u16 = (libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const REMAINDER: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN_NUMBER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const RETURN_INDEX: u16 = (libc::BPF_RET | libc::BPF_X) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_A) as u16;

/// Offset from which loads are relative to the network header.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;
/// Offset from which loads return facts about the packet and the machine instead of bytes.
const FACTS: u32 = libc::SKF_AD_OFF as u32;
/// Facts that differ from run to run: the hash of the flow, the processor, and a random number.
const VARYING_FACTS: [u32; 3] =
    [libc::SKF_AD_RXHASH as u32, libc::SKF_AD_CPU as u32, libc::SKF_AD_RANDOM as u32];
/// Multiplier that spreads ports and addresses (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9e37_79b1;
/// Maximum number of instructions of a filter, as in the kernel.
pub(crate) const MOST_INSTRUCTIONS: usize = 4096;

const fn one(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Returns the filter of a group without one: it chooses one of `sockets` by the sender.
pub(crate) fn by_sender(sockets: u32) -> Vec<sock_filter> {
    let hash = |address: u32, port: u32| {
        [
            one(LOAD_WORD, NETWORK.wrapping_add(address)),
            one(MULTIPLY, SPREAD),
            one(TO_INDEX, 0),
            one(LOAD_HALF, NETWORK.wrapping_add(port)),
            one(ADD_INDEX, 0),
            one(MULTIPLY, SPREAD),
            one(SHIFT_RIGHT, 16),
            one(REMAINDER, sockets),
            one(RETURN, 0),
        ]
    };
    // The last word of the sender's address, and its port behind the header.
    let (version_4, version_6) = (hash(12, 20), hash(20, 40));
    let is_version_6 = sock_filter { code: JUMP_IF_EQUAL, jt: version_4.len() as u8, jf: 0, k: 6 };
    let head = [one(LOAD_BYTE, NETWORK), one(SHIFT_RIGHT, 4), is_version_6];
    [&head[..], &version_4[..], &version_6[..]].concat()
}

/// Returns a program's filter, changed so that it always chooses one of `sockets`, and reads nothing that
/// differs from run to run. Where its index is one of them, it chooses as before.
pub(crate) fn confined(filter: &[sock_filter], sockets: u32) -> Vec<sock_filter> {
    // The kernel has accepted the filter, which has fewer instructions than a jump can reach.
    let distance = |from: usize, to: usize| to.saturating_sub(from + 1) as u32;
    let end = filter.len();
    let changed = filter.iter().enumerate().map(|(at, instruction)| match instruction.code {
        RETURN_NUMBER => one(RETURN_NUMBER, instruction.k % sockets.max(1)),
        RETURN_INDEX => one(JUMP, distance(at, end)),
        RETURN => one(JUMP, distance(at, end + 1)),
        LOAD_BYTE | LOAD_HALF | LOAD_WORD
            if VARYING_FACTS.iter().any(|fact| FACTS.wrapping_add(*fact) == instruction.k) =>
        {
            one(LOAD_NUMBER, 0)
        }
        _ => *instruction,
    });
    let tail = [one(FROM_INDEX, 0), one(REMAINDER, sockets.max(1)), one(RETURN, 0)];
    changed.chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_can_be_made() {
        assert!(!super::program().unwrap().is_empty());
    }

    /// Executes a filter without packets: returns its result.
    fn result(filter: &[sock_filter]) -> u32 {
        let (mut accumulator, mut index, mut at) = (0_u32, 0_u32, 0);
        loop {
            let sock_filter { code, jt, jf, k } = filter[at];
            at += 1;
            match code {
                LOAD_NUMBER => accumulator = k,
                TO_INDEX => index = accumulator,
                FROM_INDEX => accumulator = index,
                REMAINDER => accumulator %= k,
                JUMP => at += k as usize,
                JUMP_IF_EQUAL => at += usize::from(if accumulator == k { jt } else { jf }),
                RETURN_NUMBER => return k,
                RETURN_INDEX => return index,
                RETURN => return accumulator,
                code => panic!("instruction {code:#x}"),
            }
        }
    }

    #[test]
    fn an_index_that_no_socket_has_becomes_one_that_a_socket_has() {
        let by_number = |k| vec![one(LOAD_NUMBER, 9), one(RETURN_NUMBER, k)];
        assert_eq!([result(&confined(&by_number(1), 2)), result(&confined(&by_number(2), 2))], [1, 0]);
        for code in [RETURN, RETURN_INDEX] {
            let is_7 = sock_filter { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: 7 };
            let filter = [one(LOAD_NUMBER, 7), one(TO_INDEX, 0), is_7, one(RETURN_NUMBER, 3), one(code, 0)];
            assert_eq!([result(&confined(&filter, 8)), result(&confined(&filter, 3))], [7, 1], "{code:#x}");
        }
    }

    #[test]
    fn a_filter_reads_no_random_number() {
        let random = FACTS.wrapping_add(libc::SKF_AD_RANDOM as u32);
        let filter = [one(LOAD_WORD, random), one(RETURN, 0)];
        assert_eq!(result(&confined(&filter, 4)), 0);
    }

    #[test]
    fn both_versions_of_the_network_have_a_way_to_the_end() {
        let filter = by_sender(3);
        let version_6 = usize::from(filter[2].jt) + 3;
        assert_eq!(filter[version_6].k, NETWORK.wrapping_add(20));
        assert_eq!([filter[version_6 - 1].code, filter[filter.len() - 1].code], [RETURN, RETURN]);
    }
}
