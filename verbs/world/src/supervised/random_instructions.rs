//! Programs that read random numbers, or the number of their processor, by an instruction (`rdrand`,
//! `rdseed`, `rdpid`), which no tracer can intercept: in code that a program maps, the supervisor makes these
//! instructions invalid ones, and answers the fault.
//!
//! Such an instruction is found by its bytes, and by the test of the carry flag behind it, which says whether
//! there is a random number. The same bytes may be in other instructions, but not with that test.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::stat::fstat;
use nix::unistd::Pid;

use super::serve::{CallOutcome, UNCHANGED};
use super::supervisor::Supervisor;
use super::threads::{Call, ThreadId};
use super::tracee::{Registers, Tracee};
use super::waits::MappingKey;
use crate::error::WorldError;

/// The bytes of the operation, of which the first becomes an invalid operation, and the registers behind it.
const OPERATION: [u8; 2] = [0x0f, 0xc7];
const INVALID: u8 = 0x06;
const OF_REGISTERS: u8 = 0xf0;
/// Prefix of `rdpid`, which has the registers of `rdseed`.
const OF_PROCESSOR: u8 = 0xf3;
const HALF_WORD: u8 = 0x66;
/// Flags that the instruction sets (carry) or clears (parity, adjust, zero, sign, overflow).
const CARRY: u64 = 1;
const CLEARED: u64 = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 11;
/// Maximum size of a mapping that is searched.
const MOST_BYTES: u64 = 1 << 30;
/// Maximum number of moves between the instruction and the test.
const MOST_MOVES: usize = 2;

impl Supervisor {
    /// Serves `mmap` of code.
    pub(crate) fn map_code(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        let [_, length, _, _, descriptor, offset] = call.arguments();
        let file = self.file(id, i64::from(descriptor as i32));
        let CallOutcome::Result(result) = self.make(id, call, UNCHANGED)? else { return Ok(()) };
        if let Some(key) = file.and_then(|file| key_of(&file, offset, length)).filter(|_| result > 0) {
            let tracee = self.tracee(id)?;
            self.replace_instructions(tracee, result as u64, key);
        }
        // Addresses are the same in every run of one kernel, and differ between kernels.
        self.note(id, &call.name(), i64::from(result > 0))?;
        self.go(id, None)
    }

    /// Replaces the instructions in the code of a program that begins.
    pub(crate) fn replace_in_program(&mut self, leader: Pid) {
        let maps = std::fs::read_to_string(format!("/proc/{leader}/maps")).unwrap_or_default();
        for (address, key) in maps.lines().filter_map(code) {
            self.replace_instructions(Tracee(leader), address, key);
        }
    }

    /// Replaces the instructions in a mapping. What cannot be read or written stays as it is.
    fn replace_instructions(&mut self, tracee: Tracee, address: u64, key: MappingKey) {
        let (.., length) = key;
        self.files.random_instructions.entry(key).or_insert_with(|| {
            let mut bytes = vec![0; length.min(MOST_BYTES) as usize];
            // The end of the mapping may be behind the end of the file.
            let is_read = tracee.read(address, &mut bytes).is_ok();
            if is_read { instructions(&bytes) } else { Vec::new() }
        });
        for offset in self.files.random_instructions.get(&key).into_iter().flatten() {
            let _ = tracee.put_code(address.wrapping_add(*offset), &[INVALID]);
        }
    }

    /// Emulates the instruction, if the thread is stopped at one, and returns whether it is.
    pub(crate) fn answer_instruction(&mut self, id: ThreadId) -> nix::Result<bool> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(false) };
        let registers = thread.tracee.registers()?;
        let mut code = [0; 5];
        // The instruction may be the last one of its page.
        if (3..=5).rev().all(|length| thread.tracee.read(registers.rip, &mut code[..length]).is_err()) {
            return Ok(false);
        }
        let Some(found) = decoded(&code) else { return Ok(false) };
        let mut random = [0; 8];
        if !found.is_of_processor {
            thread.random.fill(&mut random);
        }
        let mut after = registers;
        after.rip = registers.rip.wrapping_add(found.length);
        if !found.is_of_processor {
            after.eflags = registers.eflags & !CLEARED | CARRY;
        }
        let Some(register) = register(&mut after, found.register) else { return Ok(false) };
        let value = u64::from_ne_bytes(random);
        *register = match found.bits {
            16 => *register & !0xffff | value & 0xffff,
            32 => value & 0xffff_ffff,
            _ => value,
        };
        thread.tracee.set_registers(after)?;
        Ok(true)
    }
}

