//! Instructions of x86-64: their lengths, and their properties for the search for system calls.

/// Effect of an instruction on the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstructionFlow {
    /// The next instruction follows.
    Next,
    /// The next instruction follows, or the one at a distance from the end of this one.
    Branch(i32),
    /// The instruction at a distance from the end of this one follows.
    Jump(i32),
    /// An instruction follows that this one does not name: its address is in a register or in memory.
    Elsewhere,
    /// No instruction follows: the function returns, or the process ends.
    End,
    /// A call: the next instruction follows, after another function.
    Call,
    /// The instruction is `syscall`.
    SystemCall,
}

/// Knowledge about the lower half of `rax` after an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accumulator {
    Unchanged,
    Is(u32),
    /// The register may have any value.
    Unknown,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) bytes: usize,
    pub(super) flow: InstructionFlow,
    pub(super) accumulator: Accumulator,
    /// Offset in the instruction of the distance to memory that it addresses from its own end.
    pub(super) distance_at: Option<usize>,
}

/// Operands that follow an opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    None,
    /// A fixed number of bytes.
    Bytes(usize),
    /// Four bytes, or two with the prefix of 16 bits.
    Word,
    /// A byte for registers and memory, and this many bytes.
    ModRm(usize),
    /// A byte for registers and memory, and four or two bytes.
    ModRmWord,
}

/// A reader of an instruction's parts.
struct CodeReader<'a> {
    code: &'a [u8],
    at: usize,
}

impl CodeReader<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at += bytes;
        (self.at <= self.code.len()).then_some(())
    }

    /// Reads the byte that names registers and memory, and the bytes that belong to it; the second value is
    /// the offset of a distance from the end of the instruction.
    fn mod_rm(&mut self) -> Option<(u8, Option<usize>)> {
        let mod_rm = self.next()?;
        let (mode, memory) = (mod_rm >> 6, mod_rm & 7);
        if mode == 3 {
            return Some((mod_rm, None));
        }
        let has_base = if memory == 4 { self.next()? & 7 != 5 } else { memory != 5 };
        let at = self.at;
        self.skip(match mode {
            0 if has_base => 0,
            1 => 1,
            _ => 4,
        })?;
        Some((mod_rm, (mode == 0 && memory == 5).then_some(at)))
    }

    fn signed(&self, bytes: usize) -> Option<i32> {
        let value = self.code.get(self.at.checked_sub(bytes)?..self.at)?;
        match *value {
            [one] => Some(i32::from(one as i8)),
            [a, b, c, d] => Some(i32::from_le_bytes([a, b, c, d])),
            _ => None,
        }
    }
}

/// Prefixes before an opcode.
#[derive(Debug, Clone, Copy, Default)]
struct Prefixes {
    /// True if operands have 16 bits.
    is_16: bool,
    /// Prefix of 64 bits and of the upper eight registers; 0 if there is none.
    rex: u8,
    /// True if there is any other prefix.
    is_other: bool,
}

/// Decodes the instruction at the beginning of the code; `None` if it is unknown, or cut off.
pub(super) fn read(code: &[u8]) -> Option<Instruction> {
    let mut reader = CodeReader { code, at: 0 };
    let mut prefixes = Prefixes::default();
    let opcode = loop {
        match reader.next()? {
            0x66 => prefixes = Prefixes { is_16: true, rex: 0, ..prefixes },
            0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x67 | 0xf0 | 0xf2 | 0xf3 => {
                prefixes = Prefixes { is_other: true, rex: 0, ..prefixes };
            }
            rex @ 0x40..=0x4f => prefixes.rex = rex,
            opcode => break opcode,
        }
        if reader.at > 14 {
            return None;
        }
    };
    match opcode {
        0x0f => two_bytes(reader, prefixes),
        0xc4 | 0xc5 | 0x62 => vector(reader, opcode),
        _ => one_byte(reader, opcode, prefixes),
    }
}

