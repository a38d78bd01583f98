//! Threads that loop without a call until memory changes: whether a thread does is proven, by running it one
//! instruction after the other.
//!
//! It is proven when two rounds in a row have the same registers at each step, and each instruction is of a
//! kind that reads, computes in registers, or stores what registers say where registers say. Then the second
//! round left the memory as the first one did, and so does every further round: when it was noticed makes no
//! difference. The thread then stands at the same instruction of its loop in every run.

use nix::sys::signal::Signal;

use super::stop::{Stop, await_stop};
use super::tracee::{Registers, Tracee};

/// Instructions that are looked at, at most.
const MOST_STEPS: usize = 600;
/// Bytes of an instruction that are looked at: prefixes and what follows.
const CODE: usize = 8;

/// What the steps of a thread came to.
#[derive(Debug)]
pub(crate) enum Proof {
    /// It loops until memory changes, and stands at the beginning of its loop.
    Loops,
    /// It does not, or that cannot be told. It goes on.
    Open,
    /// It came to this stop.
    Stopped(Stop),
}

/// Whether a thread that is stopped somewhere in its program loops until memory changes.
pub(crate) fn prove(tracee: Tracee) -> nix::Result<Proof> {
    let mut states: Vec<Key> = Vec::new();
    let mut before = tracee.registers()?;
    while states.len() < MOST_STEPS {
        states.push(key(&before));
        if let Some(round) = repeated_round(&states) {
            return to_beginning(tracee, &round);
        }
        let now = match step(tracee, &before)? {
            Ok(now) => now,
            Err(proof) => return Ok(proof),
        };
        before = now;
    }
    Ok(Proof::Open)
}

/// Lets it go on to the state of its loop that comes first of all, by its instruction.
fn to_beginning(tracee: Tracee, round: &[Key]) -> nix::Result<Proof> {
    let Some(first) = round.iter().min() else { return Ok(Proof::Open) };
    for _ in 0..=round.len() {
        let now = tracee.registers()?;
        if key(&now) == *first {
            return Ok(Proof::Loops);
        }
        if let Err(proof) = step(tracee, &now)? {
            return Ok(proof);
        }
    }
    Ok(Proof::Open)
}

/// One instruction, if it is of a kind that is known.
fn step(tracee: Tracee, before: &Registers) -> nix::Result<Result<Registers, Proof>> {
    let mut code = [0; CODE];
    if tracee.read(before.rip, &mut code).is_err() {
        return Ok(Err(Proof::Open));
    }
    let Some(kind) = kind(&code) else { return Ok(Err(Proof::Open)) };
    tracee.step()?;
    match await_stop(tracee)? {
        Stop::Signal(Signal::SIGTRAP) => {}
        other => return Ok(Err(Proof::Stopped(other))),
    }
    let now = tracee.registers()?;
    const ZERO_FLAG: u64 = 1 << 6;
    // An exchange that finds what it compares with has stored something new.
    if kind == Kind::CompareExchange && now.eflags & ZERO_FLAG != 0 {
        return Ok(Err(Proof::Open));
    }
    Ok(Ok(now))
}

/// What decides how a thread goes on, but memory.
type Key = [u64; 19];

fn key(registers: &Registers) -> Key {
    let Registers { r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, .. } =
        *registers;
    let Registers { rip, eflags, rsp, fs_base, .. } = *registers;
    // The flag of single steps may show.
    let flags = eflags & !(1 << 8);
    [rip, rsp, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, flags, fs_base]
}

/// The last round, if the last state ends the second of two that are alike.
fn repeated_round(states: &[Key]) -> Option<Vec<Key>> {
    let (last, earlier) = states.split_last()?;
    let length = earlier.iter().rev().position(|state| state == last)? + 1;
    let first = earlier.len().checked_sub(2 * length)?;
    let (one, other) = (earlier.get(first..first + length)?, earlier.get(first + length..)?);
    (one == other).then(|| other.to_vec())
}

/// A kind of instruction that may stand in a loop that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It reads memory and changes registers, or stores what registers say.
    Plain,
    /// It stores only if it finds what it compares with.
    CompareExchange,
}

