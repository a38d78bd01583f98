//! Detects threads that loop without a call until memory changes, by single-stepping.
//!
//! The loop is proven when two rounds in a row have the same registers at each step, and each instruction
//! only reads, computes in registers, or stores values of registers at addresses in registers. Then the
//! second round left the memory as the first one did, and so does every further round: the time of detection
//! makes no difference. The thread then stands at the same instruction of its loop in every run.

use nix::sys::signal::Signal;

use super::stepper::{Stop, await_stop};
use super::tracee::{Registers, Tracee};

/// Maximum number of instructions that are stepped.
const MAX_STEPS: usize = 600;
/// Number of bytes of an instruction that are decoded: prefixes and what follows.
const CODE_BYTES: usize = 8;

/// The result of stepping a thread.
#[derive(Debug)]
pub(crate) enum SpinProof {
    /// The thread loops until memory changes, and is stopped at the beginning of its loop.
    Loops,
    /// The thread does not loop, or that is unknown. It can continue.
    Unproven,
    /// The thread came to this stop.
    Stopped(Stop),
}

/// Finds whether a thread that is stopped somewhere in its program loops until memory changes.
pub(crate) fn prove_spin(tracee: Tracee) -> nix::Result<SpinProof> {
    let mut states: Vec<RegisterKey> = Vec::new();
    let mut before = tracee.registers()?;
    while states.len() < MAX_STEPS {
        states.push(register_key(&before));
        if let Some(round) = repeated_round(&states) {
            return step_to_loop_start(tracee, &round);
        }
        let now = match step(tracee, &before)? {
            Ok(now) => now,
            Err(proof) => return Ok(proof),
        };
        before = now;
    }
    Ok(SpinProof::Unproven)
}

/// Steps the thread to the state of its loop with the lowest instruction address.
fn step_to_loop_start(tracee: Tracee, round: &[RegisterKey]) -> nix::Result<SpinProof> {
    let Some(first) = round.iter().min() else { return Ok(SpinProof::Unproven) };
    for _ in 0..=round.len() {
        let now = tracee.registers()?;
        if register_key(&now) == *first {
            return Ok(SpinProof::Loops);
        }
        if let Err(proof) = step(tracee, &now)? {
            return Ok(proof);
        }
    }
    Ok(SpinProof::Unproven)
}

/// Steps one instruction, if it is of a known kind.
fn step(tracee: Tracee, before: &Registers) -> nix::Result<Result<Registers, SpinProof>> {
    let mut code = [0; CODE_BYTES];
    if tracee.read(before.rip, &mut code).is_err() {
        return Ok(Err(SpinProof::Unproven));
    }
    let Some(instruction_kind) = instruction_kind(&code) else { return Ok(Err(SpinProof::Unproven)) };
    tracee.step()?;
    match await_stop(tracee)? {
        Stop::Signal(Signal::SIGTRAP) => {}
        other => return Ok(Err(SpinProof::Stopped(other))),
    }
    let now = tracee.registers()?;
    const ZERO_FLAG: u64 = 1 << 6;
    // A compare-exchange that succeeds has stored something new.
    if instruction_kind == InstructionKind::CompareExchange && now.eflags & ZERO_FLAG != 0 {
        return Ok(Err(SpinProof::Unproven));
    }
    Ok(Ok(now))
}

/// The state that decides how a thread continues, apart from memory.
type RegisterKey = [u64; 19];

fn register_key(registers: &Registers) -> RegisterKey {
    let Registers { r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, .. } =
        *registers;
    let Registers { rip, eflags, rsp, fs_base, .. } = *registers;
    // The trap flag of single steps may be set.
    let flags = eflags & !(1 << 8);
    [rip, rsp, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, flags, fs_base]
}

/// Returns the last round, if the last state ends the second of two equal rounds.
fn repeated_round(states: &[RegisterKey]) -> Option<Vec<RegisterKey>> {
    let (last, earlier) = states.split_last()?;
    let length = earlier.iter().rev().position(|state| state == last)? + 1;
    let first = earlier.len().checked_sub(2 * length)?;
    let (one, other) = (earlier.get(first..first + length)?, earlier.get(first + length..)?);
    (one == other).then(|| other.to_vec())
}