fn one_byte(mut reader: CodeReader<'_>, opcode: u8, prefixes: Prefixes) -> Option<Instruction> {
    let is_64 = prefixes.rex & 8 != 0;
    let operands = match opcode {
        // Zeros are no code, though they can be decoded.
        0 if *reader.code.get(reader.at)? == 0 => return None,
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Operands::ModRm(0),
            4 => Operands::Bytes(1),
            5 => Operands::Word,
            _ => return None,
        },
        0x50..=0x5f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => Operands::None,
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf => Operands::ModRm(0),
        0x68 | 0xa9 => Operands::Word,
        0x69 | 0x81 | 0xc7 => Operands::ModRmWord,
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => Operands::ModRm(1),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => Operands::Bytes(1),
        0x6c..=0x6f
        | 0xc3
        | 0xc9
        | 0xcb
        | 0xcc
        | 0xcf
        | 0xd7
        | 0xec..=0xef
        | 0xf1
        | 0xf4
        | 0xf5
        | 0xf8..=0xfd => Operands::None,
        // Only the extension 0 is known: other processors use the other extensions for other instructions.
        0x8f if reader.code.get(reader.at)? & 0x38 == 0 => Operands::ModRm(0),
        0xa0..=0xa3 => Operands::Bytes(8),
        0xb8..=0xbf if is_64 => Operands::Bytes(8),
        0xb8..=0xbf => Operands::Word,
        0xc2 | 0xca => Operands::Bytes(2),
        0xc8 => Operands::Bytes(3),
        0xe8 | 0xe9 => Operands::Bytes(4),
        0xf6 if reader.code.get(reader.at)? & 0x30 == 0 => Operands::ModRm(1),
        0xf7 if reader.code.get(reader.at)? & 0x30 == 0 => Operands::ModRmWord,
        0xf6 | 0xf7 | 0xfe | 0xff => Operands::ModRm(0),
        _ => return None,
    };
    let (mod_rm, distance_at) = finish(&mut reader, operands, prefixes.is_16 && !is_64)?;
    let flow = flow_of(opcode, mod_rm, &reader)?;
    let accumulator = accumulator_after(opcode, mod_rm, prefixes, &reader)?;
    Some(Instruction { bytes: reader.at, flow, accumulator, distance_at })
}

fn flow_of(opcode: u8, mod_rm: u8, reader: &CodeReader<'_>) -> Option<InstructionFlow> {
    Some(match opcode {
        0x70..=0x7f | 0xe0..=0xe3 => InstructionFlow::Branch(reader.signed(1)?),
        0xeb => InstructionFlow::Jump(reader.signed(1)?),
        0xe9 => InstructionFlow::Jump(reader.signed(4)?),
        0xe8 => InstructionFlow::Call,
        0xff if matches!(mod_rm >> 3 & 7, 2 | 3) => InstructionFlow::Call,
        0xff if matches!(mod_rm >> 3 & 7, 4 | 5) => InstructionFlow::Elsewhere,
        0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xf4 | 0xcc => InstructionFlow::End,
        _ => InstructionFlow::Next,
    })
}

fn accumulator_after(
    opcode: u8,
    mod_rm: u8,
    prefixes: Prefixes,
    reader: &CodeReader<'_>,
) -> Option<Accumulator> {
    let is_64 = prefixes.rex & 8 != 0;
    let writes = |register: u8, extension: u8| register == 0 && prefixes.rex & extension == 0;
    // These say whether `rax` is the register that is written, by the one field or the other.
    let to_register = writes(mod_rm >> 3 & 7, 4);
    let to_operand = mod_rm >> 6 == 3 && writes(mod_rm & 7, 1);
    let is_plain = !prefixes.is_16 && !prefixes.is_other;
    Some(match opcode {
        0xb8 if writes(0, 1) && is_plain && !is_64 => Accumulator::Is(reader.signed(4)? as u32),
        0xc7 if to_operand && is_plain => Accumulator::Is(reader.signed(4)? as u32),
        0x31 | 0x33 if mod_rm == 0xc0 && prefixes.rex & 5 == 0 && is_plain => Accumulator::Is(0),
        // Comparisons and pushes do not change `rax`.
        0x38..=0x3d | 0x84 | 0x85 | 0x50..=0x57 | 0x68 | 0x6a | 0xa8 | 0xa9 | 0x70..=0x7f => {
            Accumulator::Unchanged
        }
        0xb8..=0xbf if !writes(opcode & 7, 1) => Accumulator::Unchanged,
        0x58..=0x5f if !writes(opcode & 7, 1) => Accumulator::Unchanged,
        0x01 | 0x09 | 0x21 | 0x29 | 0x31 | 0x89 | 0xc7 | 0xc6 | 0x88 if !to_operand => Accumulator::Unchanged,
        0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x8b | 0x8d | 0x63 if !to_register => Accumulator::Unchanged,
        // Arithmetic with an immediate operand does not change `rax` if another register is its operand.
        0x80 | 0x81 | 0x83 | 0xc1 if !to_operand => Accumulator::Unchanged,
        0x90 if prefixes.rex & 1 == 0 => Accumulator::Unchanged,
        _ => Accumulator::Unknown,
    })
}

