//! Files whose memory is registered (`ibv_reg_dmabuf_mr`): DMA-bufs, and all others that can be mapped.
//!
//! The device has no other way to such memory than a mapping of its own: memory that only hardware reaches,
//! such as that of a GPU, cannot be registered.

use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};

use memmap2::{MmapOptions, MmapRaw};
use pumice_platform::error::ResourceError;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, fstatfs};

use super::on_demand;

/// `DMA_BUF_MAGIC` of linux/magic.h: the type of the file system that DMA-bufs are in.
const DMA_BUF_MAGIC: u64 = 0x444d_4142;

/// A part of a file, mapped into this process.
#[derive(Debug)]
pub struct FileMapping {
    map: MmapRaw,
    /// No process can shorten the file.
    is_fixed: bool,
}

impl FileMapping {
    /// Maps `length` bytes from `offset` of a file, for writing too with `is_written`.
    ///
    /// # Errors
    /// Fails with `Invalid` for no bytes, or more than the file has, and with `NotSupported` if the file is
    /// not open or cannot be mapped, as GPUs' DMA-bufs, or if another process could shorten it and the kernel
    /// does not report that.
    pub fn new(
        file: BorrowedFd<'_>,
        offset: u64,
        length: u64,
        is_written: bool,
    ) -> Result<FileMapping, ResourceError> {
        let number = file.as_raw_fd();
        let about = fstat(file)
            .map_err(|error| unsupported(format!("descriptor {number} is not an open file ({error})")))?;
        let is_dma_buf = fstatfs(file).is_ok_and(|system| system.f_type as u64 == DMA_BUF_MAGIC);
        let end = offset.checked_add(length).filter(|_| length > 0);
        let size = u64::try_from(about.st_size).unwrap_or(0);
        if end.is_none_or(|end| !is_dma_buf && size > 0 && end > size) {
            return Err(ResourceError::invalid(format!(
                "{length} bytes at offset {offset} of descriptor {number}, which has {size}"
            )));
        }
        let is_fixed =
            is_dma_buf || fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_fixed && !on_demand::is_available() {
            return Err(unsupported(format!(
                "another process can shorten the file of descriptor {number}, and this kernel lets nothing \
                 find that out: seal it with F_SEAL_SHRINK"
            )));
        }
        let bytes = usize::try_from(length).map_err(|_| ResourceError::invalid("2^64 bytes of a file"))?;
        let mut options = MmapOptions::new();
        options.offset(offset).len(bytes);
        let map = if is_written { options.map_raw(number) } else { options.map_raw_read_only(number) };
        let map = map.map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => unsupported(format!(
                "descriptor {number} is not open for {}",
                if is_written { "reading and writing, as LOCAL_WRITE needs" } else { "reading" }
            )),
            _ => unsupported(format!(
                "the memory of descriptor {number} cannot be mapped into this process ({error}): a software \
                 device reaches no memory of GPUs or other devices that they do not show to processes"
            )),
        })?;
        Ok(FileMapping { map, is_fixed })
    }

    /// Returns the address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.map.as_ptr().expose_provenance() as u64
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.map.len() as u64
    }

    /// Reports whether no page of it can vanish.
    pub(super) const fn is_fixed(&self) -> bool {
        self.is_fixed
    }
}

fn unsupported(what: String) -> ResourceError {
    ResourceError::NotSupported { what: what.into() }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    use std::os::fd::AsFd as _;

    use pumice_transport::host::{MemoryError, RemoteKey};
    use pumice_transport::types::Access;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};

    use super::super::{MappingCheck::Assumed, RegionTable};
    use super::*;

    fn memory(bytes: u64) -> File {
        let file = File::from(memfd_create("pumice-test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn peers_reach_the_bytes_of_a_file_and_nothing_beside_them() {
        let mut file = memory(0x3000);
        file.seek(SeekFrom::Start(0x1010)).unwrap();
        file.write_all(b"stone").unwrap();
        let mapping = FileMapping::new(file.as_fd(), 0x1010, 64, true).unwrap();
        let mut table = RegionTable::new(4);
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let keys = table.register_file(1, mapping, 0x5000, rights).unwrap();
        let key = RemoteKey { pd: 1, rkey: keys.rkey, qpn: pumice_transport::wire::Qpn::new(2) };
        let mut found = [0; 5];
        table.remote_read(key, 0x5000, &mut found, Assumed).unwrap();
        assert_eq!(&found, b"stone");
        table.remote_write(key, 0x5002, b"age", Assumed).unwrap();
        file.seek(SeekFrom::Start(0x1010)).unwrap();
        file.read_exact(&mut found).unwrap();
        assert_eq!(&found, b"stage");
        assert_eq!(table.remote_write(key, 0x503e, b"age", Assumed), Err(MemoryError::OutOfRange));
        assert!(!table.region(keys.handle).unwrap().stays_mapped, "its file may be shortened");
        // The mapping exists, and the program lives.
        file.set_len(0).unwrap();
        assert_eq!(table.remote_read(key, 0x5000, &mut found, Assumed), Err(MemoryError::NotMapped));
        table.deregister(keys.handle).unwrap();
        assert_eq!(table.remote_read(key, 0x5000, &mut found, Assumed), Err(MemoryError::UnknownKey));
    }

    #[test]
    fn a_file_that_cannot_be_shortened_is_memory_like_any_other() {
        let file = memory(0x1000);
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let mapping = FileMapping::new(file.as_fd(), 0, 0x1000, true).unwrap();
        let mut table = RegionTable::new(4);
        let keys = table.register_file(1, mapping, 0, Access::LOCAL_WRITE).unwrap();
        assert!(table.region(keys.handle).unwrap().stays_mapped);
        // SAFETY: it is refused.
        let changed = unsafe { table.rereg(keys.handle, Default::default()) };
        assert_eq!(changed.unwrap_err().errno(), libc::EINVAL, "a registration of a file stays what it is");
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_in_a_sentence() {
        let file = memory(0x1000);
        let read_only = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let refused = |file: BorrowedFd<'_>, offset, length| {
            let error = FileMapping::new(file, offset, length, true).unwrap_err();
            (error.errno(), error.to_string())
        };
        for (file, offset, length, errno, why) in [
            (file.as_fd(), 0, 0, libc::EINVAL, "0 bytes at offset 0"),
            (file.as_fd(), 0x800, 0x801, libc::EINVAL, "which has 4096"),
            (file.as_fd(), u64::MAX, 2, libc::EINVAL, "2 bytes at offset 18446744073709551615"),
            (socket.as_fd(), 0, 8, libc::EOPNOTSUPP, "cannot be mapped into this process (No such device"),
            (read_only.as_fd(), 0, 8, libc::EOPNOTSUPP, "is not open for reading and writing"),
        ] {
            let (found, sentence) = refused(file, offset, length);
            assert_eq!(found, errno, "{sentence}");
            assert!(sentence.contains(why), "{sentence}");
        }
        FileMapping::new(read_only.as_fd(), 0, 8, false).unwrap();
    }
}
