//! The operating system itself. Its calls are not interrupted by thread cancellation, which takes effect
//! elsewhere.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::UdpConfig;
use libc::{c_int, sock_filter};
use pumice_platform::clock;
use pumice_platform::outside::interface::{self, interfaces};
use pumice_platform::outside::system_call::{Uncancelled, within_limit, without_cancellation};
use pumice_platform::outside::{self, files};
use pumice_platform::udp::PortError;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{FileInfo, Guard};
use crate::system::datagram::{self, Datagram};

/// The socket of a process in the group of a UDP port.
pub(crate) use crate::UdpPort as GroupPort;

/// A file that several processes have open.
#[derive(Debug)]
pub(crate) struct File(fs::File);

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        File(file)
    }
}

impl File {
    /// Returns the file's metadata.
    pub(crate) fn about(&self) -> io::Result<FileInfo> {
        self.0.metadata().map(about)
    }

    /// Reads from offset `at`, at most until the buffer is full.
    #[inline]
    pub(crate) fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        without_cancellation(|| self.0.read_at(bytes, at))
    }

    /// Reads until the buffer is full.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        without_cancellation(|| self.0.read_exact_at(bytes, at))
    }

    /// Writes all of the bytes.
    #[inline]
    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        without_cancellation(|| within_limit(|| self.0.write_all_at(bytes, at)))
    }

    /// Sets the length of the file.
    pub(crate) fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        within_limit(|| self.0.set_len(length_bytes))
    }

    /// Sets or queries a lock: fcntl(2) with one of the commands for locks of open files.
    #[inline]
    pub(crate) fn control_lock(&self, command: c_int, request: &mut libc::flock) -> io::Result<()> {
        if ![libc::F_OFD_SETLK, libc::F_OFD_GETLK].contains(&command) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let request: *mut libc::flock = request;
        // SAFETY: both commands take a lock, which `request` is, and which lives until the call is over.
        let status = without_cancellation(|| unsafe { libc::fcntl(self.0.as_raw_fd(), command, request) });
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Returns the descriptor, for the code that maps the file.
    pub(super) fn descriptor(&self) -> &fs::File {
        &self.0
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct OpenFolder {
    opened: fs::File,
    /// Path that leads to the opened folder, which calls about sockets need.
    proc_path: PathBuf,
}

impl OpenFolder {
    /// Opens a folder, not by way of a symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<OpenFolder> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let opened = files::options().read(true).custom_flags(flags).open(path)?;
        // systemd-tmpfiles, which removes old files from /tmp, skips a folder that a process has locked. The
        // lock has no other effect.
        let _ = flock(&opened, FlockOperation::NonBlockingLockShared);
        let proc_path = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let is_same = match (files::about(&proc_path), opened.metadata()) {
            (Ok(through), Ok(about)) => (through.dev(), through.ino()) == (about.dev(), about.ino()),
            _ => false,
        };
        // Without /proc the name has to be used.
        let proc_path = if is_same { proc_path } else { path.to_owned() };
        Ok(OpenFolder { opened, proc_path })
    }

    /// Returns the folder's metadata.
    pub(crate) fn about(&self) -> io::Result<FileInfo> {
        self.opened.metadata().map(about)
    }

    /// Sets the folder's access rights, which only its owner may do.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.opened.set_permissions(Permissions::from_mode(mode))
    }

    /// Returns a path to the folder that is valid while this is open, even if the folder has been renamed.
    pub(crate) fn proc_path(&self) -> PathBuf {
        // The dot makes this open the folder itself, and not the link below /proc.
        self.proc_path.join(".")
    }

    /// Opens a file of this folder, even if the folder has been renamed. Creates the file if it is missing.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        // NONBLOCK: a FIFO of that name must not block this process.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(&self.opened, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File(fs::File::from(opened)))
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        files::remove(self.proc_path.join(name))
    }

    /// Returns the names of all entries that are valid text.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        list_folder(&self.proc_path)
    }

    /// Returns the address of a socket in the folder. It is short, as it has to be (108 bytes), however long
    /// the folder's own name is.
    fn address(&self, name: &str) -> io::Result<SockAddr> {
        SockAddr::unix(self.proc_path.join(name))
    }
}

