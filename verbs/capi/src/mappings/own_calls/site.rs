//! The site of a system call in a function: the instructions that a jump replaces.

use std::ops::Range;

use super::instruction::{Accumulator, Instruction, InstructionFlow, read};

/// Length of a jump in bytes.
pub(super) const JUMP_BYTES: usize = 5;
/// Length of `syscall` in bytes.
pub(super) const CALL_BYTES: usize = 2;

/// A system call, and the instructions that a jump replaces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Bytes of the function that the jump replaces: one instruction, or with `is_many` several.
    pub(super) replaced: Range<usize>,
    /// Instructions from the first replaced one to the system call, which the stub executes before it.
    pub(super) before: Vec<(usize, Instruction)>,
    /// Offset of `syscall`.
    pub(super) call: usize,
    /// True if more than one instruction is replaced: no thread may be between them.
    pub(super) is_many: bool,
}

/// Decision about a system call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SiteChoice {
    /// The bytes are no system call, or one of another kind.
    Unneeded,
    Watch(Site),
    /// The call cannot be watched.
    Left,
}

/// Examines the bytes of a system call at `call` in the code of a function; `is_wanted` accepts the numbers
/// that are watched.
///
/// The jump replaces one instruction, the last one before the call that is long enough. So each address to
/// which the rest of the function may jump, and at which a thread may be now, still has a correct
/// instruction. Only where there is no such instruction, the jump replaces several.
pub(super) fn choose(code: &[u8], call: usize, is_wanted: impl Fn(u32) -> bool) -> SiteChoice {
    let Some(function) = DecodedFunction::read(code) else { return SiteChoice::Left };
    let Some(index) = function.index_of_call(call) else { return SiteChoice::Unneeded };
    let run = function.run_before(index);
    if function.is_unreachable(&run, call) {
        return SiteChoice::Unneeded;
    }
    match function.number(&run, call) {
        Some(number) if !is_wanted(number) => SiteChoice::Unneeded,
        _ => function.find_site(&run, call).map_or(SiteChoice::Left, SiteChoice::Watch),
    }
}

/// Returns the number that the five bytes before a call set, and its site: these seven bytes have no other
/// meaning, wherever they are. Offsets count from the five bytes.
pub(super) fn at_number(before: &[u8; JUMP_BYTES]) -> Option<(u32, Site)> {
    let instruction = read(before).filter(|one| one.bytes == JUMP_BYTES)?;
    let Accumulator::Is(number) = instruction.accumulator else { return None };
    let before = vec![(0, instruction)];
    Some((number, Site { replaced: 0..JUMP_BYTES, before, call: JUMP_BYTES, is_many: false }))
}

/// The instructions of a function.
struct DecodedFunction {
    instructions: Vec<(usize, Instruction)>,
    /// Targets of its jumps, in order.
    targets: Vec<usize>,
    /// True if it jumps to addresses that its instructions do not name.
    jumps_elsewhere: bool,
}

impl DecodedFunction {
    /// Decodes a function; `None` if the bytes are not instructions from the first to the last.
    fn read(code: &[u8]) -> Option<DecodedFunction> {
        let (mut instructions, mut targets, mut jumps_elsewhere) = (Vec::new(), Vec::new(), false);
        let mut at = 0;
        while at < code.len() {
            let instruction = read(code.get(at..)?)?;
            let end = at + instruction.bytes;
            match instruction.flow {
                InstructionFlow::Branch(distance) | InstructionFlow::Jump(distance) => {
                    targets.extend(end.checked_add_signed(distance as isize));
                }
                InstructionFlow::Elsewhere => jumps_elsewhere = true,
                _ => {}
            }
            instructions.push((at, instruction));
            at = end;
        }
        targets.sort_unstable();
        Some(DecodedFunction { instructions, targets, jumps_elsewhere })
    }

    fn index_of_call(&self, call: usize) -> Option<usize> {
        let index = self.instructions.binary_search_by_key(&call, |(at, _)| *at).ok()?;
        let (_, instruction) = self.instructions.get(index)?;
        (instruction.flow == InstructionFlow::SystemCall).then_some(index)
    }

    /// Returns the instructions before one that all follow each other without a jump.
    fn run_before(&self, index: usize) -> Range<usize> {
        let before = self.instructions.get(..index).unwrap_or_default();
        let ends = |(_, one): &(usize, Instruction)| one.flow != InstructionFlow::Next;
        before.iter().rposition(ends).map_or(0, |last| last + 1)..index
    }

    /// Reports whether a jump of this function leads behind `first` and not behind `last`.
    fn is_entered_between(&self, first: usize, last: usize) -> bool {
        let from = self.targets.partition_point(|target| *target <= first);
        self.targets.get(from).is_some_and(|target| *target <= last)
    }

