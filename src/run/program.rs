//! Finds the program, and what would keep it from using the device.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{ELFMAG, EM_AARCH64, EM_RISCV, EM_X86_64, FileHeader64, Machine, PT_INTERP};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::bundled_libibverbs;
use super::invoked_programs::{InvokedPrograms, find};
use crate::outcome::{CommandError, NO_PROGRAM, NOT_EXECUTABLE};

/// Machine of the programs that can load libpumice.so, as ELF headers name it.
const OWN_MACHINE: Machine = if cfg!(target_arch = "x86_64") {
    EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    EM_AARCH64
} else {
    assert!(cfg!(target_arch = "riscv64"), "the ELF number of this processor is not listed here");
    EM_RISCV
};

/// A program that may be executed.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    invoked_programs: InvokedPrograms,
}

impl Program {
    /// Finds a program as a shell does: in PATH, unless its name has a slash.
    ///
    /// # Errors
    /// There is none (127), or none that may be executed (126).
    pub(super) fn find(name: &OsStr, arguments: &[OsString]) -> Result<Program, CommandError> {
        find(name).map(|path| Program { invoked_programs: InvokedPrograms::of(&path, arguments), path })
    }

    /// Returns warnings about what will keep the program from using the device although it can be run.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.gains_privileges() {
            found.push(format!(
                "{} is privileged (setuid, setgid or with capabilities): the system ignores LD_LIBRARY_PATH \
                 for it, so it will not use the device; run it as its owner, or run a copy of it",
                self.path.display()
            ));
        }
        match kind(&self.path) {
            Ok(ProgramKind::Static) => found.push(format!(
                "{} is linked statically: it uses no shared library, so it will not use the device",
                self.path.display()
            )),
            Ok(ProgramKind::OtherMachine) => found.push(format!(
                "{} is for another machine than this pumice, which is for {}: it cannot load libpumice.so",
                self.path.display(),
                std::env::consts::ARCH
            )),
            Ok(ProgramKind::Musl(_) | ProgramKind::Other) | Err(_) => {}
        }
        let of_verbs =
            self.invoked_programs.only.iter().chain(&self.invoked_programs.among).filter_map(|path| {
                let holder = bundled_libibverbs::find_bundled(path)
                    .filter(|_| !matches!(kind(path), Ok(ProgramKind::Static)))?;
                Some((path, holder))
            });
        found.extend(of_verbs.map(|(path, holder)| {
            let name = path.display();
            let brought = if holder == *path { String::new() } else { format!(", which {name} loads,") };
            format!(
                "{}{brought} has a libibverbs inside (it was linked with libibverbs.a), which asks the \
                 kernel for devices: so it will not use the device; build it with the shared library \
                 (-libverbs without -static and without libibverbs.a), or install a build that is made so",
                holder.display()
            )
        }));
        let all = self.invoked_programs.only.iter().chain(&self.invoked_programs.among);
        found.extend(all.filter_map(|path| Some((path, musl_loader(path)?))).map(|(path, loader)| {
            format!(
                "{} is linked with musl (its loader is {loader}), and libpumice.so with glibc: the program \
                 cannot load it, so it will not use the device; run a build of the program for glibc, in a \
                 container one of an image such as Debian's instead of Alpine's",
                path.display()
            )
        }));
        found
    }

    /// Reports whether the loader can load libraries of this project before it. A file that is no ELF file is
    /// a script, whose interpreter can.
    pub(super) fn takes_preloads(&self) -> bool {
        matches!(kind(&self.path), Ok(ProgramKind::Other) | Err(_)) && !self.is_of_musl()
    }

    /// Reports whether its loader is that of musl, which ends the program if it finds libraries of this
    /// project.
    pub(super) fn is_of_musl(&self) -> bool {
        self.invoked_programs.only.iter().any(|path| musl_loader(path).is_some())
    }

    /// Reports whether the kernel will run it in secure-execution mode.
    fn gains_privileges(&self) -> bool {
        let Ok(about) = fs::metadata(&self.path) else { return false };
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let setuid = about.mode() & 0o4000 != 0 && about.uid() != uid.as_raw();
        // Without the group's execute bit, the setgid bit has another meaning.
        let setgid = about.mode() & 0o2010 == 0o2010 && about.gid() != gid.as_raw();
        let mut capability = [0_u8; 64];
        let capable = !uid.is_root()
            && rustix::fs::getxattr(&self.path, "security.capability", &mut capability).is_ok();
        setuid || setgid || capable
    }

    /// Returns the error for exec(2) that failed.
    pub(super) fn not_run(&self, error: &io::Error) -> CommandError {
        let exit_code = if error.kind() == io::ErrorKind::NotFound { NO_PROGRAM } else { NOT_EXECUTABLE };
        let path = self.path.display();
        let sentence = match error.kind() {
            io::ErrorKind::NotFound => {
                format!(
                    "{path} cannot be run: its interpreter (the #! line, or the dynamic loader) is missing"
                )
            }
            _ => format!("{path} cannot be run: {error}"),
        };
        CommandError::Program { sentence, exit_code }
    }
}