fn two_bytes(mut reader: CodeReader<'_>, prefixes: Prefixes) -> Option<Instruction> {
    let opcode = reader.next()?;
    let operands = match opcode {
        0x38 => {
            reader.next()?;
            Operands::ModRm(0)
        }
        0x3a => {
            reader.next()?;
            Operands::ModRm(1)
        }
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => {
            Operands::None
        }
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Operands::ModRm(1),
        0x80..=0x8f => Operands::Bytes(4),
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x39 | 0x3b..=0x3f | 0xa6 | 0xa7 => return None,
        _ => Operands::ModRm(0),
    };
    let is_16 = prefixes.is_16 && prefixes.rex & 8 == 0;
    let (mod_rm, distance_at) = finish(&mut reader, operands, is_16)?;
    let is_bare = prefixes.rex == 0 && !prefixes.is_16 && !prefixes.is_other;
    let flow = match opcode {
        0x05 if is_bare => InstructionFlow::SystemCall,
        0x0b => InstructionFlow::End,
        0x80..=0x8f => InstructionFlow::Branch(reader.signed(4)?),
        _ => InstructionFlow::Next,
    };
    let is_other_register = mod_rm >> 3 & 7 != 0 || prefixes.rex & 4 != 0;
    let accumulator = match opcode {
        // Copies of vectors, and hints without effect.
        0x10..=0x17 | 0x18..=0x1f | 0x28 | 0x29 | 0x57 | 0x6f | 0x7f | 0xef | 0xd6 => Accumulator::Unchanged,
        // Moves that extend, or that depend on a condition.
        0x40..=0x4f | 0xb6 | 0xb7 | 0xbe | 0xbf if is_other_register => Accumulator::Unchanged,
        0x80..=0x8f => Accumulator::Unchanged,
        _ => Accumulator::Unknown,
    };
    Some(Instruction { bytes: reader.at, flow, accumulator, distance_at })
}

/// Decodes vector instructions with prefixes of two, three and four bytes.
fn vector(mut reader: CodeReader<'_>, prefix: u8) -> Option<Instruction> {
    let map = match prefix {
        0xc5 => {
            reader.next()?;
            1
        }
        0xc4 => {
            let map = reader.next()? & 0x1f;
            reader.next()?;
            map
        }
        _ => {
            let map = reader.next()? & 7;
            reader.skip(2)?;
            map
        }
    };
    let opcode = reader.next()?;
    let operands = match (map, opcode) {
        (1, 0x77) => Operands::None,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Operands::ModRm(1),
        (1 | 2 | 5 | 6, _) => Operands::ModRm(0),
        _ => return None,
    };
    let (_, distance_at) = finish(&mut reader, operands, false)?;
    let accumulator = Accumulator::Unknown;
    Some(Instruction { bytes: reader.at, flow: InstructionFlow::Next, accumulator, distance_at })
}