fn key_of(file: &OwnedFd, offset: u64, length: u64) -> Option<MappingKey> {
    let about: Result<_, Errno> = fstat(file);
    about.ok().map(|about| (about.st_dev, about.st_ino, offset, length))
}

/// Returns the address and the key of a mapping of code, from its line in `maps`.
fn code(line: &str) -> Option<(u64, MappingKey)> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end, rights) = (hex(start)?, hex(end)?, fields.next()?);
    let (offset, device, inode) = (hex(fields.next()?)?, fields.next()?, fields.next()?);
    let (major, minor) = device.split_once(':')?;
    let device = libc::makedev(hex(major)? as u32, hex(minor)? as u32);
    let is_code = rights.contains('x') && fields.next()?.starts_with('/');
    is_code.then_some(())?;
    Some((start, (device, inode.parse().ok()?, offset, end.checked_sub(start)?)))
}

/// Returns the offsets of the instructions in code.
fn instructions(code: &[u8]) -> Vec<u64> {
    let pairs = code.windows(OPERATION.len()).enumerate().filter(|(_, pair)| *pair == OPERATION);
    let found = pairs.filter(|(at, _)| {
        let is_of_processor = at.checked_sub(1).and_then(|at| code.get(at)) == Some(&OF_PROCESSOR);
        let registers = code.get(at + 2).copied().unwrap_or(0);
        let is_seed = registers >= OF_REGISTERS + 8;
        registers >= OF_REGISTERS
            && (is_of_processor && is_seed || tests_carry(code.get(at + 3..).unwrap_or(&[])))
    });
    found.map(|(at, _)| at as u64).collect()
}

/// Reports whether code begins with a test of the carry flag, behind a few moves.
fn tests_carry(code: &[u8]) -> bool {
    let mut rest = code;
    for _ in 0..=MOST_MOVES {
        // A prefix of 64-bit registers.
        let plain = match rest {
            [0x40..=0x4f, plain @ ..] => plain,
            plain => plain,
        };
        match plain {
            // Jumps, conditional moves and sets, adc, sbb.
            [0x72 | 0x73, ..]
            | [0x0f, 0x82 | 0x83 | 0x92 | 0x93 | 0x42 | 0x43, ..]
            | [0x11 | 0x13 | 0x19 | 0x1b, 0xc0..=0xff, ..]
            | [0x80 | 0x83, 0xd0..=0xdf, ..] => return true,
            [0x88 | 0x89, modes, ..] => {
                let Some(behind) = plain.get(1 + operand_length(*modes, plain.get(2).copied())..) else {
                    return false;
                };
                rest = behind;
            }
            // A number that is moved into a register.
            [0xb8..=0xbf, _, _, _, _, behind @ ..] => rest = behind,
            _ => return false,
        }
    }
    false
}

/// Returns the length of the operands of an instruction: the byte of modes, the one of a scaled index, and a
/// displacement.
fn operand_length(modes: u8, scaled: Option<u8>) -> usize {
    let (mode, base) = (modes >> 6, modes & 7);
    let has_index = mode != 3 && base == 4;
    let without_base = mode == 0 && (base == 5 || has_index && scaled.is_some_and(|index| index & 7 == 5));
    let displacement = match mode {
        1 => 1,
        2 => 4,
        _ if without_base => 4,
        _ => 0,
    };
    1 + usize::from(has_index) + displacement
}

/// An instruction that was replaced.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    length: u64,
    register: u8,
    bits: u8,
    is_of_processor: bool,
}

