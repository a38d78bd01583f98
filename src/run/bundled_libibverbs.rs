//! Finds programs and libraries with an embedded libibverbs: linked with `libibverbs.a`, as some wheels and
//! vendors' builds are. They do not load libibverbs.so.1, so LD_LIBRARY_PATH does not lead them to the
//! device.

use std::collections::VecDeque;
use std::fs::File;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, Dyn64, DynamicTag, ELFMAG, FileHeader64, SectionHeader64,
};
use object::pod::{from_bytes, slice_from_bytes};
use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _};

/// Bits in which [`MASKED`] differs from the sentence. This program has the sentence nowhere in its file: it
/// embeds no libibverbs, and is often the program of another `pumice run`.
const MASK: u8 = 0x80;
/// A sentence in every version of libibverbs, and in no program that only calls it; each byte is masked.
const MASKED: [u8; 62] = masked(*b"libibverbs: Warning: no userspace device-specific driver found");

const fn masked(mut bytes: [u8; 62]) -> [u8; 62] {
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] ^= MASK;
        index += 1;
    }
    bytes
}

/// Returns the sentence.
fn sentence() -> [u8; 62] {
    // The compiler does not compute the sentence in advance.
    black_box(MASKED).map(|byte| byte ^ MASK)
}

/// Prefix of the library's own file name: such a file is the library, and does not embed it.
const LIBRARY_NAME: &str = "libibverbs";
/// Maximum number of bytes of a section that are read.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of libraries that are examined, of those that the program brings.
const MAX_FILES: usize = 64;

/// Returns the file with an embedded libibverbs: the program, or a library on its own search path.
pub(super) fn find_bundled(program: &Path) -> Option<PathBuf> {
    let mut waiting = VecDeque::from([program.to_owned()]);
    let mut seen: Vec<PathBuf> = Vec::new();
    while let Some(path) = waiting.pop_front() {
        if seen.contains(&path) || seen.len() >= MAX_FILES {
            continue;
        }
        if let Some(elf) = Elf::open(&path) {
            let is_itself =
                path.file_name().is_some_and(|name| name.as_bytes().starts_with(LIBRARY_NAME.as_bytes()));
            if !is_itself && elf.section(b".rodata").is_some_and(|bytes| contains(&bytes, &sentence())) {
                return Some(path);
            }
            waiting.extend(elf.brought(path.parent().unwrap_or(Path::new("."))));
        }
        seen.push(path);
    }
    None
}

/// Reports whether the sentence is among the bytes, by Horspool's algorithm, which examines about one byte in
/// fifty.
fn contains(bytes: &[u8], sentence: &[u8]) -> bool {
    let Some((_, but_last)) = sentence.split_last() else { return true };
    let shift = |byte: u8| but_last.iter().rev().position(|one| *one == byte).unwrap_or(but_last.len()) + 1;
    let shifts: Vec<usize> = (0..=u8::MAX).map(shift).collect();
    let mut rest = bytes;
    while let Some(window) = rest.get(..sentence.len()) {
        if window == sentence {
            return true;
        }
        let next = window.last().map_or(1, |last| shifts[usize::from(*last)]);
        rest = &rest[next..];
    }
    false
}

/// An ELF file whose sections are read on demand.
struct Elf {
    file: File,
    sections: Vec<SectionHeader64<LittleEndian>>,
    names: Vec<u8>,
}

impl Elf {
    fn open(path: &Path) -> Option<Elf> {
        let file = File::open(path).ok()?;
        let mut head = [0; size_of::<FileHeader64<LittleEndian>>()];
        file.read_exact_at(&mut head, 0).ok()?;
        if !head.starts_with(&ELFMAG) {
            return None;
        }
        let header = FileHeader64::<LittleEndian>::parse(&head[..]).ok()?;
        let end = header.endian().ok()?;
        let count = usize::from(header.e_shnum(end));
        let bytes =
            read(&file, header.e_shoff(end), (count * size_of::<SectionHeader64<LittleEndian>>()) as u64)?;
        let (sections, _) = slice_from_bytes::<SectionHeader64<LittleEndian>>(&bytes, count).ok()?;
        let names = sections.get(usize::from(header.e_shstrndx(end).0))?;
        let names = read(&file, names.sh_offset(end), names.sh_size(end))?;
        Some(Elf { sections: sections.to_vec(), names, file })
    }

