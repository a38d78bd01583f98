//! Programs that read the time stamp counter (`rdtsc`, `rdtscp`): the processor raises a fault, and the
//! supervisor answers with the world's clock.

use super::tracee::{Registers, Tracee};

/// Emulates the instruction, if the thread is stopped at one, and returns whether it is.
pub(crate) fn answer(tracee: Tracee, cycles: u64) -> nix::Result<bool> {
    let registers = tracee.registers()?;
    let mut code = [0; 3];
    // The instruction may be the last one of its page.
    if tracee.read(registers.rip, &mut code).is_err() && tracee.read(registers.rip, &mut code[..2]).is_err() {
        return Ok(false);
    }
    let (length, is_with_number) = match code {
        [0x0f, 0x31, _] => (2, false),
        [0x0f, 0x01, 0xf9] => (3, true),
        _ => return Ok(false),
    };
    let answered = Registers {
        rip: registers.rip + length,
        rax: cycles & 0xffff_ffff,
        rdx: cycles >> 32,
        rcx: if is_with_number { 0 } else { registers.rcx },
        ..registers
    };
    tracee.set_registers(answered)?;
    Ok(true)
}
