//! The operating system itself. Its calls are made whole: threads are cancelled elsewhere.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, sock_filter};
use pumice_ground::clock;
use pumice_ground::outside::cancellation::{Uncancelled, whole};
use pumice_ground::outside::interface::{self, interfaces};
use pumice_ground::outside::unsignalled::within_limit;
use pumice_ground::outside::{self, files};
use pumice_ports::{PortError, UdpConfig};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr};
use socket2::{Domain, SockAddr, Socket, Type};

use super::{About, Guard};
use crate::datagram::{self, Datagram};

/// The socket of a process in the group of a UDP port.
pub(crate) use pumice_ports::UdpPort as GroupPort;

/// A file that several processes have open.
#[derive(Debug)]
pub(crate) struct File(fs::File);

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        File(file)
    }
}

impl File {
    /// What the file system says about it.
    pub(crate) fn about(&self) -> io::Result<About> {
        self.0.metadata().map(about)
    }

    /// Reads what there is at `at`, at most the buffer full.
    #[inline]
    pub(crate) fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        whole(|| self.0.read_at(bytes, at))
    }

    /// Reads the buffer full.
    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        whole(|| self.0.read_exact_at(bytes, at))
    }

    /// Writes all of the bytes.
    #[inline]
    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        whole(|| within_limit(|| self.0.write_all_at(bytes, at)))
    }

    /// Makes the file as long as this.
    pub(crate) fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        within_limit(|| self.0.set_len(length_bytes))
    }

    /// Sets or asks for a lock: fcntl(2) with one of the commands for locks of open files.
    #[inline]
    pub(crate) fn control_lock(&self, command: c_int, request: &mut libc::flock) -> io::Result<()> {
        if ![libc::F_OFD_SETLK, libc::F_OFD_GETLK].contains(&command) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let request: *mut libc::flock = request;
        // SAFETY: both commands take a lock, which `request` is, and which lives until the call is over.
        let status = whole(|| unsafe { libc::fcntl(self.0.as_raw_fd(), command, request) });
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Its descriptor, for the code that maps it.
    pub(super) fn descriptor(&self) -> &fs::File {
        &self.0
    }
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct OpenFolder {
    opened: fs::File,
    /// Leads to the opened folder in path names, which calls about sockets need.
    way: PathBuf,
}

impl OpenFolder {
    /// Opens a folder, not by way of a symbolic link.
    pub(crate) fn open(path: &Path) -> io::Result<OpenFolder> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let opened = files::options().read(true).custom_flags(flags).open(path)?;
        // systemd-tmpfiles, which removes old files from /tmp, leaves out a folder that a process has locked.
        // Without the lock nothing else changes.
        let _ = flock(&opened, FlockOperation::NonBlockingLockShared);
        let way = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
        let is_same = match (files::about(&way), opened.metadata()) {
            (Ok(through), Ok(about)) => (through.dev(), through.ino()) == (about.dev(), about.ino()),
            _ => false,
        };
        // Without /proc the name has to do.
        let way = if is_same { way } else { path.to_owned() };
        Ok(OpenFolder { opened, way })
    }

    /// What the file system says about it.
    pub(crate) fn about(&self) -> io::Result<About> {
        self.opened.metadata().map(about)
    }

    /// Sets its access rights, which only its owner may do.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.opened.set_permissions(Permissions::from_mode(mode))
    }

    /// A path to the folder for as long as this is open, also if the folder has been renamed.
    pub(crate) fn way(&self) -> PathBuf {
        // With the dot it is the folder itself, and not the link of /proc, that is opened.
        self.way.join(".")
    }

    /// Opens a file of this folder, also if the folder has been renamed. Makes the file if it is missing.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        // NONBLOCK: a FIFO put there must not stop this process.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(&self.opened, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File(fs::File::from(opened)))
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        files::remove(self.way.join(name))
    }

    /// The names of all entries, as far as they are text.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        list_folder(&self.way)
    }

    /// The address of a socket in the folder. It is short, as it has to be (108 bytes), however long the
    /// folder's own name is.
    fn address(&self, name: &str) -> io::Result<SockAddr> {
        SockAddr::unix(self.way.join(name))
    }
}

/// A unix datagram socket. The kernel tells it the sender's user.
#[derive(Debug)]
pub(crate) struct DatagramSocket(Socket);

impl DatagramSocket {
    pub(crate) fn new() -> io::Result<DatagramSocket> {
        let socket = Socket::new(Domain::UNIX, Type::DGRAM, None)?;
        socket.set_passcred(true)?;
        Ok(DatagramSocket(socket))
    }

    /// Sets how much may be on its way.
    pub(crate) fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }

    /// Gives it a name in a folder, by which this user may send to it.
    pub(crate) fn bind(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        self.0.bind(&folder.address(name)?)?;
        // The process's umask may have left no right to send to it.
        files::set_rights(folder.way.join(name), Permissions::from_mode(0o600))
    }

    /// Makes the socket of a name its peer; fails if that name leads to none.
    pub(crate) fn connect(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        let to = folder.address(name)?;
        whole(|| self.0.connect(&to))
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
        whole(|| self.0.send_to_vectored_with_flags(&parts, &to, flags)).map(|_| ())
    }

    /// Sends one datagram with a descriptor to the socket of a name, without waiting.
    pub(crate) fn send_descriptor(
        &self,
        folder: &OpenFolder,
        name: &str,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let to = SocketAddrUnix::new(folder.way.join(name))?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg_addr(&self.0, &to, &[IoSlice::new(bytes)], &mut control, flags)?;
        Ok(())
    }

    /// Takes a datagram if there is one.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        datagram::receive(self.0.as_raw_fd(), buffer)
    }

    /// The number of the socket, which the kernel gives to no other.
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