    fn section(&self, name: &[u8]) -> Option<Vec<u8>> {
        let found =
            self.sections.iter().find(|one| text(&self.names, one.sh_name(LittleEndian).into()) == name)?;
        read(&self.file, found.sh_offset(LittleEndian), found.sh_size(LittleEndian))
    }

    /// Returns the libraries that the file needs and that lie on its own search path; `folder` is that of the
    /// file.
    fn brought(&self, folder: &Path) -> Vec<PathBuf> {
        let (Some(entries), Some(texts)) = (self.section(b".dynamic"), self.section(b".dynstr")) else {
            return Vec::new();
        };
        let entries = entries.chunks_exact(size_of::<Dyn64<LittleEndian>>());
        let entries: Vec<(DynamicTag, &[u8])> = entries
            .filter_map(|entry| from_bytes::<Dyn64<LittleEndian>>(entry).ok())
            .map(|(entry, _)| (entry.d_tag(LittleEndian), text(&texts, entry.d_val(LittleEndian))))
            .collect();
        let of =
            |wanted: DynamicTag| entries.iter().filter(move |(tag, _)| *tag == wanted).map(|(_, text)| *text);
        let folders: Vec<PathBuf> = of(DT_RPATH)
            .chain(of(DT_RUNPATH))
            .flat_map(|list| list.split(|byte| *byte == b':'))
            .filter(|one| !one.is_empty())
            .map(|one| {
                let one = String::from_utf8_lossy(one);
                PathBuf::from(
                    one.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", &folder.to_string_lossy()),
                )
            })
            .collect();
        let needed: Vec<&[u8]> = of(DT_NEEDED).collect();
        let paths = needed.iter().filter_map(|name| {
            let name = Path::new(std::ffi::OsStr::from_bytes(name));
            folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
        });
        paths.collect()
    }
}

fn read(file: &File, from: u64, length: u64) -> Option<Vec<u8>> {
    // A damaged file may claim any length.
    let mut bytes = vec![0; usize::try_from(length.min(MAX_BYTES)).ok()?];
    let is_there = file.metadata().is_ok_and(|about| from.saturating_add(length) <= about.len());
    (is_there && file.read_exact_at(&mut bytes, from).is_ok()).then_some(bytes)
}

/// Returns the text at an offset, without its terminating zero.
fn text(texts: &[u8], at: u64) -> &[u8] {
    let rest = usize::try_from(at).ok().and_then(|at| texts.get(at..)).unwrap_or_default();
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_libibverbs_inside_of_a_program_or_of_a_library_that_it_brings_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let compile = |arguments: &[&str]| {
            Command::new("cc")
                .current_dir(folder.path())
                .args(arguments)
                .status()
                .is_ok_and(|status| status.success())
        };
        let sentence = String::from_utf8(sentence().to_vec()).unwrap();
        let inside_of = format!("const char *warning = \"{sentence} for %s\";");
        fs::write(at("library.c"), format!("{inside_of}\nint call(void) {{ return 0; }}\n")).unwrap();
        fs::write(at("program.c"), "int call(void);\nint main(void) { return call(); }\n").unwrap();
        if !compile(&["-shared", "-fPIC", "-o", "libengine.so", "library.c"]) {
            return eprintln!("**** NOT TESTED: there is no cc");
        }
        assert!(compile(&["-o", "brings", "program.c", "-L.", "-lengine", "-Wl,-rpath,$ORIGIN"]));
        assert!(compile(&["-o", "whole", "-s", "program.c", "library.c"]));
        fs::copy(at("libengine.so"), at("libibverbs.so.1")).unwrap();
        assert_eq!(find_bundled(&at("brings")), Some(at("libengine.so")));
        assert_eq!(find_bundled(&at("whole")), Some(at("whole")));
        assert_eq!(find_bundled(&at("libibverbs.so.1")), None, "the library itself");
        assert_eq!(find_bundled(&at("program.c")), None);
        assert_eq!(find_bundled(&std::env::current_exe().unwrap()), None, "a program that looks for it");
        let original = fs::read(at("whole")).unwrap();
        for length in (0..original.len()).step_by(61) {
            fs::write(at("damaged"), &original[..length]).unwrap();
            let _ = find_bundled(&at("damaged"));
        }
    }
}
