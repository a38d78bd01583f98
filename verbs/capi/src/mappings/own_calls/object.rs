//! A loaded object: its code, its functions, and the system calls in it.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
};
use std::ffi::CStr;
use std::ops::Range;
use std::ptr;

use pumice_device::outside;

use super::site::{JUMP_BYTES, Site, SiteChoice, at_number, choose};
use super::stub::changes_mappings;

/// Header of `.eh_frame_hdr` version 1; addresses are relative to their own place or the table, as four bytes
/// with a sign: all linkers write this form.
const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
const HEAD_BYTES: u64 = 12;
const ENTRY_BYTES: u64 = 8;
/// Offset from the beginning of a function's record to its address.
const TO_FIRST: u64 = 8;

/// Reads four bytes at an address of the object; `None` if they are not in it.
pub(super) type ReadWord<'a> = &'a dyn Fn(u64) -> Option<u32>;

/// The table at an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnwindTable {
    at: u64,
    count: u64,
}

impl UnwindTable {
    /// Finds the table; `None` if it has another form.
    pub(super) fn at(at: u64, read: ReadWord<'_>) -> Option<UnwindTable> {
        let head = read(at)?.to_le_bytes();
        (head == HEAD).then_some(())?;
        Some(UnwindTable { at, count: u64::from(read(at + 8)?) })
    }

    /// Returns the function that contains an address.
    pub(super) fn function_of(&self, address: u64, read: ReadWord<'_>) -> Option<Range<u64>> {
        let entry = |index: u64| self.at + HEAD_BYTES + index * ENTRY_BYTES;
        let relative = |at: u64, to: u64| Some(to.wrapping_add_signed(i64::from(read(at)? as i32)));
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if relative(entry(middle), self.at)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let first = relative(entry(index), self.at)?;
        let record = relative(entry(index) + 4, self.at)?;
        // The record has the address in a form of its own, which is known if it gives the same address.
        let is_known = relative(record + TO_FIRST, record + TO_FIRST)? == first;
        let function = first..first + u64::from(read(record + TO_FIRST + 4)?);
        let is_known = is_known && !is_of_signals(record, read)?;
        (is_known && function.contains(&address)).then_some(function)
    }
}

/// Reports whether a record is of code that returns from a signal handler: it gives an address before the
/// function's.
fn is_of_signals(record: u64, read: ReadWord<'_>) -> Option<bool> {
    const TO_TEXT: u64 = 9;
    let shared = (record + 4).checked_sub(u64::from(read(record + 4)?))?;
    let text = [read(shared + TO_TEXT)?.to_le_bytes(), read(shared + TO_TEXT + 4)?.to_le_bytes()];
    Some(text.as_flattened().iter().take_while(|byte| **byte != 0).any(|byte| *byte == b'S'))
}

/// Largest length in bytes of the code of an object that is searched: reading more would delay the program by
/// a second.
const MAX_CODE_BYTES: u64 = 64 << 20;
/// Largest length in bytes of a function that is decoded.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// Result for an address with the bytes of a system call.
#[derive(Debug)]
pub(super) enum FoundCall {
    /// No call, or one that changes no mapping.
    Nothing,
    /// A call that may change mappings, and cannot be watched.
    Left,
    Site(FoundSite),
}

/// A system call that can be watched.
#[derive(Debug)]
pub(super) struct FoundSite {
    pub(super) site: Site,
    /// Code of the function that contains it, and the function's address.
    pub(super) code: Vec<u8>,
    pub(super) first: u64,
}

/// A loaded object. It stays loaded as long as this is used.
#[derive(Debug)]
pub(super) struct LoadedObject {
    name: String,
    /// First address and length in bytes of its readable parts.
    parts: Vec<(u64, u64)>,
    /// First address and length in bytes of its executable parts.
    pub(super) codes: Vec<(u64, u64)>,
    table: Option<UnwindTable>,
}

