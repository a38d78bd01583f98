//! The operating system in tests: the real one, or below a simulated process the model of one.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::{UdpConfig, UdpPort};
use libc::{c_int, sock_filter};
use pumice_model::port::Port;
use pumice_model::port::batch::{GsoBatch, PacketCost, Peer, PortLimits, ReceivedBatch, TransmitError};
use pumice_platform::udp::PortError;
use pumice_transport::path::Flow;

use super::{FileInfo, Guard, memory, real};
use crate::simulation::{
    self, Fd, Kernel, PAGE_BYTES, Packet, SocketName, TaskWait, call, is_simulated, observe,
};
use crate::system::datagram::Datagram;
use crate::system::medium::Medium;

/// A descriptor of a simulated process.
#[derive(Debug)]
pub(crate) struct Descriptor(pub(crate) Fd);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // A process that was killed has nothing to close any more.
        let _ = call(|kernel, pid| kernel.close(pid, self.0));
    }
}

#[derive(Debug)]
pub(crate) enum File {
    Real(real::File),
    Simulated(Descriptor),
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> File {
        File::Real(real::File::from(file))
    }
}

impl File {
    pub(crate) fn about(&self) -> io::Result<FileInfo> {
        match self {
            File::Real(file) => file.about(),
            File::Simulated(file) => call(|kernel, pid| kernel.about(pid, file.0)),
        }
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            File::Real(file) => file.read_at(bytes, at),
            // A page at a time: a reader may see some pages of a write and not the others.
            File::Simulated(file) => {
                let count = bytes.len().min(PAGE_BYTES - at as usize % PAGE_BYTES);
                call(|kernel, pid| kernel.read_at(pid, file.0, &mut bytes[..count], at))
            }
        }
    }

    pub(crate) fn read_exact_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        if let File::Real(file) = self {
            return file.read_exact_at(bytes, at);
        }
        let mut filled = 0;
        while filled < bytes.len() {
            match self.read_at(&mut bytes[filled..], at + filled as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(())
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let file = match self {
            File::Real(file) => return file.write_all_at(bytes, at),
            File::Simulated(file) => file,
        };
        let (mut rest, mut at) = (bytes, at);
        while !rest.is_empty() {
            let (page, next) = rest.split_at(rest.len().min(PAGE_BYTES - at as usize % PAGE_BYTES));
            call(|kernel, pid| kernel.write_at(pid, file.0, page, at))?;
            (rest, at) = (next, at + page.len() as u64);
        }
        Ok(())
    }

    pub(crate) fn set_len(&self, length_bytes: u64) -> io::Result<()> {
        match self {
            File::Real(file) => file.set_len(length_bytes),
            File::Simulated(file) => call(|kernel, pid| kernel.set_len(pid, file.0, length_bytes)),
        }
    }

    pub(crate) fn control_lock(&self, command: c_int, request: &mut libc::flock) -> io::Result<()> {
        match self {
            File::Real(file) => file.control_lock(command, request),
            File::Simulated(file) => call(|kernel, pid| kernel.control_lock(pid, file.0, command, request)),
        }
    }
}

#[derive(Debug)]
pub(crate) enum OpenFolder {
    Real(real::OpenFolder),
    Simulated(Descriptor),
}

impl OpenFolder {
    pub(crate) fn open(path: &Path) -> io::Result<OpenFolder> {
        if is_simulated() {
            let fd = call(|kernel, pid| kernel.open_folder(pid, path))?;
            return Ok(OpenFolder::Simulated(Descriptor(fd)));
        }
        real::OpenFolder::open(path).map(OpenFolder::Real)
    }

