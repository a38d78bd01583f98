//! The stack that a program begins with: numbers of arguments, pointers to arguments and environment, and the
//! auxiliary vector; the strings are above. The kernel puts all of it as far below the top as the strings are
//! long, so that addresses would depend on the environment and on the folder, which is in it.

use super::tracee::{Registers, Tracee};

/// Maximum length of the initial stack that is read, in words of 8 bytes.
const MAX_WORDS: u64 = 1 << 20;
const AT_NULL: u64 = 0;
const AT_RANDOM: u64 = 25;
const AT_SYSINFO_EHDR: u64 = 33;
/// Stacks begin at multiples of this, in bytes. The kernel has mapped 128 KiB below the first address.
const STEP: u64 = 32 << 10;

/// Sets the random bytes of the auxiliary vector, and moves the stack down to an address that does not depend
/// on the lengths of strings. Returns the address of the kernel's own functions, and the address at which the
/// vector has it.
pub(crate) fn correct_initial_stack(tracee: Tracee, random: &[u8; 16]) -> nix::Result<Option<(u64, u64)>> {
    let registers = tracee.registers()?;
    let stack = registers.rsp;
    let at = |word: u64| stack.wrapping_add(word.wrapping_mul(8));
    let arguments = tracee.read_u64(stack)?;
    // Behind the arguments and their zero are the environment and its zero.
    let mut word = arguments.saturating_add(2);
    while word < MAX_WORDS && tracee.read_u64(at(word))? != 0 {
        word += 1;
    }
    word += 1;
    let mut vdso = None;
    while word < MAX_WORDS {
        let (kind, value) = (tracee.read_u64(at(word))?, tracee.read_u64(at(word + 1))?);
        match kind {
            AT_NULL => break,
            AT_SYSINFO_EHDR => vdso = Some((value, at(word))),
            AT_RANDOM => tracee.write(value, random)?,
            _ => {}
        }
        word += 2;
    }
    let down = if word < MAX_WORDS { move_down(tracee, registers, word + 2)? } else { 0 };
    Ok(vdso.map(|(value, kind_at)| (value, kind_at.wrapping_sub(down))))
}

/// Moves so many words from the top of the stack down to a multiple of `STEP`. Returns the distance: 0 if the
/// limit of the stack leaves no room.
fn move_down(tracee: Tracee, registers: Registers, words: u64) -> nix::Result<u64> {
    let start = registers.rsp & !(STEP - 1);
    let mut block = vec![0; words as usize * 8];
    tracee.read(registers.rsp, &mut block)?;
    if tracee.write(start, &block).is_err() {
        return Ok(0);
    }
    tracee.set_registers(Registers { rsp: start, ..registers })?;
    Ok(registers.rsp - start)
}