/// Decodes the instruction at which a thread has faulted, if it is one of these.
fn decoded(code: &[u8]) -> Option<Decoded> {
    let (mut at, mut bits, mut extension, mut is_of_processor) = (0, 32, 0, false);
    loop {
        match *code.get(at)? {
            OF_PROCESSOR => is_of_processor = true,
            HALF_WORD => bits = 16,
            prefix @ 0x40..=0x4f => {
                extension = (prefix & 1) << 3;
                bits = if prefix & 8 != 0 { 64 } else { bits };
            }
            INVALID => break,
            _ => return None,
        }
        at += 1;
    }
    let modes = *code.get(at + 2)?;
    let is_one = *code.get(at + 1)? == OPERATION[1] && modes >= OF_REGISTERS;
    is_one.then_some(Decoded {
        length: at as u64 + 3,
        register: modes & 7 | extension,
        bits,
        is_of_processor,
    })
}

/// Returns a register by its number in instructions.
fn register(registers: &mut Registers, number: u8) -> Option<&mut u64> {
    let Registers { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15, .. } =
        registers;
    [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15]
        .into_iter()
        .nth(usize::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_of_libraries_are_found_and_no_others() {
        // rdrand eax; mov [rcx], eax; cmovb eax, edx.
        let random = [0x0f, 0xc7, 0xf0, 0x89, 0x01, 0x0f, 0x42, 0xc2];
        // rdseed edx; mov [rsp+0xc], edx; jae.
        let seed = [0x0f, 0xc7, 0xfa, 0x89, 0x54, 0x24, 0x0c, 0x73, 0x0f];
        // rdrand rax; jb; and rdpid rax.
        let wide = [0x48, 0x0f, 0xc7, 0xf0, 0x72, 0x02];
        let processor = [0xf3, 0x0f, 0xc7, 0xf8];
        let found = [&random[..], &seed, &wide, &processor].map(instructions);
        assert_eq!(found, [vec![0], vec![0], vec![1], vec![1]]);
        // Without a test, in an operand, and cmpxchg16b [rdi].
        let others: [&[u8]; 3] = [
            &[0x0f, 0xc7, 0xf0, 0xc3],
            &[0x0f, 0xc7, 0xf0, 0x02, 0x72],
            &[0xf0, 0x48, 0x0f, 0xc7, 0x0f, 0x73, 1],
        ];
        assert_eq!(others.iter().find(|code| !instructions(code).is_empty()), None);
    }

    #[test]
    fn a_fault_says_which_register_is_wanted() {
        let one = |length, register, bits, is_of_processor| {
            Some(Decoded { length, register, bits, is_of_processor })
        };
        assert_eq!(decoded(&[0x06, 0xc7, 0xf0, 0, 0]), one(3, 0, 32, false));
        assert_eq!(decoded(&[0x49, 0x06, 0xc7, 0xf1, 0]), one(4, 9, 64, false));
        assert_eq!(decoded(&[0x66, 0x41, 0x06, 0xc7, 0xfa]), one(5, 10, 16, false));
        assert_eq!(decoded(&[0xf3, 0x06, 0xc7, 0xf8, 0]), one(4, 0, 32, true));
        assert_eq!(
            [decoded(&[0x06, 0xc7, 0x07, 0, 0]), decoded(&[0x0f, 0x0b, 0, 0, 0]), decoded(&[])],
            [const { None }; 3]
        );
    }

    #[test]
    fn only_mapped_files_of_code_are_searched() {
        let line = "7ffff7dd5000-7ffff7dfb000 r-xp 00001000 fe:00 12345   /lib/x.so";
        assert_eq!(code(line), Some((0x7fff_f7dd_5000, (libc::makedev(0xfe, 0), 12345, 0x1000, 0x26000))));
        assert_eq!(code(&line.replace("r-xp", "r--p")), None);
        assert_eq!(code("7ffff7fbd000-7ffff7fbf000 r-xp 00000000 00:00 0   [vdso]"), None);
    }
}