/// A unix datagram socket to which the kernel reports the sender's user.
#[derive(Debug)]
pub(crate) struct DatagramSocket(Socket);

impl DatagramSocket {
    pub(crate) fn new() -> io::Result<DatagramSocket> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        socket.set_passcred(true)?;
        Ok(DatagramSocket(socket))
    }

    /// Sets how many bytes may be in flight.
    pub(crate) fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }

    /// Gives the socket a name in a folder, by which this user may send to it.
    pub(crate) fn bind(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        self.0.bind(&folder.address(name)?)?;
        // The process's umask may have removed the right to send to it.
        files::set_rights(folder.proc_path.join(name), Permissions::from_mode(0o600))
    }

    /// Makes the socket of a name its peer; fails if that name leads to none.
    pub(crate) fn connect(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        let to = folder.address(name)?;
        without_cancellation(|| self.0.connect(&to))
    }

    /// Sends one datagram of two parts to the socket of a name, without waiting.
    pub(crate) fn send(
        &self,
        folder: &OpenFolder,
        name: &str,
        header: &[u8],
        bytes: &[u8],
    ) -> io::Result<()> {
        let parts = [IoSlice::new(header), IoSlice::new(bytes)];
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let to = folder.address(name)?;
        without_cancellation(|| self.0.send_to_vectored_with_flags(&parts, &to, flags)).map(|_| ())
    }

    /// Sends one datagram with a descriptor to the socket of a name, without waiting.
    pub(crate) fn send_descriptor(
        &self,
        folder: &OpenFolder,
        name: &str,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let to = SocketAddrUnix::new(folder.proc_path.join(name))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg_addr(&self.0, &to, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Receives a datagram if one is waiting.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        datagram::receive(self.0.as_raw_fd(), buffer)
    }

    /// Returns the inode number of the socket, which no other socket has.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        let socket = self.0.as_fd().try_clone_to_owned()?;
        fs::File::from(socket).metadata().map(|about| about.ino())
    }
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn about(metadata: fs::Metadata) -> FileInfo {
    FileInfo {
        is_file: metadata.is_file(),
        is_folder: metadata.is_dir(),
        uid: metadata.uid(),
        mode: metadata.mode(),
        names: metadata.nlink(),
        length_bytes: metadata.len(),
        device: metadata.dev(),
        inode: metadata.ino(),
    }
}

/// Reports whether a guard is in force.
#[inline]
pub(crate) const fn guards(_guard: Guard) -> bool {
    true
}

/// Makes a folder that only its owner may use.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns the names in a folder that are valid text.
pub(crate) fn list_folder(path: &Path) -> io::Result<Vec<String>> {
    let _uncancelled = Uncancelled::begin();
    let listing = files::list(path)?;
    Ok(listing.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// Returns the metadata of what a path leads to.
pub(crate) fn about_path(path: &Path) -> io::Result<FileInfo> {
    files::about(path).map(about)
}

/// Reports whether an entry of this name exists, even a dangling link.
pub(crate) fn is_name_taken(path: &Path) -> bool {
    files::about_name(path).is_ok()
}

/// Removes an empty folder.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    files::remove_folder(path)
}

/// Reads a file of the operating system, such as one in /proc.
pub(crate) fn read_text(path: &str) -> Option<String> {
    without_cancellation(|| files::fact_text(path).ok())
}

/// Returns the processes of a user that /proc shows.
pub(crate) fn processes_of(uid: u32) -> Vec<u32> {
    let _uncancelled = Uncancelled::begin();
    let entries = files::list("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() == uid).then_some(pid)
    };
    entries.filter_map(process).collect()
}

/// Returns the path without symbolic links; the path itself if it cannot be resolved.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    files::real_path(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the descriptors of a process: paths that lead to what they are open for, and /proc's names of
/// that.
pub(crate) fn descriptors_of(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    let _uncancelled = Uncancelled::begin();
    let entries = files::list(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), files::link(entry.path()).ok()?))).collect()
}

