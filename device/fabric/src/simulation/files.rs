//! Files of the model: names, contents, mapped memory, and the locks of open files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use libc::c_int;

use super::kernel::{Description, DescriptionId, Fd, Kernel, Pid, SimProcessState};
use crate::system::FileInfo;

/// Position of the lock on a registry: the first of the bytes that stand for locks.
const REGISTRY_LOCK: i64 = 1 << 30;

/// Size of a page. A killed process may have written some pages of a longer write.
pub(crate) const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InodeKind {
    Folder,
    File,
    Socket,
}

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) kind: InodeKind,
    uid: u32,
    mode: u32,
    names: u64,
    bytes: Vec<u8>,
    memory: Option<Arc<[AtomicU64]>>,
}

#[derive(Debug, Clone, Copy)]
struct FileLock {
    inode: u64,
    holder: DescriptionId,
    first: i64,
    last: i64,
    exclusive: bool,
}

#[derive(Debug, Default)]
pub(super) struct SimFiles {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: BTreeMap<PathBuf, u64>,
    locks: Vec<FileLock>,
    /// Number of changes of locks so far: after each, a process that waits for a lock tries again.
    pub(super) lock_changes: u64,
}

impl SimFiles {
    pub(super) fn drop_locks_of(&mut self, holder: DescriptionId) {
        let before = self.locks.len();
        self.locks.retain(|lock| lock.holder != holder);
        self.lock_changes += u64::from(self.locks.len() != before);
    }

    fn conflict(&self, asked: &FileLock) -> Option<FileLock> {
        let clashes = |lock: &&FileLock| {
            lock.inode == asked.inode
                && lock.holder != asked.holder
                && lock.first <= asked.last
                && asked.first <= lock.last
                && (lock.exclusive || asked.exclusive)
        };
        self.locks.iter().find(clashes).copied()
    }

    /// Removes a range from the locks of a holder.
    fn unlock(&mut self, range: &FileLock) {
        let mut kept = Vec::with_capacity(self.locks.len() + 1);
        for lock in &self.locks {
            let apart = lock.inode != range.inode
                || lock.holder != range.holder
                || lock.last < range.first
                || range.last < lock.first;
            if apart {
                kept.push(*lock);
                continue;
            }
            self.lock_changes += 1;
            if lock.first < range.first {
                kept.push(FileLock { last: range.first - 1, ..*lock });
            }
            if lock.last > range.last {
                kept.push(FileLock { first: range.last + 1, ..*lock });
            }
        }
        self.locks = kept;
    }

    pub(super) fn lock_count(&self) -> usize {
        self.locks.len()
    }

    fn add(&mut self, inode: u64, path: &Path, kind: InodeKind, uid: u32, mode: u32) {
        let kind_bits = match kind {
            InodeKind::Folder => libc::S_IFDIR,
            InodeKind::File => libc::S_IFREG,
            InodeKind::Socket => libc::S_IFSOCK,
        };
        let mode = mode | kind_bits;
        self.inodes.insert(inode, Inode { kind, uid, mode, names: 1, bytes: Vec::new(), memory: None });
        self.names.insert(path.to_owned(), inode);
    }
}