/// A kind of instruction that may be in a loop that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionKind {
    /// The instruction reads memory and changes registers, or stores values of registers.
    Plain,
    /// The instruction stores only if the comparison succeeds.
    CompareExchange,
}

/// Returns the kind of the instruction that begins here; `None` if it may change memory depending on its
/// contents, or is unknown.
fn instruction_kind(code: &[u8]) -> Option<InstructionKind> {
    let is_prefix = |byte: &u8| matches!(*byte, 0x66 | 0xf0 | 0xf2 | 0xf3 | 0x2e | 0x3e | 0x64 | 0x65);
    let mut rest = code.iter().copied().skip_while(|byte| is_prefix(byte)).peekable();
    rest.next_if(|byte| byte & 0xf0 == 0x40);
    let operation = rest.next()?;
    let second = rest.next()?;
    let is_register = |modes: u8| modes >> 6 == 3;
    let chosen = |modes: u8| modes >> 3 & 7;
    let plain = |is_so: bool| is_so.then_some(InstructionKind::Plain);
    match operation {
        // Arithmetic and logic into registers, and comparisons.
        0x00..=0x3f if operation & 7 < 6 => {
            let compares = operation >> 3 == 7;
            plain(operation & 7 >= 2 || compares || is_register(second))
        }
        0x80 | 0x81 | 0x83 => plain(is_register(second) || chosen(second) == 7),
        0xf6 | 0xf7 => plain(is_register(second) || chosen(second) < 2 || chosen(second) >= 4),
        0xc0 | 0xc1 | 0xd0..=0xd3 => plain(is_register(second)),
        // inc and dec of registers; indirect calls and jumps, and push.
        0xff => plain(match chosen(second) {
            0 | 1 => is_register(second),
            2 | 4 | 6 => true,
            _ => false,
        }),
        // push, pop, movsxd, push of immediates, imul, short jumps, test, xchg, mov, lea, nop, sign
        // extensions, test with an immediate, immediates into registers, ret, mov of immediates, leave, call
        // and jumps.
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
        | 0xeb => Some(InstructionKind::Plain),
        0x0f => match second {
            // nop and endbr, cmov, jumps, setcc, bt, imul, movzx, bsf and bsr, movsx, fences.
            0x1e | 0x1f | 0x40..=0x4f | 0x80..=0x8f | 0xa3 | 0xaf | 0xb6 | 0xb7 | 0xbc..=0xbf => {
                Some(InstructionKind::Plain)
            }
            0x90..=0x9f | 0xc8..=0xcf => Some(InstructionKind::Plain),
            0xae => plain(rest.next().is_some_and(is_register)),
            0xba => plain(rest.next().is_some_and(|modes| chosen(modes) == 4)),
            0xb0 | 0xb1 => Some(InstructionKind::CompareExchange),
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
        assert!(known.iter().all(|code| instruction_kind(code) == Some(InstructionKind::Plain)));
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
        assert_eq!(others.iter().find(|code| instruction_kind(code).is_some()), None);
        assert_eq!(instruction_kind(&[0xf0, 0x0f, 0xb1, 0x17]), Some(InstructionKind::CompareExchange));
        assert_eq!(instruction_kind(&[]), None);
    }

    #[test]
    fn a_round_is_repeated_when_two_are_alike() {
        let states = |rips: &[u64]| -> Vec<RegisterKey> { rips.iter().map(|rip| [*rip; 19]).collect() };
        assert_eq!(repeated_round(&states(&[9, 1, 2, 1, 2, 1])).map(|round| round.len()), Some(2));
        assert_eq!(repeated_round(&states(&[1, 2, 1])), None);
        assert_eq!(repeated_round(&states(&[1, 2, 3, 1, 4, 3, 1])), None);
        assert_eq!(repeated_round(&[]), None);
    }
}