    pub(crate) fn about(&self) -> io::Result<FileInfo> {
        match self {
            OpenFolder::Real(folder) => folder.about(),
            OpenFolder::Simulated(folder) => call(|kernel, pid| kernel.about(pid, folder.0)),
        }
    }

    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        match self {
            OpenFolder::Real(folder) => folder.open_file(name).map(File::Real),
            OpenFolder::Simulated(folder) => {
                let fd = call(|kernel, pid| kernel.open_file(pid, folder.0, name))?;
                Ok(File::Simulated(Descriptor(fd)))
            }
        }
    }

    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match self {
            OpenFolder::Real(folder) => folder.remove(name),
            OpenFolder::Simulated(folder) => call(|kernel, pid| {
                let path = kernel.path_in(pid, folder.0, name)?;
                kernel.remove_file(pid, &path)
            }),
        }
    }

    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self {
            OpenFolder::Real(folder) => folder.set_mode(mode),
            OpenFolder::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn proc_path(&self) -> PathBuf {
        match self {
            OpenFolder::Real(folder) => folder.proc_path(),
            OpenFolder::Simulated(folder) => {
                call(|kernel, pid| kernel.path_in(pid, folder.0, "")).unwrap_or_default()
            }
        }
    }

    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        match self {
            OpenFolder::Real(folder) => folder.names(),
            OpenFolder::Simulated(folder) => call(|kernel, pid| {
                let path = kernel.path_in(pid, folder.0, "")?;
                kernel.list_folder(pid, &path)
            }),
        }
    }
}

#[derive(Debug)]
pub(crate) enum SharedMemory {
    Real(memory::SharedMemory),
    Simulated(Arc<[AtomicU64]>),
}

impl SharedMemory {
    pub(crate) fn map(file: &File, words: usize) -> io::Result<SharedMemory> {
        match file {
            File::Real(file) => memory::SharedMemory::map(file, words).map(SharedMemory::Real),
            File::Simulated(file) => {
                call(|kernel, pid| kernel.map(pid, file.0, words)).map(SharedMemory::Simulated)
            }
        }
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        match self {
            SharedMemory::Real(memory) => memory.words(),
            SharedMemory::Simulated(memory) => memory,
        }
    }
}

/// The socket of a process in the group of a UDP port.
#[expect(clippy::large_enum_variant, reason = "tests have few of them")]
#[derive(Debug)]
pub enum GroupPort {
    Real(UdpPort),
    Simulated(SimulatedUdp),
}

#[derive(Debug)]
pub struct SimulatedUdp {
    descriptor: Descriptor,
    address: IpAddr,
    port: u16,
}

impl GroupPort {
    pub fn bind(config: &UdpConfig) -> Result<GroupPort, PortError> {
        if !is_simulated() {
            return UdpPort::bind(config).map(GroupPort::Real);
        }
        let UdpConfig { address, port, reuse_port, .. } = *config;
        match call(|kernel, pid| kernel.bind_udp(pid, address, port)) {
            Ok(fd) => Ok(GroupPort::Simulated(SimulatedUdp { descriptor: Descriptor(fd), address, port })),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(PortError::Taken { address, port, reuse_port })
            }
            Err(source) => Err(PortError::Socket { step: "bind the simulated socket", source }),
        }
    }

    pub fn receive_buffer_bytes(&self) -> usize {
        match self {
            GroupPort::Real(port) => port.receive_buffer_bytes(),
            GroupPort::Simulated(_) => 4 << 20,
        }
    }
}

impl Medium for GroupPort {
    fn address(&self) -> IpAddr {
        match self {
            GroupPort::Real(port) => port.address(),
            GroupPort::Simulated(port) => port.address,
        }
    }

    fn port(&self) -> u16 {
        match self {
            GroupPort::Real(port) => port.port(),
            GroupPort::Simulated(port) => port.port,
        }
    }

    fn steered_socket(&self) -> RawFd {
        match self {
            GroupPort::Real(port) => port.as_raw_fd(),
            GroupPort::Simulated(port) => port.descriptor.0,
        }
    }
}