/// Reads operands: returns the byte that names registers, or 0xff, and the offset of a distance to memory.
fn finish(reader: &mut CodeReader<'_>, operands: Operands, is_16: bool) -> Option<(u8, Option<usize>)> {
    let word = if is_16 { 2 } else { 4 };
    let (named, bytes) = match operands {
        Operands::None => ((0xff, None), 0),
        Operands::Bytes(bytes) => ((0xff, None), bytes),
        Operands::Word => ((0xff, None), word),
        Operands::ModRm(bytes) => (reader.mod_rm()?, bytes),
        Operands::ModRmWord => (reader.mod_rm()?, word),
    };
    reader.skip(bytes)?;
    (reader.at <= 15).then_some(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_have_their_lengths() {
        let table: &[(&[u8], InstructionFlow)] = &[
            (&[0x48, 0x89, 0xf8], InstructionFlow::Next),
            (&[0x4c, 0x8b, 0x4c, 0x24, 0x08], InstructionFlow::Next),
            (&[0xb8, 0x0b, 0, 0, 0], InstructionFlow::Next),
            (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8], InstructionFlow::Next),
            (&[0x66, 0xb8, 1, 2], InstructionFlow::Next),
            (&[0x0f, 0x05], InstructionFlow::SystemCall),
            (&[0xf3, 0x0f, 0x1e, 0xfa], InstructionFlow::Next),
            (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], InstructionFlow::Next),
            (&[0x0f, 0x84, 0x0f, 0x05, 0, 0], InstructionFlow::Branch(0x50f)),
            (&[0x73, 0xfe], InstructionFlow::Branch(-2)),
            (&[0xeb, 0x10], InstructionFlow::Jump(16)),
            (&[0xe9, 0, 1, 0, 0], InstructionFlow::Jump(256)),
            (&[0xc3], InstructionFlow::End),
            (&[0xff, 0xe0], InstructionFlow::Elsewhere),
            (&[0xff, 0x15, 1, 2, 3, 4], InstructionFlow::Call),
            (&[0xf7, 0xc1, 1, 0, 0, 0], InstructionFlow::Next),
            (&[0xf7, 0xd8], InstructionFlow::Next),
            (&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0], InstructionFlow::Next),
            (&[0xc5, 0xf8, 0x77], InstructionFlow::Next),
            (&[0xc4, 0xe3, 0x79, 0x14, 0xc0, 1], InstructionFlow::Next),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x46, 1], InstructionFlow::Next),
        ];
        for (code, flow) in table {
            let mut longer = code.to_vec();
            longer.extend([0x90; 15]);
            let read_one = read(&longer).unwrap_or_else(|| panic!("{code:x?}"));
            assert_eq!((read_one.bytes, read_one.flow), (code.len(), *flow), "{code:x?}");
            for end in 0..code.len() {
                assert!(read(&code[..end]).is_none(), "{code:x?} is cut off after {end}");
            }
        }
        assert_eq!(read(&[0x48, 0x8d, 0x3d, 1, 0, 0, 0]).unwrap().distance_at, Some(3));
        assert!(read(&[0; 8]).is_none() && read(&[0x06]).is_none() && read(&[0x66; 15]).is_none());
    }

    #[test]
    fn what_the_accumulator_has_is_known_where_it_is_certain() {
        let table: &[(&[u8], Accumulator)] = &[
            (&[0xb8, 0x19, 0, 0, 0], Accumulator::Is(25)),
            (&[0x48, 0xc7, 0xc0, 0x38, 0, 0, 0], Accumulator::Is(0x38)),
            (&[0x31, 0xc0], Accumulator::Is(0)),
            // r8d
            (&[0x41, 0xb8, 0x0b, 0, 0, 0], Accumulator::Unchanged),
            (&[0x49, 0xc7, 0xc0, 1, 0, 0, 0], Accumulator::Unchanged),
            (&[0x48, 0x89, 0xf8], Accumulator::Unknown),
            (&[0x48, 0x89, 0xdf], Accumulator::Unchanged),
            (&[0x48, 0x8b, 0x45, 0xf8], Accumulator::Unknown),
            (&[0x48, 0x8b, 0x55, 0xf8], Accumulator::Unchanged),
            (&[0x83, 0xc0, 1], Accumulator::Unknown),
            (&[0xb0, 0x0b], Accumulator::Unknown),
            (&[0x58], Accumulator::Unknown),
        ];
        for (code, accumulator) in table {
            assert_eq!(read(code).unwrap().accumulator, *accumulator, "{code:x?}");
        }
    }
}