fn errno(number: c_int) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl Kernel {
    /// Adds a user's runtime folder, which exists before the user's processes.
    pub(super) fn add_user_folder(&mut self, path: &Path, uid: u32) {
        let inode = self.unique();
        self.files.add(inode, path, InodeKind::Folder, uid, 0o700);
    }

    /// Checks that every folder on the way admits this user. Folders that the model does not know do.
    fn search(&self, pid: Pid, path: &Path) -> io::Result<()> {
        let uid = self.uid(pid);
        for folder in path.ancestors().skip(1) {
            let Some(inode) = self.files.names.get(folder).and_then(|at| self.files.inodes.get(at)) else {
                continue;
            };
            if inode.uid != uid && inode.mode & 0o001 == 0 {
                return Err(errno(libc::EACCES));
            }
        }
        Ok(())
    }

    /// Checks that this user may make and remove names in the folder of a path.
    fn may_change_folder(&self, pid: Pid, path: &Path) -> io::Result<()> {
        self.search(pid, path)?;
        let folder = path.parent().and_then(|folder| self.files.names.get(folder));
        match folder.and_then(|at| self.files.inodes.get(at)) {
            Some(inode) if inode.uid != self.uid(pid) && inode.mode & 0o002 == 0 => Err(errno(libc::EACCES)),
            _ => Ok(()),
        }
    }

    pub(crate) fn create_folder(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.may_change_folder(pid, path)?;
        if self.files.names.contains_key(path) {
            return Err(errno(libc::EEXIST));
        }
        let (inode, uid) = (self.unique(), self.uid(pid));
        self.files.add(inode, path, InodeKind::Folder, uid, 0o700);
        Ok(())
    }

    pub(crate) fn open_folder(&mut self, pid: Pid, path: &Path) -> io::Result<Fd> {
        self.search(pid, path)?;
        let inode = *self.files.names.get(path).ok_or_else(|| errno(libc::ENOENT))?;
        let about = self.files.inodes.get(&inode).ok_or_else(|| errno(libc::ENOENT))?;
        if about.kind != InodeKind::Folder {
            return Err(errno(libc::ENOTDIR));
        }
        if about.uid != self.uid(pid) && about.mode & 0o004 == 0 {
            return Err(errno(libc::EACCES));
        }
        self.describe(pid, Description::File { inode })
    }

    /// Returns the path of an entry of an open folder.
    pub(crate) fn path_in(&self, pid: Pid, folder: Fd, name: &str) -> io::Result<PathBuf> {
        let folder = self.inode_of(pid, folder)?;
        let path =
            self.files.names.iter().find(|(_, inode)| **inode == folder).map(|(path, _)| path.join(name));
        path.ok_or_else(|| errno(libc::ENOENT))
    }

    /// Opens a file of an open folder, and creates it if it does not exist.
    pub(crate) fn open_file(&mut self, pid: Pid, folder: Fd, name: &str) -> io::Result<Fd> {
        let path = self.path_in(pid, folder, name)?;
        let inode = match self.files.names.get(&path) {
            Some(&inode) => {
                let about = &self.files.inodes[&inode];
                if about.kind != InodeKind::File {
                    return Err(errno(libc::ENXIO));
                }
                if about.uid != self.uid(pid) && about.mode & 0o006 != 0o006 {
                    return Err(errno(libc::EACCES));
                }
                inode
            }
            None => {
                self.may_change_folder(pid, &path)?;
                let (inode, uid) = (self.unique(), self.uid(pid));
                self.files.add(inode, &path, InodeKind::File, uid, 0o600);
                inode
            }
        };
        self.describe(pid, Description::File { inode })
    }

    /// Creates the name of a socket.
    pub(super) fn add_socket_name(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.may_change_folder(pid, path)?;
        if self.files.names.contains_key(path) {
            return Err(errno(libc::EADDRINUSE));
        }
        let (inode, uid) = (self.unique(), self.uid(pid));
        self.files.add(inode, path, InodeKind::Socket, uid, 0o700);
        Ok(())
    }

    /// Checks that this user may send to the socket of a name.
    pub(super) fn may_send_to(&self, pid: Pid, path: &Path) -> io::Result<()> {
        self.search(pid, path)?;
        let inode = self.files.names.get(path).and_then(|at| self.files.inodes.get(at));
        match inode {
            None => Err(errno(libc::ENOENT)),
            Some(inode) if inode.uid != self.uid(pid) && inode.mode & 0o002 == 0 => Err(errno(libc::EACCES)),
            Some(_) => Ok(()),
        }
    }

    pub(crate) fn remove_file(&mut self, pid: Pid, path: &Path) -> io::Result<()> {
        self.may_change_folder(pid, path)?;
        let inode = self.files.names.remove(path).ok_or_else(|| errno(libc::ENOENT))?;
        if let Some(inode) = self.files.inodes.get_mut(&inode) {
            inode.names -= 1;
        }
        self.network.forget_path(path);
        Ok(())
    }

    pub(crate) fn list_folder(&self, pid: Pid, path: &Path) -> io::Result<Vec<String>> {
        self.search(pid, &path.join("."))?;
        if !self.files.names.contains_key(path) {
            return Err(errno(libc::ENOENT));
        }
        let inside = self.files.names.keys().filter(|each| each.parent() == Some(path));
        Ok(inside.filter_map(|each| each.file_name()?.to_str().map(str::to_owned)).collect())
    }

    pub(crate) fn exists(&self, pid: Pid, path: &Path) -> bool {
        self.search(pid, path).is_ok() && self.files.names.contains_key(path)
    }

    fn inode_of(&self, pid: Pid, fd: Fd) -> io::Result<u64> {
        match self.descriptions.get(&self.description_id(pid, fd)?) {
            Some(Description::File { inode }) => Ok(*inode),
            _ => Err(errno(libc::EBADF)),
        }
    }

    fn inode(&mut self, pid: Pid, fd: Fd) -> io::Result<&mut Inode> {
        let inode = self.inode_of(pid, fd)?;
        self.files.inodes.get_mut(&inode).ok_or_else(|| errno(libc::EBADF))
    }

    pub(crate) fn about(&self, pid: Pid, fd: Fd) -> io::Result<FileInfo> {
        let number = self.inode_of(pid, fd)?;
        self.about_inode(number)
    }

    pub(crate) fn about_path(&self, pid: Pid, path: &Path) -> io::Result<FileInfo> {
        self.search(pid, path)?;
        let number = self.files.names.get(path).ok_or_else(|| errno(libc::ENOENT))?;
        self.about_inode(*number)
    }

    fn about_inode(&self, number: u64) -> io::Result<FileInfo> {
        let inode = self.files.inodes.get(&number).ok_or_else(|| errno(libc::EBADF))?;
        Ok(FileInfo {
            is_file: inode.kind == InodeKind::File,
            is_folder: inode.kind == InodeKind::Folder,
            uid: inode.uid,
            mode: inode.mode,
            names: inode.names,
            length_bytes: inode.bytes.len() as u64,
            device: 1,
            inode: number,
        })
    }

    pub(crate) fn read_at(&mut self, pid: Pid, fd: Fd, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let inode = self.inode(pid, fd)?;
        let from = inode.bytes.get(at as usize..).unwrap_or_default();
        let count = from.len().min(bytes.len());
        bytes[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    pub(crate) fn write_at(&mut self, pid: Pid, fd: Fd, bytes: &[u8], at: u64) -> io::Result<()> {
        let inode = self.inode(pid, fd)?;
        let (at, end) = (at as usize, at as usize + bytes.len());
        if inode.bytes.len() < end {
            inode.bytes.resize(end, 0);
        }
        inode.bytes[at..end].copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn set_len(&mut self, pid: Pid, fd: Fd, length_bytes: u64) -> io::Result<()> {
        self.inode(pid, fd)?.bytes.resize(length_bytes as usize, 0);
        Ok(())
    }

    pub(crate) fn map(&mut self, pid: Pid, fd: Fd, words: usize) -> io::Result<Arc<[AtomicU64]>> {
        let inode = self.inode(pid, fd)?;
        let memory = inode.memory.get_or_insert_with(|| (0..words).map(|_| AtomicU64::new(0)).collect());
        if memory.len() < words { Err(errno(libc::ENOSPC)) } else { Ok(Arc::clone(memory)) }
    }

    /// Reports whether a stopped process, or the child of a fork, holds the lock of a registry.
    pub(super) fn registry_is_held_by_a_stopped_process(&self) -> bool {
        let held = |lock: &&FileLock| lock.first <= REGISTRY_LOCK && REGISTRY_LOCK <= lock.last;
        let stands =
            |lock: &FileLock| self.holders(lock.holder).iter().any(|state| *state != SimProcessState::Runs);
        self.files.locks.iter().filter(held).any(stands)
    }

    /// Models fcntl(2) with F_OFD_SETLK or F_OFD_GETLK.
    pub(crate) fn control_lock(
        &mut self,
        pid: Pid,
        fd: Fd,
        command: c_int,
        request: &mut libc::flock,
    ) -> io::Result<()> {
        let (inode, holder) = (self.inode_of(pid, fd)?, self.description_id(pid, fd)?);
        let kind = c_int::from(request.l_type);
        let (first, last) = (request.l_start, request.l_start + request.l_len - 1);
        let asked = FileLock { inode, holder, first, last, exclusive: kind == libc::F_WRLCK };
        if command == libc::F_OFD_GETLK {
            match self.files.conflict(&asked) {
                None => request.l_type = libc::F_UNLCK as _,
                Some(lock) => {
                    request.l_type = if lock.exclusive { libc::F_WRLCK } else { libc::F_RDLCK } as _;
                    (request.l_start, request.l_len) = (lock.first, lock.last - lock.first + 1);
                }
            }
            return Ok(());
        }
        if kind != libc::F_UNLCK && self.files.conflict(&asked).is_some() {
            return Err(errno(libc::EAGAIN));
        }
        self.files.unlock(&asked);
        if kind != libc::F_UNLCK {
            self.files.locks.push(asked);
        }
        Ok(())
    }
}