impl LoadedObject {
    /// # Safety
    /// The loader must have given the description, and must not unload the object meanwhile.
    pub(super) unsafe fn of(info: &libc::dl_phdr_info) -> Option<LoadedObject> {
        if info.dlpi_phdr.is_null() || info.dlpi_name.is_null() {
            return None;
        }
        // SAFETY: the loader gives the number of headers, and a name that ends with NUL.
        let (headers, name) = unsafe {
            (
                std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
                CStr::from_ptr(info.dlpi_name),
            )
        };
        let part = |header: &libc::Elf64_Phdr| (info.dlpi_addr.wrapping_add(header.p_vaddr), header.p_filesz);
        let has = |header: &&libc::Elf64_Phdr, rights| {
            header.p_type == libc::PT_LOAD && header.p_flags & rights == rights
        };
        let with = |rights| headers.iter().filter(move |header| has(header, rights)).map(part).collect();
        let mut object = LoadedObject {
            name: name.to_string_lossy().into_owned(),
            parts: with(libc::PF_R),
            codes: with(libc::PF_R | libc::PF_X),
            table: None,
        };
        let table = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
        object.table = table.and_then(|header| UnwindTable::at(part(header).0, &|at| object.word(at)));
        Some(object)
    }

    pub(super) fn name(&self) -> &str {
        if self.name.is_empty() { "the program" } else { &self.name }
    }

    /// Reports whether it is the C library or its loader.
    pub(super) fn is_of_c_library(&self) -> bool {
        ["/libc.so.6", "/ld-linux-x86-64.so.2"].iter().any(|end| self.name.ends_with(end))
    }

    pub(super) fn has_code_at(&self, address: u64) -> bool {
        self.codes.iter().any(|(first, bytes)| address >= *first && address - first < *bytes)
    }

    /// Copies memory of the object; `None` if it has no such range.
    fn bytes(&self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        let is_in = |(first, length): &&(u64, u64)| {
            at >= *first && at - first <= *length && bytes <= *length - (at - first)
        };
        self.parts.iter().find(is_in)?;
        let mut copy = vec![0; usize::try_from(bytes).ok()?];
        // SAFETY: the range is in a part of the object that can be read, and the copy has as many bytes.
        unsafe {
            ptr::copy_nonoverlapping(ptr::with_exposed_provenance(at as usize), copy.as_mut_ptr(), copy.len())
        };
        Some(copy)
    }

    fn word(&self, at: u64) -> Option<u32> {
        let is_in = |(first, length): &&(u64, u64)| at >= *first && length.saturating_sub(4) >= at - first;
        self.parts.iter().find(is_in)?;
        // SAFETY: the four bytes are in a part of the object that can be read.
        Some(unsafe { ptr::with_exposed_provenance::<u32>(at as usize).read_unaligned() })
    }

    /// Returns the addresses in a part of the code that have the bytes of `syscall`; `None` if the part is
    /// too long.
    pub(super) fn calls_in(&self, (first, bytes): (u64, u64)) -> Option<Vec<u64>> {
        let mut found = Vec::new();
        if bytes > MAX_CODE_BYTES {
            return None;
        }
        let end = first + bytes;
        let mut at = first;
        while at + 17 <= end {
            // SAFETY: 17 bytes from here are in code that can be read; every x86-64 has these instructions.
            let mut hits = unsafe { pairs(ptr::with_exposed_provenance(at as usize)) };
            while hits != 0 {
                found.push(at + u64::from(hits.trailing_zeros()));
                hits &= hits - 1;
            }
            at += 16;
        }
        let rest = self.bytes(at, end - at).unwrap_or_default();
        let in_rest = rest.windows(2).enumerate().filter(|(_, two)| **two == [0x0f, 0x05]);
        found.extend(in_rest.map(|(offset, _)| at + offset as u64));
        Some(found)
    }

    /// Examines an address that has the bytes of a system call.
    pub(super) fn inspect_call(&self, call: u64) -> FoundCall {
        let numbered = self.number_before(call);
        if let Some((number, _)) = &numbered
            && !changes_mappings(*number)
        {
            return FoundCall::Nothing;
        }
        let function = self.table.and_then(|table| table.function_of(call, &|at| self.word(at)));
        let function = function.filter(|function| function.end - function.start <= MAX_FUNCTION_BYTES);
        let code = function.as_ref().and_then(|range| self.bytes(range.start, range.end - range.start));
        let (Some(function), Some(code)) = (function, code) else {
            // Without a number before them, these bytes may be anything.
            return numbered.map_or(FoundCall::Nothing, |(_, site)| {
                let first = call - JUMP_BYTES as u64;
                let code = self.bytes(first, JUMP_BYTES as u64).unwrap_or_default();
                FoundCall::Site(FoundSite { site, code, first })
            });
        };
        match choose(&code, (call - function.start) as usize, changes_mappings) {
            SiteChoice::Unneeded => FoundCall::Nothing,
            SiteChoice::Left => FoundCall::Left,
            SiteChoice::Watch(site) => FoundCall::Site(FoundSite { site, code, first: function.start }),
        }
    }

