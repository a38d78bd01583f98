//! The test whether two processes of this user could share a ring here: one process does once everything that
//! the two would do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use pumice_platform::error::ResourceError;
use pumice_platform::outside::event_fd::EventFd;
use pumice_transport::path::ROCE_PORT;

use crate::files::folder::{Folder, file_name};
use crate::files::runtime_folders::runtime_folder;
use crate::files::sockets::{Sockets, querier_name};
use crate::members::error::SharingError;
use crate::members::process;
use crate::ring::{Geometry, RingMemory};
use crate::system::{DatagramSocket, RingFile, RingPages};

/// Size of a ring: that of the first rings of a process.
const GEOMETRY: Option<Geometry> = Geometry::new(4096, 1 << 20);
/// Value that is written through one mapping and read through the other.
const WORD: u64 = 0x7075_6d69_6365;

/// The obstacle that keeps processes of this user from sharing memory here. Their packets go by UDP then.
#[derive(Debug, thiserror::Error)]
pub enum RingObstacle {
    /// Memory without a name cannot be made, sealed or mapped.
    #[error("memory for a ring cannot be made: {0}")]
    Memory(io::Error),
    /// There is no folder in which the private sockets may have names.
    #[error("{0}")]
    Folder(SharingError),
    /// A descriptor does not come through a private socket.
    #[error("a descriptor cannot be passed through a private socket: {0}")]
    Passing(io::Error),
    /// The memory that came through the socket cannot be mapped, or is not the same.
    #[error("memory that came through a private socket cannot be used: {0}")]
    Mapping(io::Error),
    /// The eventfd that came through the socket cannot be used.
    #[error("an eventfd that came through a private socket cannot be used: {0}")]
    Bell(io::Error),
}

/// Makes the memory of a ring and the eventfd that wakes its consumer, passes both through a private socket,
/// and uses what came. Takes about a millisecond, and leaves nothing behind.
///
/// # Errors
/// Fails with the first step that is refused.
pub fn try_ring() -> Result<(), RingObstacle> {
    let geometry = GEOMETRY.ok_or_else(|| RingObstacle::Memory(io::ErrorKind::Unsupported.into()))?;
    let (pages, file) = RingPages::create(geometry).map_err(RingObstacle::Memory)?;
    let bell = EventFd::new().map_err(|error| RingObstacle::Bell(errno(&error)))?;
    let folder = runtime_folder().and_then(|folder| Folder::open(&folder)).map_err(RingObstacle::Folder)?;
    let passage = Passage::open(folder).map_err(RingObstacle::Passing)?;

    let received = passage.pass(file.into_descriptor().as_fd()).map_err(RingObstacle::Passing)?;
    let same = RingPages::open(&RingFile::new(received), geometry).map_err(RingObstacle::Mapping)?;
    let last = geometry.words() - 1;
    pages.word(last).store(WORD, Ordering::Release);
    if same.word(last).load(Ordering::Acquire) != WORD {
        let other = io::Error::other("the two mappings are not the same memory");
        return Err(RingObstacle::Mapping(other));
    }

    let received = passage.pass(bell.as_fd()).map_err(RingObstacle::Passing)?;
    EventFd::of(received).map_err(RingObstacle::Bell)?.set();
    if bell.clear() { Ok(()) } else { Err(RingObstacle::Bell(io::ErrorKind::InvalidData.into())) }
}

fn errno(error: &ResourceError) -> io::Error {
    match error {
        ResourceError::Os { errno, .. } => io::Error::from_raw_os_error(*errno),
        other => io::Error::other(other.to_string()),
    }
}

/// A socket, and another one to which it sends by name, as processes send to each other.
struct Passage {
    sockets: Sockets,
    from: DatagramSocket,
    to: DatagramSocket,
    /// Number in the socket's name.
    number: u64,
}

impl Passage {
    fn open(folder: Folder) -> io::Result<Passage> {
        let sockets = Sockets::new(folder, file_name(ROCE_PORT));
        let (from, to) = (DatagramSocket::new()?, DatagramSocket::new()?);
        // The name is like those of sockets for answers: if this process is killed now, it is removed with
        // theirs.
        let number = to.inode()?;
        sockets.name_querier(&to, number)?;
        Ok(Passage { sockets, from, to, number })
    }

    fn pass(&self, descriptor: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let name = querier_name(&self.sockets.stem, self.number);
        self.from.send_descriptor(self.sockets.folder.opened(), &name, b"trial", descriptor)?;
        let received = self.to.receive(&mut [0; 8])?;
        // Unix datagrams have arrived when sendmsg returns.
        let received = received.ok_or_else(|| io::Error::other("nothing came"))?;
        if received.uid != Some(process::real_uid()) {
            return Err(io::Error::other("the kernel names another user as the sender"));
        }
        received.descriptor.ok_or_else(|| io::Error::other("the message came without it"))
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.sockets.remove_querier(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_can_be_had_and_nothing_is_left() {
        try_ring().unwrap();
        let folder = Folder::open(&runtime_folder().unwrap()).unwrap();
        let passage = Passage::open(folder).unwrap();
        let name = querier_name(&passage.sockets.stem, passage.number);
        let has_name = || passage.sockets.folder.names().contains(&name);
        assert!(has_name());
        passage.sockets.remove_querier(passage.number);
        assert!(!has_name());
        // Without the name no descriptor comes.
        let (_, file) = RingPages::create(GEOMETRY.unwrap()).unwrap();
        assert!(passage.pass(file.into_descriptor().as_fd()).is_err());
    }
}