/// The kind of the instruction that begins here; `None`: it may change memory by what is there, or is not
/// known.
fn kind(code: &[u8]) -> Option<Kind> {
    let is_prefix = |byte: &u8| matches!(*byte, 0x66 | 0xf0 | 0xf2 | 0xf3 | 0x2e | 0x3e | 0x64 | 0x65);
    let mut rest = code.iter().copied().skip_while(|byte| is_prefix(byte)).peekable();
    rest.next_if(|byte| byte & 0xf0 == 0x40);
    let operation = rest.next()?;
    let second = rest.next()?;
    let is_register = |modes: u8| modes >> 6 == 3;
    let chosen = |modes: u8| modes >> 3 & 7;
    let plain = |is_so: bool| is_so.then_some(Kind::Plain);
    match operation {
        // ALU: into registers, and comparisons.
        0x00..=0x3f if operation & 7 < 6 => {
            let compares = operation >> 3 == 7;
            plain(operation & 7 >= 2 || compares || is_register(second))
        }
        0x80 | 0x81 | 0x83 => plain(is_register(second) || chosen(second) == 7),
        0xf6 | 0xf7 => plain(is_register(second) || chosen(second) < 2 || chosen(second) >= 4),
        0xc0 | 0xc1 | 0xd0..=0xd3 => plain(is_register(second)),
        // inc and dec of registers; calls and jumps to where registers or memory say, and push.
        0xff => plain(match chosen(second) {
            0 | 1 => is_register(second),
            2 | 4 | 6 => true,
            _ => false,
        }),
        // push, pop, movsxd, push of numbers, imul, short jumps, test, xchg, mov, lea, nop, sign extensions,
        // test with a number, numbers into registers, ret, mov of numbers, leave, call and jumps.
        0x50..=0x5f
        | 0x63
        | 0x68..=0x6b
        | 0x70..=0x7f
        | 0x84..=0x8b
        | 0x8d
        | 0x90..=0x99
        | 0xa8
        | 0xa9
        | 0xb0..=0xbf
        | 0xc3
        | 0xc6
        | 0xc7
        | 0xc9
        | 0xe8
        | 0xe9
        | 0xeb => Some(Kind::Plain),
        0x0f => match second {
            // nop and endbr, cmov, jumps, setcc, bt, imul, movzx, bsf and bsr, movsx, fences.
            0x1e | 0x1f | 0x40..=0x4f | 0x80..=0x8f | 0xa3 | 0xaf | 0xb6 | 0xb7 | 0xbc..=0xbf => {
                Some(Kind::Plain)
            }
            0x90..=0x9f | 0xc8..=0xcf => Some(Kind::Plain),
            0xae => plain(rest.next().is_some_and(is_register)),
            0xba => plain(rest.next().is_some_and(|modes| chosen(modes) == 4)),
            0xb0 | 0xb1 => Some(Kind::CompareExchange),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stores_by_registers_may_stand_in_a_loop() {
        // movzx eax, byte [rdx]; cmp al, cl; jne; pause; mov [rbp-8], eax; call; cmp dword [rdi], 0.
        let known: [&[u8]; 7] = [
            &[0x0f, 0xb6, 0x02],
            &[0x38, 0xc8],
            &[0x75, 0xf9],
            &[0xf3, 0x90, 0],
            &[0x89, 0x45, 0xf8],
            &[0xe8, 0, 0, 0, 0],
            &[0x83, 0x3f, 0],
        ];
        assert!(known.iter().all(|code| kind(code) == Some(Kind::Plain)));
        // inc dword [rdx]; add [rdx], eax; lock dec [rdi]; movaps; syscall; rdtsc; add dword [rdx], 1; neg
        // [rdx].
        let others: [&[u8]; 8] = [
            &[0xff, 0x02],
            &[0x01, 0x02],
            &[0xf0, 0xff, 0x0f],
            &[0x0f, 0x28, 0x02],
            &[0x0f, 0x05],
            &[0x0f, 0x31],
            &[0x83, 0x02, 1],
            &[0xf7, 0x1a],
        ];
        assert_eq!(others.iter().find(|code| kind(code).is_some()), None);
        assert_eq!(kind(&[0xf0, 0x0f, 0xb1, 0x17]), Some(Kind::CompareExchange));
        assert_eq!(kind(&[]), None);
    }

    #[test]
    fn a_round_is_repeated_when_two_are_alike() {
        let states = |rips: &[u64]| -> Vec<Key> { rips.iter().map(|rip| [*rip; 19]).collect() };
        assert_eq!(repeated_round(&states(&[9, 1, 2, 1, 2, 1])).map(|round| round.len()), Some(2));
        assert_eq!(repeated_round(&states(&[1, 2, 1])), None);
        assert_eq!(repeated_round(&states(&[1, 2, 3, 1, 4, 3, 1])), None);
        assert_eq!(repeated_round(&[]), None);
    }
}