    /// Returns the number that the five bytes before a call set, and the site that they form.
    fn number_before(&self, call: u64) -> Option<(u32, Site)> {
        let bytes = self.bytes(call.checked_sub(JUMP_BYTES as u64 + 1)?, JUMP_BYTES as u64 + 1)?;
        let (prefix, before) = bytes.split_first()?;
        // With a prefix before it, the instruction may set another register, or have eight bytes.
        let may_be_longer = matches!(prefix, 0x40..=0x4f | 0x66);
        if may_be_longer { None } else { at_number(before.try_into().ok()?) }
    }
}

/// Returns a bit for each of 16 bytes that is the first of `syscall`.
///
/// # Safety
/// 17 bytes must be readable.
unsafe fn pairs(at: *const u8) -> u32 {
    // SAFETY: the caller guarantees the bytes; every x86-64 has these instructions.
    unsafe {
        let load = |offset| _mm_loadu_si128(at.add(offset).cast::<__m128i>());
        let first = _mm_cmpeq_epi8(load(0), _mm_set1_epi8(0x0f));
        let second = _mm_cmpeq_epi8(load(1), _mm_set1_epi8(0x05));
        _mm_movemask_epi8(_mm_and_si128(first, second)).cast_unsigned()
    }
}

/// Reports whether all threads of the process are in the kernel, and none will continue in this range.
pub(super) fn is_quiet(range: &Range<u64>) -> bool {
    /// Number of checks.
    const TIMES: usize = 20;
    (0..TIMES).any(|_| {
        let Ok(threads) = outside::files::list("/proc/self/task") else { return false };
        let is_quiet = threads.flatten().all(|thread| {
            // The line has a number, seven more numbers, the stack pointer and the program counter; or it is
            // "running".
            let Ok(state) = outside::files::fact_text(thread.path().join("syscall")) else { return true };
            let counter = state.split_whitespace().last().and_then(|word| word.strip_prefix("0x"));
            let counter = counter.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            counter.is_some_and(|counter| !range.contains(&counter))
        });
        if !is_quiet {
            outside::idle();
        }
        is_quiet
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn functions_are_found_by_any_of_their_addresses() {
        // Functions at 0x100 (16 bytes) and 0x200 (32 bytes); the table is at 0, records at 0xc0 and 0xe0.
        let mut words = HashMap::from([(0, u32::from_le_bytes(HEAD)), (8, 2)]);
        for (entry, first, record, bytes) in [(12_u64, 0x100_u32, 0xc0_u32, 16), (20, 0x200, 0xe0, 32)] {
            words.insert(entry, first);
            words.insert(entry + 4, record);
            // The part that records share is at 0x80.
            words.insert(u64::from(record) + 4, (record + 4).wrapping_sub(0x80));
            words.insert(u64::from(record) + 8, first - record - 8);
            words.insert(u64::from(record) + 12, bytes);
        }
        words.extend([(0x89, u32::from_le_bytes(*b"zR\0\x01")), (0x8d, 0)]);
        let read = |at: u64| words.get(&at).copied();
        let table = UnwindTable::at(0, &read).unwrap();
        for (address, function) in [
            (0xff, None),
            (0x100, Some(0x100..0x110)),
            (0x10f, Some(0x100..0x110)),
            (0x110, None),
            (0x21f, Some(0x200..0x220)),
            (0x220, None),
        ] {
            assert_eq!(table.function_of(address, &read), function, "{address:#x}");
        }
        assert!(UnwindTable::at(4, &read).is_none());
        let of_signals = |at: u64| if at == 0x89 { Some(u32::from_le_bytes(*b"zRS\0")) } else { read(at) };
        assert_eq!(table.function_of(0x100, &of_signals), None);
    }
}
