//! Finds the functions that the kernel maps into every process (vDSO).

use std::sync::OnceLock;

use object::{Object as _, ObjectSymbol as _};

use super::clock_code::{code, offset_of};
use super::tracee::Tracee;

/// Maximum length of the image, in bytes.
const MAX_BYTES: usize = 1 << 16;
/// Length of the beginning of an image by which images are distinguished.
const HEAD: usize = 64;
/// Function whose bytes have room for all of the code.
const MIN_CODE_BYTES: &str = "__vdso_clock_gettime";
/// Length of a jump instruction, in bytes.
pub(crate) const JUMP: usize = 5;

/// The functions of an image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Functions {
    head: [u8; HEAD],
    /// Offset of the code in the image, in bytes.
    pub(crate) code_at: u64,
    /// Offsets of the functions that are to jump, and of their targets.
    pub(crate) jumps: Vec<(u64, u64)>,
}

/// Returns the functions of the image at this address of a program's memory; `None` if it is no known image
/// into which the code fits.
pub(crate) fn functions(tracee: Tracee, at: u64) -> Option<&'static Functions> {
    static KNOWN: OnceLock<Option<Functions>> = OnceLock::new();
    let mut head = [0; HEAD];
    tracee.read(at, &mut head).ok()?;
    let known = KNOWN.get_or_init(|| Functions::of_image(&image(tracee, at)?)).as_ref()?;
    (known.head == head).then_some(known)
}

/// Reads the whole image from the program's memory.
fn image(tracee: Tracee, at: u64) -> Option<Vec<u8>> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", tracee.0)).ok()?;
    let (begin, end) = maps.lines().find_map(|line| {
        let (begin, end) = line.split_whitespace().next()?.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        Some((hex(begin)?, hex(end)?)).filter(|(begin, _)| *begin == at)
    })?;
    let mut image = vec![0; usize::try_from(end - begin).ok().filter(|length| *length <= MAX_BYTES)?];
    tracee.read(at, &mut image).ok()?;
    Some(image)
}

impl Functions {
    fn of_image(image: &[u8]) -> Option<Functions> {
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(image).ok()?;
        let found = |name: &str| {
            let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(name))?;
            Some((symbol.address(), symbol.size()))
        };
        let (code_at, room) = found(MIN_CODE_BYTES)?;
        if room < code().len() as u64 {
            return None;
        }
        let mut jumps = Vec::new();
        for symbol in file.dynamic_symbols() {
            let Some(to) = symbol.name().ok().and_then(offset_of).filter(|to| *to > 0) else { continue };
            if symbol.size() < JUMP as u64 {
                return None;
            }
            jumps.push((symbol.address(), code_at + to));
        }
        Some(Functions { head: image.get(..HEAD)?.try_into().ok()?, code_at, jumps })
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::getpid;

    use super::*;

    #[test]
    fn the_code_fits_into_what_this_kernel_gives_every_process() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[vdso]")).expect("a kernel with a vDSO");
        let at = u64::from_str_radix(line.split_once('-').unwrap().0, 16).unwrap();
        let found = functions(Tracee(getpid()), at).expect("room for the code");
        assert!(found.jumps.len() >= 3, "{found:?}");
        assert_eq!(functions(Tracee(getpid()), at + 8), None);
    }
}