    /// Reports whether no jump leads to a call, as behind a jump that was put there before.
    fn is_unreachable(&self, run: &Range<usize>, call: usize) -> bool {
        let Some((at, last)) = run.start.checked_sub(1).and_then(|index| self.instructions.get(index)) else {
            return false;
        };
        let first = at + last.bytes;
        let end = self.instructions.last().map_or(0, |(at, one)| at + one.bytes);
        let leaves = match last.flow {
            InstructionFlow::Jump(distance) => {
                first.checked_add_signed(distance as isize).is_none_or(|target| target >= end)
            }
            _ => false,
        };
        matches!(last.flow, InstructionFlow::Jump(_) | InstructionFlow::Elsewhere | InstructionFlow::End)
            && (leaves || !self.jumps_elsewhere)
            && !self.is_entered_between(first.saturating_sub(1), call)
    }

    /// Returns the number of a call, if it is certain.
    fn number(&self, run: &Range<usize>, call: usize) -> Option<u32> {
        for (at, instruction) in self.instructions.get(run.clone())?.iter().rev() {
            match instruction.accumulator {
                Accumulator::Unchanged => {}
                Accumulator::Is(number) => return (!self.is_entered_between(*at, call)).then_some(number),
                Accumulator::Unknown => return None,
            }
        }
        None
    }

    fn find_site(&self, run: &Range<usize>, call: usize) -> Option<Site> {
        let run = self.instructions.get(run.clone())?;
        let fits = |index: &usize| run.get(*index).is_some_and(|(at, _)| !self.is_entered_between(*at, call));
        let long = run.iter().rposition(|(_, instruction)| instruction.bytes >= JUMP_BYTES);
        if let Some(index) = long.filter(fits) {
            let (at, first) = run.get(index)?;
            let before = run.get(index..)?.to_vec();
            return Some(Site { replaced: *at..at + first.bytes, before, call, is_many: false });
        }
        let few = run.iter().rposition(|(at, _)| call + CALL_BYTES - at >= JUMP_BYTES);
        let index = few.filter(fits).filter(|_| !self.jumps_elsewhere)?;
        let (at, _) = run.get(index)?;
        let before = run.get(index..)?.to_vec();
        Some(Site { replaced: *at..call + CALL_BYTES, before, call, is_many: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(code: &[u8]) -> SiteChoice {
        let call = code.windows(2).rposition(|two| two == [0x0f, 0x05]).unwrap();
        choose(code, call, |number| number == 11)
    }

    fn watched(code: &[u8]) -> Site {
        match chosen(code) {
            SiteChoice::Watch(site) => site,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_long_instruction_before_the_call_is_replaced() {
        // The code of syscall(3) in the C library: its last argument is on the stack.
        let code = [0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 5, 0xc3];
        let site = watched(&code);
        assert_eq!((site.replaced, site.call, site.is_many), (6..11, 11, false));
        assert_eq!(site.before.len(), 1);
        // mov $11, %eax; mov %rbx, %rdi; syscall
        let site = watched(&[0xb8, 11, 0, 0, 0, 0x48, 0x89, 0xdf, 0x0f, 5, 0xc3]);
        assert_eq!((site.replaced, site.before.len(), site.is_many), (0..5, 2, false));
        // The call has another number.
        assert_eq!(chosen(&[0xb8, 202, 0, 0, 0, 0x48, 0x89, 0xdf, 0x0f, 5, 0xc3]), SiteChoice::Unneeded);
        // The call has another number; but a jump leads to it with a number of its own.
        let code = [0xb8, 202, 0, 0, 0, 0x0f, 5, 0xb0, 11, 0xeb, 0xfa, 0xc3];
        assert_eq!(choose(&code, 5, |number| number == 11), SiteChoice::Left);
    }

    #[test]
    fn short_instructions_are_replaced_together_if_nothing_jumps_between_them() {
        // mov %rdi, %rax; mov %rsi, %rdi; syscall; ret
        let site = watched(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0xc3]);
        assert_eq!((site.replaced, site.before.len(), site.is_many), (3..8, 1, true));
        // A jump leads back to the call.
        assert_eq!(
            chosen(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0x73, 0xfc, 0xc3]),
            SiteChoice::Left
        );
        // A jump leads to an address in a register.
        assert_eq!(chosen(&[0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 5, 0xff, 0xe1]), SiteChoice::Left);
    }

    #[test]
    fn what_is_no_call_is_let_be() {
        // The bytes are a je with a distance of these bytes.
        assert_eq!(choose(&[0x0f, 0x84, 0x0f, 5, 0, 0, 0xc3], 2, |_| true), SiteChoice::Unneeded);
        // A jump was put there before.
        let code = [0x48, 0x89, 0xf8, 0xe9, 0, 0, 0, 1, 0x48, 0x89, 0xdf, 0x0f, 5, 0xc3];
        assert_eq!(chosen(&code), SiteChoice::Unneeded);
        // The bytes are no instructions.
        assert_eq!(choose(&[0x06, 0x0f, 5], 1, |_| true), SiteChoice::Left);
    }

    #[test]
    fn a_number_right_before_the_call_says_enough() {
        let (number, site) = at_number(&[0xb8, 11, 0, 0, 0]).unwrap();
        assert_eq!((number, site.replaced, site.call), (11, 0..5, 5));
        assert!(at_number(&[0xbf, 11, 0, 0, 0]).is_none());
    }
}