/// The kind of an executable file.
#[derive(Debug, PartialEq, Eq)]
enum ProgramKind {
    /// An ELF program without a dynamic loader.
    Static,
    /// An ELF program of another class or machine.
    OtherMachine,
    /// A program that is started by this loader of musl.
    Musl(String),
    /// A dynamically linked program, a script or any other file.
    Other,
}

fn kind(path: &Path) -> io::Result<ProgramKind> {
    // This suffices for the headers of any linker; a program whose headers lie beyond counts as dynamic.
    let mut bytes = Vec::new();
    File::open(path)?.take(1 << 16).read_to_end(&mut bytes)?;
    Ok(kind_of(&bytes))
}

fn kind_of(bytes: &[u8]) -> ProgramKind {
    if bytes.len() < size_of::<FileHeader64<LittleEndian>>() || !bytes.starts_with(&ELFMAG) {
        return ProgramKind::Other;
    }
    let headers =
        FileHeader64::<LittleEndian>::parse(bytes).and_then(|header| Ok((header, header.endian()?)));
    let Some((header, endian)) =
        headers.ok().filter(|(header, endian)| header.e_machine(*endian) == OWN_MACHINE)
    else {
        return ProgramKind::OtherMachine;
    };
    let Ok(all) = header.program_headers(endian, bytes) else { return ProgramKind::Other };
    let Some(named) = all.iter().find(|one| one.p_type(endian) == PT_INTERP) else {
        return ProgramKind::Static;
    };
    let loader = named.data(endian, bytes).unwrap_or_default();
    let loader = String::from_utf8_lossy(loader.strip_suffix(b"\0").unwrap_or(loader));
    if loader.contains("/ld-musl-") { ProgramKind::Musl(loader.into_owned()) } else { ProgramKind::Other }
}

/// Returns the loader of a program that is linked with musl.
fn musl_loader(path: &Path) -> Option<String> {
    match kind(path) {
        Ok(ProgramKind::Musl(loader)) => Some(loader),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ELF_HEADER_BYTES: usize = 64;
    const INTERP: u32 = 3;

    fn elf(class: u8, machine: u16, header_types: &[u32]) -> Vec<u8> {
        let mut bytes = vec![0; ELF_HEADER_BYTES + 56 * header_types.len()];
        bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1]);
        bytes[6] = 1;
        bytes[18] = machine as u8;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = header_types.len() as u8;
        for (index, kind) in header_types.iter().enumerate() {
            bytes[64 + 56 * index] = *kind as u8;
        }
        bytes
    }

    #[test]
    fn static_and_foreign_programs_are_known_by_their_headers() {
        assert_eq!(kind_of(&elf(2, OWN_MACHINE.0, &[6, INTERP, 1])), ProgramKind::Other);
        assert_eq!(kind_of(&elf(2, OWN_MACHINE.0, &[1, 1])), ProgramKind::Static);
        assert_eq!(kind_of(&elf(1, 3, &[INTERP])), ProgramKind::OtherMachine);
        let others = [EM_X86_64, EM_AARCH64, EM_RISCV].into_iter().filter(|machine| *machine != OWN_MACHINE);
        for other in others {
            assert_eq!(kind_of(&elf(2, other.0, &[INTERP])), ProgramKind::OtherMachine);
        }
        assert_eq!(kind_of(b"#!/bin/sh\n"), ProgramKind::Other);
        for length in 0..=ELF_HEADER_BYTES + 56 {
            let mut bytes = elf(2, OWN_MACHINE.0, &[1]);
            bytes.truncate(length);
            kind_of(&bytes);
        }
        let mut musl = elf(2, OWN_MACHINE.0, &[1, INTERP]);
        let loader = b"/lib/ld-musl-x86_64.so.1\0";
        let at = musl.len() as u64;
        // The second header gives the offset of the name, and its size in the file.
        musl[64 + 56 + 8..64 + 56 + 16].copy_from_slice(&at.to_le_bytes());
        musl[64 + 56 + 32..64 + 56 + 40].copy_from_slice(&(loader.len() as u64).to_le_bytes());
        musl.extend_from_slice(loader);
        assert_eq!(kind_of(&musl), ProgramKind::Musl("/lib/ld-musl-x86_64.so.1".to_owned()));
        musl.pop();
        assert_eq!(kind_of(&musl), ProgramKind::Other, "its name is cut");
        let mut wild = elf(2, OWN_MACHINE.0, &[1]);
        wild[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(kind_of(&wild), ProgramKind::Other);
    }
}