impl Port for GroupPort {
    fn transmit(&mut self, now_ns: u64, batch: &GsoBatch<'_>) -> Result<(), TransmitError> {
        let port = match self {
            GroupPort::Real(port) => return port.transmit(now_ns, batch),
            GroupPort::Simulated(port) => port,
        };
        let flow = Flow { destination_port: port.port, ..batch.path.flow };
        let packet = Packet { flow, segment_bytes: batch.segment_bytes, bytes: batch.bytes.to_vec() };
        call(|kernel, _| {
            kernel.deliver(packet);
            Ok(())
        })
        .map_err(|error| TransmitError::Refused(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn receive(&mut self, now_ns: u64, handler: &mut dyn FnMut(&ReceivedBatch<'_>)) -> bool {
        let port = match self {
            GroupPort::Real(port) => return port.receive(now_ns, handler),
            GroupPort::Simulated(port) => port,
        };
        let Ok(Some(packet)) = call(|kernel, pid| kernel.receive_udp(pid, port.descriptor.0)) else {
            return false;
        };
        let Packet { flow, segment_bytes, bytes } = packet;
        handler(&ReceivedBatch {
            flow,
            traffic_class: 0,
            hop_limit: 64,
            segment_bytes,
            bytes: &bytes,
            has_icrc: true,
        });
        true
    }

    fn source_port(&mut self, now_ns: u64, flow: &Flow) -> u16 {
        match self {
            GroupPort::Real(port) => port.source_port(now_ns, flow),
            GroupPort::Simulated(_) => flow.source_port,
        }
    }

    fn listen_also(&mut self, udp_port: u16) -> io::Result<()> {
        match self {
            GroupPort::Real(port) => port.listen_also(udp_port),
            GroupPort::Simulated(_) => Ok(()),
        }
    }

    fn limits(&self, peer: Peer) -> PortLimits {
        let GroupPort::Real(port) = self else {
            let packet_cost = PacketCost::UDP_SOCKET;
            let (max_segments, max_batch_bytes) = (64, 65_507);
            return PortLimits {
                max_segments,
                max_batch_bytes,
                receive_buffer_bytes: 4 << 20,
                packet_cost,
                needs_icrc: true,
                waits_for_room: false,
            };
        };
        port.limits(peer)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        match self {
            GroupPort::Real(port) => port.descriptors(),
            GroupPort::Simulated(port) => vec![port.descriptor.0],
        }
    }

    fn join(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            GroupPort::Real(port) => port.join(group),
            GroupPort::Simulated(port) => {
                call(|kernel, pid| kernel.join_group(pid, port.descriptor.0, group, true))
            }
        }
    }

    fn leave(&mut self, group: IpAddr) -> io::Result<()> {
        match self {
            GroupPort::Real(port) => port.leave(group),
            GroupPort::Simulated(port) => {
                call(|kernel, pid| kernel.join_group(pid, port.descriptor.0, group, false))
            }
        }
    }
}

/// A unix datagram socket, real or of the model.
#[derive(Debug)]
pub(crate) enum DatagramSocket {
    Real(real::DatagramSocket),
    Simulated(Descriptor),
}

/// Returns the name of a socket. Without the guard it is a name that belongs to no user, as an earlier design
/// had it.
fn socket_name(kernel: &Kernel, path: PathBuf) -> SocketName {
    if kernel.has(Guard::PrivateNames) { SocketName::Path(path) } else { SocketName::Abstract(path) }
}

/// Returns the error for a folder and a socket of different systems.
fn mixed() -> io::Error {
    io::Error::from_raw_os_error(libc::EXDEV)
}

impl DatagramSocket {
    pub(crate) fn new() -> io::Result<DatagramSocket> {
        if is_simulated() {
            return call(|kernel, pid| kernel.open_unix(pid))
                .map(|fd| DatagramSocket::Simulated(Descriptor(fd)));
        }
        real::DatagramSocket::new().map(DatagramSocket::Real)
    }

    pub(crate) fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        match self {
            DatagramSocket::Real(socket) => socket.set_send_buffer_size(bytes),
            DatagramSocket::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn bind(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        match (self, folder) {
            (DatagramSocket::Real(socket), OpenFolder::Real(folder)) => socket.bind(folder, name),
            (DatagramSocket::Simulated(socket), OpenFolder::Simulated(folder)) => call(|kernel, pid| {
                let path = kernel.path_in(pid, folder.0, name)?;
                kernel.bind_unix(pid, socket.0, &socket_name(kernel, path))
            }),
            _ => Err(mixed()),
        }
    }

    pub(crate) fn connect(&self, folder: &OpenFolder, name: &str) -> io::Result<()> {
        match (self, folder) {
            (DatagramSocket::Real(socket), OpenFolder::Real(folder)) => socket.connect(folder, name),
            (DatagramSocket::Simulated(_), OpenFolder::Simulated(folder)) => call(|kernel, pid| {
                let path = kernel.path_in(pid, folder.0, name)?;
                kernel.find_unix(pid, &socket_name(kernel, path)).map(|_| ())
            }),
            _ => Err(mixed()),
        }
    }

    pub(crate) fn send(
        &self,
        folder: &OpenFolder,
        name: &str,
        header: &[u8],
        bytes: &[u8],
    ) -> io::Result<()> {
        match (self, folder) {
            (DatagramSocket::Real(socket), OpenFolder::Real(folder)) => {
                socket.send(folder, name, header, bytes)
            }
            (DatagramSocket::Simulated(_), OpenFolder::Simulated(folder)) => call(|kernel, pid| {
                let path = kernel.path_in(pid, folder.0, name)?;
                kernel.send_unix(pid, &socket_name(kernel, path), [header, bytes].concat())
            }),
            _ => Err(mixed()),
        }
    }

    /// Fails: simulated processes share no rings, so they have no descriptor to send.
    pub(crate) fn send_descriptor(
        &self,
        folder: &OpenFolder,
        name: &str,
        bytes: &[u8],
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        match (self, folder) {
            (DatagramSocket::Real(socket), OpenFolder::Real(folder)) => {
                socket.send_descriptor(folder, name, bytes, descriptor)
            }
            _ => Err(mixed()),
        }
    }

    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Datagram>> {
        let descriptor = match self {
            DatagramSocket::Real(socket) => return socket.receive(buffer),
            DatagramSocket::Simulated(descriptor) => descriptor,
        };
        let came = call(|kernel, pid| kernel.receive_unix(pid, descriptor.0))?;
        Ok(came.map(|(uid, bytes)| {
            let length_bytes = bytes.len().min(buffer.len());
            buffer[..length_bytes].copy_from_slice(&bytes[..length_bytes]);
            let truncated = bytes.len() > length_bytes;
            Datagram { length_bytes, uid: Some(uid), truncated, descriptor: None }
        }))
    }

    pub(crate) fn inode(&self) -> io::Result<u64> {
        match self {
            DatagramSocket::Real(socket) => socket.inode(),
            DatagramSocket::Simulated(socket) => call(|kernel, pid| kernel.description_id(pid, socket.0)),
        }
    }
}

impl AsRawFd for DatagramSocket {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            DatagramSocket::Real(socket) => socket.as_raw_fd(),
            DatagramSocket::Simulated(descriptor) => descriptor.0,
        }
    }
}

pub(crate) fn guards(guard: Guard) -> bool {
    observe(|kernel, _| kernel.has(guard)).unwrap_or_else(|| real::guards(guard))
}

pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    if is_simulated() {
        call(|kernel, pid| kernel.create_folder(pid, path))
    } else {
        real::create_folder(path)
    }
}

pub(crate) fn list_folder(path: &Path) -> io::Result<Vec<String>> {
    if is_simulated() { call(|kernel, pid| kernel.list_folder(pid, path)) } else { real::list_folder(path) }
}

pub(crate) fn about_path(path: &Path) -> io::Result<FileInfo> {
    if is_simulated() { call(|kernel, pid| kernel.about_path(pid, path)) } else { real::about_path(path) }
}

pub(crate) fn is_name_taken(path: &Path) -> bool {
    if is_simulated() { exists(path) } else { real::is_name_taken(path) }
}

pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    if is_simulated() { remove_file(path) } else { real::remove_folder(path) }
}