/// Reports whether another socket has the UDP port and address, by a bind without SO_REUSEPORT.
pub(crate) fn is_port_taken(config: &UdpConfig) -> bool {
    let alone = UdpConfig { reuse_port: false, ..config.clone() };
    matches!(GroupPort::bind(&alone), Err(PortError::Taken { .. }))
}

/// Reports whether a path leads to something.
pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}

/// Removes the name of a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    files::remove(path)
}

/// Returns the time on a monotonic clock.
#[inline]
pub(crate) fn now() -> Instant {
    outside::now()
}

/// Returns the time of the same clock in nanoseconds since an origin that all processes of a host share.
pub(crate) fn monotonic_ns() -> u64 {
    clock::monotonic_ns()
}

/// Sleeps for a duration.
pub(crate) fn sleep(duration: Duration) {
    without_cancellation(|| outside::sleep(duration));
}

/// Yields the processor to other threads.
pub(crate) fn idle() {
    outside::idle();
}

/// Returns a number that this process has not had before.
pub(crate) fn next_number() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the ID of this process.
#[inline]
pub(crate) fn process_id() -> u32 {
    outside::process::number()
}

/// Returns the user whose files and sockets this process makes.
pub(crate) fn effective_uid() -> u32 {
    outside::process::effective_user()
}

/// Returns the user that the kernel names as the sender of this process's datagrams.
pub(crate) fn real_uid() -> u32 {
    outside::process::real_user()
}

/// Returns the number of the namespace of a kind (`net`, `pid`) that this thread is in; 0 without /proc.
pub(crate) fn namespace(kind: &str) -> u64 {
    ["thread-self", "self"]
        .iter()
        .find_map(|who| files::about(format!("/proc/{who}/ns/{kind}")).ok())
        .map_or(0, |namespace| namespace.ino())
}

/// Returns the number of this thread's network namespace that the kernel assigns only once. `None` in a
/// simulated world, whose runs have namespaces of different numbers.
pub(crate) fn network_cookie() -> Option<u64> {
    if outside::world::is_in_world() { None } else { outside::process::network_cookie() }
}

/// Returns the line in which /proc describes a process.
pub(crate) fn process_status(pid: u32) -> Option<String> {
    without_cancellation(|| files::fact_text(format!("/proc/{pid}/stat")).ok())
}

/// Returns the kernel's table of UDP sockets: `udp` or `udp6`.
pub(crate) fn udp_table(name: &str) -> Option<String> {
    // The file is of the thread's namespace, which is not always the process's.
    let read = |folder: &str| without_cancellation(|| files::fact_text(format!("{folder}/{name}")).ok());
    read("/proc/thread-self/net").or_else(|| read("/proc/net"))
}

/// Returns all addresses of this host.
pub(crate) fn host_addresses() -> Vec<IpAddr> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.into_iter().flat_map(|interface| interface.addresses).map(|(address, _)| address).collect()
}

/// Reports whether an address is one of this host's.
pub(crate) fn is_host_address(address: IpAddr) -> bool {
    interface::is_local(address)
}

/// Returns the number by which the kernel's tables name a socket.
pub(crate) fn socket_inode(port: &GroupPort) -> io::Result<u64> {
    let socket = port.as_fd().try_clone_to_owned()?;
    fs::File::from(socket).metadata().map(|about| about.ino())
}

/// Attaches a program to the group of a socket: it chooses the socket that gets a datagram.
pub(crate) fn attach_program(fd: RawFd, program: &mut [sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let without_cancellation = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the program is a live array of the length given, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF as c_int,
            (&raw const without_cancellation).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
