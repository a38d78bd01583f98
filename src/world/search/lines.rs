//! Source lines of locations in programs, from their debug information.

use std::path::Path;

use addr2line::Context;
use addr2line::gimli::{Dwarf, EndianSlice, LittleEndian};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use pumice_world::CodeLocation;

/// Maximum length of a program that is read, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Returns the source line of a location, or else the file and the address in it.
pub(super) fn line_of(location: &CodeLocation) -> String {
    let name = location.file.file_name().unwrap_or(location.file.as_os_str()).to_string_lossy();
    found_line(&location.file, location.offset).unwrap_or_else(|| format!("{name}+{:#x}", location.offset))
}

fn found_line(path: &Path, offset: u64) -> Option<String> {
    let about = std::fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    let file = object::File::parse(&*bytes).ok()?;
    let mut segments = file.segments();
    let address = segments.find_map(|segment| {
        let (begin, length) = segment.file_range();
        let within = offset.checked_sub(begin).filter(|within| *within < length)?;
        segment.address().checked_add(within)
    })?;
    let section = |name: &str| file.section_by_name(name)?.data().ok();
    let dwarf = Dwarf::load(|id| -> Result<_, addr2line::gimli::Error> {
        Ok(EndianSlice::new(section(id.name()).unwrap_or_default(), LittleEndian))
    });
    let context = Context::from_dwarf(dwarf.ok()?).ok()?;
    let location = context.find_location(address).ok()??;
    let source = Path::new(location.file?).file_name()?.to_string_lossy().into_owned();
    Some(format!("{source}:{}", location.line?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_without_debug_information_is_an_address() {
        let location = |file: &str| CodeLocation { file: file.into(), offset: 0x1234 };
        assert_eq!(line_of(&location("/no/such/prog")), "prog+0x1234");
        assert_eq!(line_of(&location("/proc/self/status")), "status+0x1234");
    }
}