/// Reads a file of the operating system; `None` below simulated processes, which have no such files.
pub(crate) fn read_text(path: &str) -> Option<String> {
    if is_simulated() { None } else { real::read_text(path) }
}

pub(crate) fn processes_of(uid: u32) -> Vec<u32> {
    if is_simulated() {
        return call(|kernel, _| Ok(kernel.processes_of(uid))).unwrap_or_default();
    }
    real::processes_of(uid)
}

/// Returns the descriptors of a process. Below simulated processes the first paths lead nowhere.
pub(crate) fn descriptors_of(pid: u32) -> Vec<(PathBuf, PathBuf)> {
    if is_simulated() {
        return call(|kernel, _| Ok(kernel.descriptors_of(pid))).unwrap_or_default();
    }
    real::descriptors_of(pid)
}

pub(crate) fn real_path(path: &Path) -> PathBuf {
    if is_simulated() { path.to_owned() } else { real::real_path(path) }
}

pub(crate) fn is_port_taken(config: &UdpConfig) -> bool {
    if is_simulated() {
        return call(|kernel, _| Ok(kernel.is_port_taken(config.address, config.port))).unwrap_or(false);
    }
    real::is_port_taken(config)
}

pub(crate) fn exists(path: &Path) -> bool {
    if is_simulated() {
        return call(|kernel, pid| Ok(kernel.exists(pid, path))).unwrap_or(false);
    }
    real::exists(path)
}

pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    if is_simulated() { call(|kernel, pid| kernel.remove_file(pid, path)) } else { real::remove_file(path) }
}

pub(crate) fn now() -> Instant {
    observe(|kernel, _| kernel.now()).unwrap_or_else(real::now)
}

pub(crate) fn monotonic_ns() -> u64 {
    observe(|kernel, _| kernel.now_ns()).unwrap_or_else(real::monotonic_ns)
}

pub(crate) fn sleep(duration: Duration) {
    if is_simulated() { simulation::block(TaskWait::For(duration)) } else { real::sleep(duration) }
}

pub(crate) fn idle() {
    if is_simulated() { simulation::block(TaskWait::Turn) } else { real::idle() }
}

pub(crate) fn next_number() -> u64 {
    if is_simulated() { call(|kernel, _| Ok(kernel.unique())).unwrap_or(0) } else { real::next_number() }
}

pub(crate) fn process_id() -> u32 {
    observe(|_, pid| pid).unwrap_or_else(real::process_id)
}

pub(crate) fn effective_uid() -> u32 {
    observe(|kernel, pid| kernel.uid(pid)).unwrap_or_else(real::effective_uid)
}

pub(crate) fn real_uid() -> u32 {
    observe(|kernel, pid| kernel.uid(pid)).unwrap_or_else(real::real_uid)
}

pub(crate) fn namespace(kind: &str) -> u64 {
    if is_simulated() { 7 } else { real::namespace(kind) }
}

pub(crate) fn network_cookie() -> Option<u64> {
    if is_simulated() { None } else { real::network_cookie() }
}

pub(crate) fn process_status(pid: u32) -> Option<String> {
    if is_simulated() {
        return call(|kernel, _| Ok(kernel.status(pid))).ok()?;
    }
    real::process_status(pid)
}

pub(crate) fn udp_table(name: &str) -> Option<String> {
    if is_simulated() {
        return call(|kernel, _| Ok(kernel.udp_table())).ok().filter(|_| name == "udp");
    }
    real::udp_table(name)
}

pub(crate) fn host_addresses() -> Vec<IpAddr> {
    if is_simulated() { simulation::HOST_ADDRESSES.to_vec() } else { real::host_addresses() }
}

pub(crate) fn is_host_address(address: IpAddr) -> bool {
    if is_simulated() {
        simulation::HOST_ADDRESSES.contains(&address)
    } else {
        real::is_host_address(address)
    }
}

pub(crate) fn socket_inode(port: &GroupPort) -> io::Result<u64> {
    match port {
        GroupPort::Real(port) => real::socket_inode(port),
        GroupPort::Simulated(port) => call(|kernel, pid| kernel.udp_inode(pid, port.descriptor.0)),
    }
}

pub(crate) fn attach_program(fd: RawFd, program: &mut [sock_filter]) -> io::Result<()> {
    if is_simulated() {
        return call(|kernel, pid| kernel.attach_program(pid, fd, program));
    }
    real::attach_program(fd, program)
}