fn about(metadata: fs::Metadata) -> About {
    About {
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

/// Whether a guard is in force.
#[inline]
pub(crate) const fn guards(_guard: Guard) -> bool {
    true
}

/// Makes a folder that only its owner may use.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// The names in a folder, as far as they are text.
pub(crate) fn list_folder(path: &Path) -> io::Result<Vec<String>> {
    let _whole = Uncancelled::begin();
    let listing = files::list(path)?;
    Ok(listing.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// What the file system says about what a path leads to.
pub(crate) fn about_path(path: &Path) -> io::Result<About> {
    files::about(path).map(about)
}

/// Whether there is something of this name, be it a link to nothing.
pub(crate) fn is_name_taken(path: &Path) -> bool {
    files::about_name(path).is_ok()
}

/// Removes an empty folder.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    files::remove_folder(path)
}

/// What a file of the system's says, such as one in /proc.
pub(crate) fn read_text(path: &str) -> Option<String> {
    whole(|| files::fact_text(path).ok())
}

/// The processes of a user that /proc shows.
pub(crate) fn processes_of(uid: u32) -> Vec<u32> {
    let _whole = Uncancelled::begin();
    let entries = files::list("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        (entry.metadata().ok()?.uid() == uid).then_some(pid)
    };
    entries.filter_map(process).collect()
}

/// A path without links in it; itself if that cannot be told.
pub(crate) fn real_path(path: &Path) -> PathBuf {
    files::real_path(path).unwrap_or_else(|_| path.to_owned())
}

/// The descriptors of a process: paths that lead to what they are open for, and what /proc calls that.
pub(crate) fn descriptors_of(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    let _whole = Uncancelled::begin();
    let entries = files::list(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), files::link(entry.path()).ok()?))).collect()
}

/// Whether another socket has the UDP port and address: a bind without SO_REUSEPORT finds out.
pub(crate) fn is_port_taken(config: &UdpConfig) -> bool {
    let alone = UdpConfig { reuse_port: false, ..config.clone() };
    matches!(GroupPort::bind(&alone), Err(PortError::Taken { .. }))
}

/// Whether a path leads to something.
pub(crate) fn exists(path: &Path) -> bool {
    path.exists()
}

/// Removes the name of a file.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    files::remove(path)
}

/// The time, on a clock that never goes back.
#[inline]
pub(crate) fn now() -> Instant {
    outside::now()
}

/// The same clock in nanoseconds since a beginning that all processes of a host share.
pub(crate) fn monotonic_ns() -> u64 {
    clock::monotonic_ns()
}

/// Lets time pass.
pub(crate) fn sleep(duration: Duration) {
    whole(|| outside::sleep(duration));
}

/// Lets others have the processor.
pub(crate) fn idle() {
    outside::idle();
}

/// A number that this process has not had before.
pub(crate) fn next_number() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

/// The number of this process.
#[inline]
pub(crate) fn process_id() -> u32 {
    outside::process::number()
}

/// The user whose files and sockets this process makes.
pub(crate) fn effective_uid() -> u32 {
    outside::process::effective_user()
}

/// The user that the kernel names as the sender of this process's datagrams.
pub(crate) fn real_uid() -> u32 {
    outside::process::real_user()
}

/// The number of the namespace of a kind (`net`, `pid`) that this thread is in; 0 without /proc.
pub(crate) fn namespace(kind: &str) -> u64 {
    ["thread-self", "self"]
        .iter()
        .find_map(|who| files::about(format!("/proc/{who}/ns/{kind}")).ok())
        .map_or(0, |namespace| namespace.ino())
}

/// The line in which /proc describes a process.
pub(crate) fn process_status(pid: u32) -> Option<String> {
    whole(|| files::fact_text(format!("/proc/{pid}/stat")).ok())
}

/// The kernel's table of UDP sockets: `udp` or `udp6`.
pub(crate) fn udp_table(name: &str) -> Option<String> {
    // The thread's namespace, which is not always the process's.
    let read = |folder: &str| whole(|| files::fact_text(format!("{folder}/{name}")).ok());
    read("/proc/thread-self/net").or_else(|| read("/proc/net"))
}

/// All addresses of this host.
pub(crate) fn host_addresses() -> Vec<IpAddr> {
    let interfaces = interfaces().unwrap_or_default();
    interfaces.into_iter().flat_map(|interface| interface.addresses).map(|(address, _)| address).collect()
}

/// Whether an address is one of this host's.
pub(crate) fn is_host_address(address: IpAddr) -> bool {
    interface::is_local(address)
}

/// The number by which the kernel's tables name a socket.
pub(crate) fn socket_inode(port: &GroupPort) -> io::Result<u64> {
    let socket = port.as_fd().try_clone_to_owned()?;
    fs::File::from(socket).metadata().map(|about| about.ino())
}

/// Gives a program to the group of a socket: it chooses the socket that gets a datagram.
pub(crate) fn attach_program(fd: RawFd, program: &mut [sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let whole = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the program is a live array of the length given, and the kernel copies it.
    let status = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF as c_int,
            (&raw const whole).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
